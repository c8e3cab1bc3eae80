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
from connector.iceberg.commits import backfill, commit
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.metadata.table_properties import find_generation
from connector.iceberg.metadata.table_updates import require_uuid
from connector.model.owner import OWNER_PROPERTY
from connector.model.state import StagedCommit
from crash.faults import swap


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
    send = commit._PendingCommits._commit

    def remove_first(
        pending: commit._PendingCommits, loaded: commit._LoadedTable, staged: Sequence[StagedCommit]
    ) -> TableMetadata:
        if not loaded.generation.is_awaited:
            return send(pending, loaded, staged)
        table, writer, snapshots = loaded.table, staged[0].writer, SnapshotWriter()
        begun = backfill.begin_generation(table, loaded.generation, loaded.task_table.schema())
        cleared = snapshots.clear(table, writer, backfill.remove_rows(table, writer, snapshots), {})
        commit.commit_snapshot(pending.catalog, table, cleared, {}, begun)
        return send(pending, commit._load(pending.catalog, staged), staged)

    swap(commit._PendingCommits, "_commit", remove_first)


def adds_what_was_staged_before() -> None:
    """What was staged for a former generation passes for staged for the present one, by a process that recovers it."""
    commit_pending = commit._PendingCommits.commit

    def commit_all(pending: commit._PendingCommits) -> Any:
        staged = pending.staged
        generation = find_generation(pending.catalog.load_table(staged[0].path), staged[0].writer.materialization)
        if staged[0].table_uuid not in generation.former:
            return commit_pending(pending)
        taken = [replace(each, table_uuid=generation.uuid, is_recovered=True) for each in staged]
        return replace(commit_pending(replace(pending, staged=taken)), staged=tuple(staged))

    swap(commit._PendingCommits, "commit", commit_all)


DEFECTS: Final[dict[str, Callable[[], None]]] = {
    defect.__name__: defect
    for defect in (
        records_the_owner_before_the_backfill,
        removes_the_rows_before_it_adds_others,
        adds_what_was_staged_before,
    )
}
