"""Finds finished commits that a table lacks, because it was restored from an older copy. Or it only seems to lack them,
because its fence property was removed or changed by hand."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from connector.host.errors import BACKFILL, OlderTableError, UserError
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence_errors import explain_lost
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import FinishedCommit, StagedCommit, WriterId, strip_marks
from connector.model.table_identifier import Owner, TableIdentifier


@dataclass(frozen=True)
class LostCommits:
    """The last commits of a writer, which a table had before it was restored from an older copy."""

    writer: WriterId
    value: str  # the fence value of the newest of them
    count: int
    is_in_table: bool  # its snapshots have them: only the property is older


def find_lost(table: Table, staged: Iterable[StagedCommit], finished: Iterable[FinishedCommit]) -> list[LostCommits]:
    """Return what the table has lost of the commits that it had."""
    return [
        LostCommits(commit.writer, commit.value, count, _is_in_history(table, commit.writer, commit.value))
        for commit in list_newest(finished, staged)
        if commit.table_uuid == find_generation(table, commit.writer.materialization).uuid
        and (count := fence.count_lost(table.properties, commit.writer, commit.value))
    ]


def count_absent(table: Table, writer: WriterId, had: str) -> int:
    """Return how many transactions a table has lost, the last of them with the fence value `had`. 0 if its snapshots
    have them, and only its property is older."""
    return 0 if _is_in_history(table, writer, had) else fence.count_lost(table.properties, writer, had)


def _is_in_history(table: Table, writer: WriterId, value: str) -> bool:
    """Whether a snapshot of the table's rows is the writer's commit with this fence value. It may have expired."""
    # Imported here: it imports Arrow, which Open does without.
    from connector.iceberg.commits.summaries import SUMMARY_FENCE, read_summary, summarize_writer

    expected = summarize_writer(writer) | {SUMMARY_FENCE: strip_marks(value)}
    snapshots = ancestors_of(table.current_snapshot(), table.metadata)
    return any(expected.items() <= read_summary(snapshot).items() for snapshot in snapshots)


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


def is_of_before_backfill(properties: Mapping[str, str], writer: WriterId) -> bool:
    """Whether a table's owner is an earlier state key of the writer's binding, and none of its rows are of the present
    one. Apply records the present owner before a session can open, so this is an older copy of the table."""
    owner = Owner.of(properties)
    if owner is None or owner.materialization != writer.materialization:
        return False
    is_earlier = _is_earlier_key(owner.state_key, writer.state_key)
    return is_earlier and fence.writer_hash(writer) not in fence.find_writer_hashes(properties)


def explain_older_table(table: TableIdentifier, state_key: str, owner: Owner | None) -> OlderTableError | UserError:
    """Return the error of a table that lacks all rows that a task has stored with this state key.

    Its owner is an earlier state key of the same binding: then it is older than the backfill after which these rows
    were stored, if there are any yet. Or that of another binding, which the task may not have any more.
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
        f"table {table} is older than the backfill that gave the binding its state key {state_key}, and lacks all rows "
        "that the task has stored since. The table or its catalog was restored from an older copy, or the catalog "
        "answered from a replica or a cache. Nothing was added. Bring the newest metadata of the table back, or "
        f"{BACKFILL}."
    )


def _is_earlier_key(state_key: str, other: str) -> bool:
    """Whether a binding had this state key before the other one, with a lower backfill counter."""
    (binding, _, counter), (other_binding, _, other_counter) = state_key.rpartition(".v"), other.rpartition(".v")
    is_counted = counter.isdecimal() and other_counter.isdecimal()
    return is_counted and binding == other_binding and int(counter) < int(other_counter)


def _name_binding(state_key: str) -> str:
    """Return what the state keys of a binding have in common: Flow appends .v and the backfill counter."""
    return state_key.rpartition(".v")[0]
