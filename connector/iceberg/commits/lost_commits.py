"""Finds finished commits that a table lacks, because it was restored from an older copy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from pyiceberg.table import Table

from connector.host.errors import OlderTableError
from connector.iceberg.commits import fence
from connector.iceberg.commits.fence_errors import explain_lost
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import FinishedCommit, StagedCommit, WriterId
from connector.model.table_identifier import Owner, TableIdentifier


@dataclass(frozen=True)
class LostCommits:
    """The last commits of a writer, which a table had before it was restored from an older copy."""

    writer: WriterId
    value: str  # the fence value of the newest of them
    count: int


def find_lost(table: Table, staged: Iterable[StagedCommit], finished: Iterable[FinishedCommit]) -> list[LostCommits]:
    """Return what the table has lost of the commits that it had."""
    return [
        LostCommits(commit.writer, commit.value, count)
        for commit in list_newest(finished, staged)
        if commit.table_uuid == find_generation(table, commit.writer.materialization).uuid
        and (count := fence.count_lost(table.properties, commit.writer, commit.value))
    ]


def list_newest(finished: Iterable[FinishedCommit], staged: Iterable[StagedCommit]) -> list[FinishedCommit]:
    """Return the newest commit that each table had of each writer. It is the one before the oldest staged one, if there
    is any: that is the newer one if an older image has run."""
    newest = {(commit.table_uuid, commit.writer): commit for commit in finished}
    for commit in sorted(staged, key=attrgetter("next"), reverse=True):
        newest[commit.table_uuid, commit.writer] = FinishedCommit(commit.writer, commit.table_uuid, commit.follows)
    return list(newest.values())


def check_lost(table: TableIdentifier, properties: Mapping[str, str], finished: FinishedCommit) -> None:
    """Raise OlderTableError if a table lacks transactions that it had."""
    writer, had = finished.writer, finished.value
    if lost := fence.count_lost(properties, writer, had):
        name, value = fence.property_name(writer), fence.read_value(properties, writer)
        raise explain_lost(table, writer, lost, had, name, value)


def explain_older_table(table: TableIdentifier, state_key: str, owner: Owner | None) -> UserError:
    """Return the error of a table that lacks all rows that a task has stored with this state key.

    Its owner is an earlier state key of the same binding: then it is older than the backfill after which these rows
    were stored. Or that of another binding, which the task may not have any more.
    """
    if owner and _name_binding(owner.state_key) != _name_binding(state_key):
        return UserError(
            f"table {table} has none of the rows that the task has stored for this binding (state key {state_key}). It "
            f"was made for another binding, perhaps one that was removed since (state key {owner.state_key}). So "
            "another program has renamed tables, or has restored this one from an older copy. Nothing was added. Give "
            "the table of this binding its name back. Or choose another table name for the binding. (A backfill would "
            "remove the rows that the table has.)"
        )
    return OlderTableError(
        f"table {table} is older than the backfill that gave the binding its state key {state_key}, and lacks the rows "
        "that the task has stored since. The table or its catalog was restored from an older copy, or the catalog "
        "answered from a replica or a cache. Nothing was added. Bring the newest metadata of the table back, or "
        "backfill the binding again."
    )


def _name_binding(state_key: str) -> str:
    """Return what the state keys of a binding have in common: Flow appends .v and the backfill counter."""
    return state_key.rpartition(".v")[0]
