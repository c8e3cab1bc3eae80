"""Defects of backfills that both the crash scenarios and the simulation plant: what a commit does wrongly with them."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from connector.iceberg.commits import backfill, commit
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import StagedCommit


def remove_rows_first(
    pending: commit._PendingCommits, loaded: commit._LoadedTable, staged: Sequence[StagedCommit]
) -> commit._LoadedTable:
    """Remove the rows of before in a commit of its own, and return the table after it."""
    table, writer, snapshots = loaded.table, staged[0].writer, SnapshotWriter()
    begun = backfill.begin_generation(table, loaded.generation, loaded.task_table.schema())
    cleared = snapshots.clear(table, writer, backfill.remove_rows(table, writer, snapshots), {})
    commit.commit_snapshot(pending.catalog, table, cleared, {}, begun)
    return commit._load(pending.catalog, staged)


def take_former_for_present(pending: commit._PendingCommits, **changes: Any) -> commit._PendingCommits:
    """Return the same commits. If they were staged for a former generation, they claim to be for the present one, with
    these further changes."""
    first = pending.staged[0]
    generation = find_generation(pending.catalog.load_table(first.path), first.writer.materialization)
    if first.table_uuid not in generation.former:
        return pending
    taken = copy(pending)
    taken.staged = [replace(each, table_uuid=generation.uuid, **changes) for each in pending.staged]
    return taken
