"""What could be wrong with notifications."""

from contextlib import suppress
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from connector.model.table_identifier import TableIdentifier
from crash.faults import swap
from support.private_connector import MAKE_SNAPSHOT


def tells_nothing_of_before() -> None:
    from connector.notifications import notifier  # its module is not loaded without a webhook

    def mark_all(_: str, table: Table, __: int = 0) -> dict[str, str]:
        return {"flow.notified": str(table.metadata.last_sequence_number)}  # type: ignore[union-attr]

    swap(notifier, "mark_commit", mark_all)


def tells_before_the_commit() -> None:
    from connector.notifications.cloud_event import CloudEvent
    from connector.notifications.webhook import DeliveryError

    write = getattr(*MAKE_SNAPSHOT)

    def post_early(self: Any, table: Table, *rest: Any, **others: Any) -> Snapshot:
        snapshot: Snapshot = write(self, table, *rest, **others)
        event = CloudEvent.of(TableIdentifier.of(table), str(table.metadata.table_uuid), snapshot)
        with suppress(DeliveryError):
            self._mark.__self__._post(event)
        return snapshot

    swap(*MAKE_SNAPSHOT, post_early)


def tells_the_newest_first() -> None:
    from connector.notifications import notified_snapshots, table_queue

    def find_reversed(metadata: TableMetadata, materialization: str, after: int) -> list[Snapshot]:
        return notified_snapshots.find_newer(metadata, materialization, after)[::-1]

    swap(table_queue, "find_newer", find_reversed)


DEFECTS = {
    defect.__name__: defect for defect in (tells_nothing_of_before, tells_before_the_commit, tells_the_newest_first)
}
