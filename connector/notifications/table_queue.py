"""The messages about one table that wait to be posted, in the order of its snapshots."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from connector.model.table_identifier import TableIdentifier
from connector.notifications.cloud_event import CloudEvent
from connector.notifications.notified_snapshots import find_mark, find_newer

MOST_WAITING: Final = 100  # messages of each table in memory; the table has the others


@dataclass
class TableQueue:
    """The messages about one table. `notified` is the sequence number up to which the webhook has been told."""

    path: TableIdentifier
    notified: int = 0
    due: float = 0.0  # when the next attempt is made, after a refusal
    refusals: int = 0  # of the first message
    is_cut: bool = False  # whether the table has further snapshots that must be told
    _waiting: deque[CloudEvent] = field(default_factory=deque)

    @property
    def waiting(self) -> int:
        """How many messages wait in memory."""
        return len(self._waiting)

    @property
    def first(self) -> CloudEvent | None:
        """The message that must be posted next."""
        return self._waiting[0] if self._waiting else None

    def add(self, metadata: TableMetadata, materialization: str) -> None:
        """Add the messages about snapshots that are not told yet. If there are too many, the newest are left out."""
        if len(self._waiting) >= MOST_WAITING:
            self.is_cut = True
            return
        mark = find_mark(metadata, materialization)
        if mark is None:
            return
        self._end(mark)  # another shard of the task may have told some
        last = self._waiting[-1].sequence_number if self._waiting else self.notified
        newer = find_newer(metadata, materialization, last)
        room = MOST_WAITING - len(self._waiting)
        uuid = str(metadata.table_uuid)
        self._waiting += (CloudEvent.of(self.path, uuid, snapshot) for snapshot in newer[:room])
        self.is_cut = len(newer) > room

    def end(self, event: CloudEvent) -> None:
        """Note that this message, and all before it, need not be posted any more."""
        self._end(event.sequence_number)

    def _end(self, sequence_number: int) -> None:
        self.notified = max(self.notified, sequence_number)
        while self._waiting and self._waiting[0].sequence_number <= self.notified:
            self._waiting.popleft()
            self.due, self.refusals = 0.0, 0
