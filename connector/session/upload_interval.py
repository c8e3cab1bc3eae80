"""How long acknowledgements are held back: always for the same time, or by a schedule.

Otherwise small transactions would make a snapshot every second. Meanwhile the runtime reads more input into the next
transaction, which gets larger.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from connector.config.sync_schedule import SyncSchedule

QUICK_TRANSACTIONS: Final = 3  # at the start of a session, so that the person who started it soon sees rows


class UploadInterval:
    """Decides how long each acknowledgement of a session is held back.

    A transaction is not delayed if it has `enough_rows` or `enough_bytes`: more input may be waiting.
    """

    def __init__(
        self,
        interval: timedelta | SyncSchedule,
        enough_rows: int | None,
        enough_bytes: int,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._interval = interval
        self._enough_rows = enough_rows
        self._enough_bytes = enough_bytes
        self._now = now
        self._rows = self._transactions = 0

    def count_rows(self, rows: int) -> None:
        """Note that the open transaction has received so many rows."""
        self._rows += rows

    def end_transaction(self, staged_size: int | None) -> float:
        """End the open transaction, and return the delay of its acknowledgement in seconds.

        `staged_size` are the bytes of its data files: 0 if it only deletes rows, None if it has staged nothing. It does
        not matter if a table refuses the commit: its small transactions must not pile up either.
        """
        rows, self._rows = self._rows, 0
        if staged_size is None:
            return 0.0
        self._transactions += 1
        has_enough_rows = self._enough_rows is not None and rows >= self._enough_rows
        is_large = has_enough_rows or staged_size >= self._enough_bytes
        return 0.0 if is_large or self._transactions <= QUICK_TRANSACTIONS else self._find_delay()

    def _find_delay(self) -> float:
        interval = self._interval
        if isinstance(interval, SyncSchedule):
            interval = interval.find_interval(self._now())
        return interval.total_seconds()
