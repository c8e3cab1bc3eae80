"""Finds finished commits that a table lacks, because it was restored from an older copy."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.table import Table

from connector.host.errors import UserError
from connector.iceberg.commits import fence
from connector.iceberg.commits.fence_errors import format_arguments
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import FinishedCommit, StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier


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
        for commit in select_finished(finished, staged)
        if commit.table_uuid == find_generation(table, commit.writer.materialization).uuid
        and (count := count_lost(table.properties, commit))
    ]


def select_finished(finished: Iterable[FinishedCommit], staged: Iterable[StagedCommit]) -> list[FinishedCommit]:
    """Return the finished commits after which nothing is staged. The staged ones are newer: the table is compared with
    these instead."""
    compared = {(commit.table_uuid, commit.writer) for commit in staged}
    return [commit for commit in finished if (commit.table_uuid, commit.writer) not in compared]


def count_lost(properties: Mapping[str, str], finished: FinishedCommit) -> int:
    """Return how many transactions a table lacks that it had: it was restored from a copy of before them."""
    recorded = fence.read_value(properties, finished.writer)
    return max(0, fence.read_ordinal(finished.value) - fence.read_ordinal(recorded))


def check_lost(table: TableIdentifier, properties: Mapping[str, str], finished: FinishedCommit) -> None:
    """Raise UserError if a table lacks transactions that it had."""
    if lost := count_lost(properties, finished):
        writer = finished.writer
        arguments = f"{format_arguments(table, writer)} --state-key {shlex.quote(writer.state_key)}"
        raise UserError(
            f"table {table} lacks the last {lost} transaction(s) of {writer.materialization} (state key "
            f"{writer.state_key}, key range {writer.key_range}) that it had: the task's state says that it had them up "
            f"to {finished.value}, and its property {fence.property_name(writer)} is "
            f"{fence.read_value(properties, writer) or 'absent'}. The table or its catalog was restored from an older "
            "copy, or the property was changed by hand. Nothing was added. Bring the newest metadata of the table "
            "back, or backfill the binding. Only if these rows may be missing, run `materialize-iceberg fence reset "
            f"{arguments} --key-range {writer.key_range} --staged skip`."
        )
