"""What could be wrong with a backfill."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate

from connector.evolution.table_change import StartBackfill
from connector.iceberg import perform_changes
from connector.iceberg.metadata.table_updates import require_uuid
from connector.model.state import StagedCommit
from connector.model.table_identifier import OWNER_PROPERTY
from crash.faults import swap
from support import private_connector
from support.tables.broken_backfills import remove_rows_first, take_former_for_present


def records_the_owner_before_the_backfill() -> None:
    """In a commit of its own. An apply that is repeated finds the owner, and plans no backfill."""
    start = perform_changes.start_backfill  # type: ignore[attr-defined]

    def start_later(catalog: Catalog, table: Table, change: StartBackfill) -> None:
        owner = SetPropertiesUpdate(updates={OWNER_PROPERTY: change.target.owner.encode()})
        catalog.commit_table(table, (require_uuid(table),), (owner,))
        start(catalog, catalog.load_table(table.name()), change)

    swap(perform_changes, "start_backfill", start_later)


def removes_the_rows_before_it_adds_others() -> None:
    """In a commit of its own."""
    send: Callable[..., TableMetadata] = getattr(*private_connector.COMMIT_TO_TABLE)

    def remove_first(
        pending: private_connector.PendingCommits, loaded: private_connector.LoadedTable, staged: Sequence[StagedCommit]
    ) -> TableMetadata:
        if loaded.generation.is_awaited:
            loaded = remove_rows_first(pending, loaded, staged)
        return send(pending, loaded, staged)

    swap(*private_connector.COMMIT_TO_TABLE, remove_first)


def adds_what_was_staged_before() -> None:
    """What was staged for a former generation passes for staged for the present one, by a process that recovers it."""
    commit_pending = getattr(*private_connector.COMMIT_PENDING)

    def commit_all(pending: private_connector.PendingCommits) -> Any:
        taken = take_former_for_present(pending, is_recovered=True)
        return replace(commit_pending(taken), staged=tuple(pending.staged))

    swap(*private_connector.COMMIT_PENDING, commit_all)


DEFECTS: Final[dict[str, Callable[[], None]]] = {
    defect.__name__: defect
    for defect in (
        records_the_owner_before_the_backfill,
        removes_the_rows_before_it_adds_others,
        adds_what_was_staged_before,
    )
}
