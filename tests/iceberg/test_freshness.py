"""The summary of each commit says how fresh its rows are, from what is known without reading a row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from connector.iceberg.bound_table import bind_all
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.table_status import read_status
from connector.model.binding import RowSettings
from connector.model.state import FileList, LocatedRowsFile, StagedCommit
from connector.storage.file_io import LIST_SUFFIX, write_list
from protocol.flow import (
    WHOLE_RANGE,
    Collection,
    FieldSelection,
    Materialization,
    MaterializationBinding,
    Projection,
    StringInference,
)
from support.bindings import PATH, collection, projection
from support.rows.staged_rows import WRITER, staged

PUBLISHED: Final = 2
SCHEMA: Final = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(PUBLISHED, "flow_published_at", TimestamptzType(), required=False),
    NestedField(3, "note", StringType(), required=False),
)
NOON: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
TIME: Final = StringInference(format="date-time")
OFFSETS: Final = '{"acmeCo/orders/pivot=00":7}'


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    catalog.create_namespace(PATH.namespace)
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket"))
    catalog.create_table(PATH, SCHEMA, partition_spec=spec)
    return catalog


def stage(catalog: Catalog, *seconds: float | None, after: StagedCommit | None = None) -> StagedCommit:
    """A transaction with rows that were published so many seconds after noon, None for a row without a time."""
    times = [None if each is None else NOON + timedelta(seconds=each) for each in seconds]
    rows = [{"id": number, "flow_published_at": time} for number, time in enumerate(times)]
    return replace(staged(catalog, *rows, after=after), published_column_id=PUBLISHED)


def summary_after(catalog: Catalog, *commits: StagedCommit) -> Mapping[str, str]:
    commit_all_or_raise(catalog, commits)
    snapshot = catalog.load_table(PATH).current_snapshot()
    assert snapshot
    assert snapshot.summary
    return snapshot.summary.additional_properties


def times_of(summary: Mapping[str, str]) -> Sequence[str | None]:
    return summary.get("flow.min-published-at"), summary.get("flow.max-published-at")


def test_a_summary_has_the_smallest_and_largest_publication_time_of_all_files(catalog: Catalog) -> None:
    commit = stage(catalog, 3.000001, 1, 2, 0.5)
    assert commit.file_count == 2  # partitions
    summary = summary_after(catalog, commit)
    assert times_of(summary) == ("2026-11-22T12:00:00.500000Z", "2026-11-22T12:00:03.000001Z")
    assert summary["added-records"] == "4"


def test_times_before_1970_are_times_too(catalog: Catalog) -> None:
    assert times_of(summary_after(catalog, stage(catalog, -2e9, -3e9)))[0] == "1931-10-30T06:40:00.000000Z"


def test_the_files_of_a_list_count_too(catalog: Catalog) -> None:
    commit = stage(catalog, 1, 2, 3)
    assert not isinstance(commit.files, FileList)
    table = catalog.load_table(PATH)
    commit = replace(commit, files=write_list(table.io, f"{commit.files[0].path}{LIST_SUFFIX}", commit.files))
    assert times_of(summary_after(catalog, commit)) == ("2026-11-22T12:00:01.000000Z", "2026-11-22T12:00:03.000000Z")


def test_one_commit_of_several_transactions_has_the_times_of_all(catalog: Catalog) -> None:
    first = replace(stage(catalog, 5), offsets='{"acmeCo/orders/pivot=00":3}')
    second = replace(stage(catalog, 1, 2, after=first), offsets=OFFSETS)
    summary = summary_after(catalog, first, second)
    assert times_of(summary) == ("2026-11-22T12:00:01.000000Z", "2026-11-22T12:00:05.000000Z")
    assert summary["flow.offsets"] == OFFSETS


def test_a_summary_has_the_digest_of_the_newest_checkpoint(catalog: Catalog) -> None:
    first = replace(stage(catalog, 5), checkpoint="0123456789abcdef")
    second = replace(stage(catalog, 1, after=first), checkpoint="fedcba9876543210")
    assert summary_after(catalog, first, second)["flow.checkpoint"] == "fedcba9876543210"


def test_the_newest_times_are_shown_whatever_the_order_of_snapshots_in_the_metadata(catalog: Catalog) -> None:
    """Servers that are written in Rust keep snapshots in a hash map."""
    first = stage(catalog, 1)
    second = stage(catalog, 2, after=first)
    for commit in (first, second):
        commit_all_or_raise(catalog, [commit])
    table = catalog.load_table(PATH)
    table.metadata = table.metadata.model_copy(update={"snapshots": table.metadata.snapshots[::-1]})
    freshness = read_status(PATH, table, None, None).freshness
    assert freshness
    assert freshness.last == NOON + timedelta(seconds=2)


def test_a_later_attempt_has_the_times_of_its_own_transactions(catalog: Catalog) -> None:
    """The first attempt may have been answered by a timeout, although the table took it."""
    first = stage(catalog, 5)
    second = stage(catalog, 1, after=first)
    commit_all_or_raise(catalog, [first])
    summary = summary_after(catalog, first, second)
    assert times_of(summary) == ("2026-11-22T12:00:01.000000Z",) * 2


@pytest.mark.parametrize("seconds", [(None,), (None, None, None)])
def test_rows_without_a_time_have_none(catalog: Catalog, seconds: Sequence[None]) -> None:
    assert times_of(summary_after(catalog, stage(catalog, *seconds))) == (None, None)


@pytest.mark.parametrize("unknown", ["lower", "upper"])
def test_a_file_of_which_one_bound_is_unknown_has_no_times(catalog: Catalog, unknown: str) -> None:
    commit = stage(catalog, 1)
    assert not isinstance(commit.files, FileList)
    [file] = commit.files
    columns = tuple(msgspec.structs.replace(each, **{unknown: None}) for each in file.columns)
    commit = replace(commit, files=(msgspec.structs.replace(file, columns=columns),))
    assert times_of(summary_after(catalog, commit)) == (None, None)


def test_state_of_an_older_version_is_committed_without_times(catalog: Catalog) -> None:
    first = replace(stage(catalog, 5), published_column_id=None, is_recovered=True)
    second = stage(catalog, 1, after=first)
    summary = summary_after(catalog, first, second)
    assert times_of(summary) == (None, None), "the times of one transaction are not those of all rows"
    assert "flow.offsets" not in summary
    assert summary["added-records"] == "2"


def test_the_rows_that_a_commit_deletes_are_counted(catalog: Catalog) -> None:
    located = [LocatedRowsFile(f"file:///w/{number}", 20, None) for number in range(2)]
    first = replace(stage(catalog, 5), located=located[0])
    commits = [first, replace(stage(catalog, 1, after=first), located=located[1])]
    snapshot = SnapshotWriter().append(catalog.load_table(PATH), commits)
    assert snapshot.summary
    assert snapshot.summary["flow.deleted-rows"] == "40"


@pytest.mark.parametrize(
    ("found", "selected", "expected"),
    [
        (projection("flow_published_at", "string", ptr="/_meta/uuid", string=TIME), True, PUBLISHED),
        (projection("flow_published_at", "string", ptr="/_meta/uuid", string=TIME), False, None),
        (projection("flow_published_at", "string", ptr="/placed", string=TIME), True, None),
        (projection("flow_published_at", "string", ptr="/_meta/uuid"), True, None),
        (projection("note", "string", ptr="/_meta/uuid", string=TIME), True, None),
    ],
    ids=["the field of the runtime", "a field that is not selected", "another time", "the UUID", "a column of text"],
)
def test_the_column_of_publication_times_is_that_of_the_documents_uuid(
    catalog: Catalog, found: Projection, selected: bool, expected: int | None
) -> None:
    of = msgspec.structs.replace(collection(projection("id", "integer"), found), uuid_ptr="/_meta/uuid")
    assert bound_column(catalog, of, (of.projections[1].field,) if selected else ()) == expected


def bound_column(catalog: Catalog, of: Collection, values: tuple[str, ...]) -> int | None:
    binding = MaterializationBinding(
        collection=of,
        resource_path=PATH,
        state_key=WRITER.state_key,
        field_selection=FieldSelection(keys=("id",), values=values),
    )
    task = Materialization(name=WRITER.materialization, bindings=(binding,))
    [bound] = bind_all(catalog, task, WHOLE_RANGE.key_range, [RowSettings()])
    return bound.published_column_id
