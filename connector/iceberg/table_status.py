"""The status of a table, as `inspect` shows it: its size, its last commit, its writers and what is staged for it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import Transform
from pyiceberg.types import NestedField

from connector.config.terms import SortTerm, Term
from connector.iceberg.commits.summaries import (
    SUMMARY_DELETED,
    SUMMARY_FIRST,
    SUMMARY_LAST,
    SUMMARY_MATERIALIZATION,
    SUMMARY_OFFSETS,
    SUMMARY_STATE_KEY,
    list_newest_first,
    read_commit_time,
    read_count,
    read_summary,
)
from connector.iceberg.commits.verdicts import JudgedCommit, judge_commits
from connector.iceberg.commits.writers import RecordedWriter, list_recorded_writers
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache
from connector.iceberg.metadata.partitions import find_spec
from connector.iceberg.metadata.table_properties import awaits_backfill
from connector.model.state import StagedCommit
from connector.model.table_identifier import Owner, TableIdentifier
from connector.storage import storage_errors
from protocol.flow import Json

ENGINE: Final = "engine-name"  # in the summaries of other engines
TOTALS: Final = ("total-records", "total-data-files", "total-delete-files", "total-files-size")


@dataclass(frozen=True)
class LastSnapshot:
    """The newest snapshot of the main branch. `owner` is None if another program has committed it."""

    at: datetime
    operation: str
    owner: Owner | None
    engine: str  # "" if the snapshot does not name it


@dataclass(frozen=True)
class Reference:
    """A branch or a tag besides the main branch. It keeps the files of its snapshot. `at` is None if that is gone."""

    name: str
    kind: str  # branch or tag
    snapshot_id: int
    at: datetime | None  # when the snapshot was committed


@dataclass(frozen=True)
class Freshness:
    """What the newest commit of the connector with publication times says about its rows."""

    first: datetime  # the smallest publication time of its rows
    last: datetime
    upserted: int  # rows that it wrote
    deleted: int  # older versions of rows
    offsets: Json  # how far its source was read, by journal; None if the snapshot does not say


@dataclass(frozen=True)
class TableSize:
    """The totals of the live files. Rows that delete files delete still count."""

    rows: int = 0
    data_files: int = 0
    delete_files: int = 0
    size: int = 0  # in bytes, of all of these files


@dataclass(frozen=True)
class TableStatus:
    """The facts about a table that an operator asks for. `staged` is None if the task's state is not known."""

    path: TableIdentifier
    uuid: str
    location: str
    owner: Owner | None
    awaits_backfill: bool  # the next commit of its task replaces all rows
    columns: Sequence[NestedField]
    partition_fields: Sequence[str]  # of the current spec, as `partition_by` has them
    sort_fields: Sequence[str]  # of the current sort order, as `sort_by` has them
    partitions: int  # with data files, of all specs; 0 without partition fields
    size: TableSize
    snapshots: int
    references: Sequence[Reference]
    last_commit: LastSnapshot | None
    freshness: Freshness | None
    writers: Sequence[RecordedWriter]
    staged: Sequence[JudgedCommit] | None


def list_files(table: Table) -> list[ListedFile]:
    """Return all live files of a table. UserError if a manifest or a file is not to be read."""
    with storage_errors.translate_errors(table.location()):
        return ManifestCache().list_files(table)


def read_status(
    path: TableIdentifier, table: Table, listed: Sequence[ListedFile] | None, staged: Sequence[StagedCommit] | None
) -> TableStatus:
    """Return the status of a table with these live files. Without them, the totals are those of its last commit.

    `staged` are the commits that the state names for it; None without a state.
    """
    snapshot = table.current_snapshot()
    return TableStatus(
        path=path,
        uuid=str(table.metadata.table_uuid),
        location=table.location(),
        owner=Owner.of(table.properties),
        awaits_backfill=awaits_backfill(table),
        columns=table.schema().fields,
        partition_fields=[str(_read_term(table, field.source_id, field.transform)) for field in table.spec().fields],
        sort_fields=[str(_read_sort_term(table, field)) for field in table.sort_order().fields],
        partitions=_count_partitions(table, listed or ()),
        size=_read_totals(snapshot) if listed is None else _count_size(listed),
        snapshots=len(table.metadata.snapshots),
        references=[*_list_references(table)],
        last_commit=_describe_commit(snapshot) if snapshot else None,
        freshness=_read_freshness(table),
        writers=list_recorded_writers(table),
        staged=None if staged is None else judge_commits(table, staged),
    )


def _read_totals(snapshot: Snapshot | None) -> TableSize:
    """Return the totals that a snapshot's summary names. Some engines write none."""
    summary = read_summary(snapshot)
    totals = [total for name in TOTALS if (total := read_count(summary, name)) is not None]
    return TableSize(*totals) if len(totals) == len(TOTALS) else TableSize()


def _count_size(listed: Sequence[ListedFile]) -> TableSize:
    data = [file for file in listed if file.is_data]
    return TableSize(
        rows=sum(file.rows for file in data),
        data_files=len(data),
        delete_files=len(listed) - len(data),
        size=sum(file.size for file in listed),
    )


def _count_partitions(table: Table, listed: Sequence[ListedFile]) -> int:
    partitions = {file.partition for file in listed if file.is_data}
    return sum(bool(find_spec(table.specs(), partition.spec_id).fields) for partition in partitions)


def _read_term(table: Table, column_id: int, transform: Transform[Any, Any]) -> Term:
    """Return a field of a spec or of a sort order as the config would have it, such as `bucket(16, id)`."""
    name = table.schema().find_column_name(column_id) or f"column {column_id}, which is gone"
    function, _, width = str(transform).rstrip("]").partition("[")
    return Term(function, name, int(width) if width else None)


def _read_sort_term(table: Table, field: SortField) -> SortTerm:
    is_descending = field.direction is SortDirection.DESC
    nulls_first = field.null_order is NullOrder.NULLS_FIRST
    return SortTerm(_read_term(table, field.source_id, field.transform), is_descending, nulls_first)


def _list_references(table: Table) -> Iterator[Reference]:
    committed = {each.snapshot_id: read_commit_time(each) for each in table.metadata.snapshots}
    for name, ref in sorted(table.metadata.refs.items()):
        if name != MAIN_BRANCH:
            yield Reference(name, ref.snapshot_ref_type.value, ref.snapshot_id, committed.get(ref.snapshot_id))


def _read_freshness(table: Table) -> Freshness | None:
    for snapshot in list_newest_first(table.metadata):
        summary = read_summary(snapshot)
        try:
            first, last = (datetime.fromisoformat(summary[name]) for name in (SUMMARY_FIRST, SUMMARY_LAST))
            upserted, deleted = int(summary["added-records"]), int(summary[SUMMARY_DELETED])
            offsets = json.loads(summary.get(SUMMARY_OFFSETS, "null"))
        except (KeyError, ValueError):
            continue  # another engine may write what it likes
        return Freshness(first, last, upserted, deleted, offsets)
    return None


def _describe_commit(snapshot: Snapshot) -> LastSnapshot:
    summary = read_summary(snapshot)
    owner = (
        Owner(summary[SUMMARY_MATERIALIZATION], summary.get(SUMMARY_STATE_KEY, ""))
        if SUMMARY_MATERIALIZATION in summary
        else None
    )
    operation = snapshot.summary.operation.value if snapshot.summary else ""
    return LastSnapshot(read_commit_time(snapshot), operation, owner, summary.get(ENGINE, ""))
