"""Commits list each file with its partition: readers find exactly the rows of a filter, and skip all other files."""

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import duckdb
import msgspec
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.expressions import BooleanExpression, EqualTo, IsNaN, IsNull
from pyiceberg.manifest import ManifestFile, construct_partition_summaries
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connector.host.errors import UnfitCommitError
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.partitions import PartitionReader
from connector.iceberg.metadata.snapshot_manifests import ManifestFactory, make_added_entry
from connector.model.state import DataFile, StagedCommit
from connector.storage.file_io import WrittenFile
from support.bindings import PATH
from support.engines.readers import duckdb_rows
from support.rows.staged_files import listed
from support.rows.staged_rows import staged
from support.snapshots import check_text
from support.tables.altered_tables import ID, entries, filled_table, rows

# Their constructors have no types.
EQUAL: Final[Any] = EqualTo
IS_NULL: Final[Any] = IsNull
IS_NAN: Final[Any] = IsNaN
EVERY_TYPE: Final[list[tuple[PrimitiveType, Any, Any]]] = [  # with two values, in the form of manifests
    (BooleanType(), False, True),
    (IntegerType(), -(2**31), 2**31 - 1),
    (LongType(), -(2**63), 2**63 - 1),
    (FloatType(), -0.5, math.inf),
    (DoubleType(), -0.0, 1e300),
    (DateType(), -719162, 2932896),
    (TimeType(), 0, 86_399_999_999),
    (TimestampType(), -1, 253402300799999999),
    (TimestamptzType(), -62135596800000000, 1_750_000_000_123_456),
    (StringType(), "", "ž\U0001f600"),
    (FixedType(3), b"\x00\x01\x02", b"\xff\xff\xff"),
    (BinaryType(), b"", b"\x00\xff"),
    (DecimalType(9, 2), Decimal("-1.10"), Decimal("1234567.89")),
    (DecimalType(38, 0), Decimal(-(10**37)), Decimal(10**38 - 1)),
]
DAY: Final = datetime(2024, 2, 29, 23, 59, tzinfo=UTC)


def by(*transforms: Transform[Any, Any], source: int = 2) -> PartitionSpec:
    return PartitionSpec(
        *(PartitionField(source, 1000 + number, each, f"p{number}") for number, each in enumerate(transforms))
    )


def table_by(catalog: Catalog, type_: PrimitiveType, *transforms: Transform[Any, Any], required: bool = False) -> Table:
    return filled_table(catalog, ID, NestedField(2, "part", type_, required=required), spec=by(*transforms))


def commit(catalog: Catalog, *values: Any) -> None:
    commit_all_or_raise(catalog, [staged(catalog, *({"id": id_, "part": value} for id_, value in values))])


def found(catalog: Catalog, expression: BooleanExpression) -> tuple[list[int], int]:
    """The ids that a filter finds, and the number of files that PyIceberg reads for them."""
    scan = catalog.load_table(PATH).scan(row_filter=expression)
    return sorted(scan.to_arrow()["id"].to_pylist()), len(list(scan.plan_files()))


def write_manifest(table: Table, type_: PrimitiveType, *values: Any) -> ManifestFile:
    """A manifest of files with these values of the partition field."""
    files = [
        DataFile(f"file:///{value}", 1, 1, (4,), (), (None if value is None else to_bytes(type_, value),))
        for value in values
    ]
    return write_files(table, files)


def write_files(table: Table, files: Sequence[DataFile]) -> ManifestFile:
    reader = PartitionReader(table, 0)
    unsent = dict[str, list[WrittenFile]]()
    manifest = ManifestFactory(table, "m", 7, unsent).write(
        0, added=[make_added_entry(file, reader.read(file)) for file in files]
    )
    [file] = unsent[manifest.manifest_path]
    file.send()
    manifest.sequence_number = manifest.min_sequence_number = 1
    return manifest


@pytest.mark.parametrize(("type_", "low", "high"), EVERY_TYPE, ids=lambda value: str(value)[:20])
def test_a_partition_is_in_the_manifest_as_it_was_staged(
    catalog: Catalog, type_: PrimitiveType, low: Any, high: Any
) -> None:
    table = table_by(catalog, type_, IdentityTransform())
    manifest = write_manifest(table, type_, low, None, high)
    assert [entry.data_file.partition[0] for entry in manifest.fetch_manifest_entry(table.io)] == [low, None, high]
    assert manifest.partitions
    [summary] = manifest.partitions
    assert (summary.lower_bound, summary.upper_bound) == (to_bytes(type_, low), to_bytes(type_, high))
    assert (summary.contains_null, summary.contains_nan) == (True, False)


@pytest.mark.parametrize("type_", [FloatType(), DoubleType()], ids=str)
def test_the_bounds_of_a_manifest_are_around_zeros_of_both_signs(catalog: Catalog, type_: PrimitiveType) -> None:
    """Iceberg orders -0.0 before 0.0, and readers in Java skip manifests by that order."""
    table = table_by(catalog, type_, IdentityTransform())
    zeros, around = (-0.0, 0.0), []
    for values in (zeros, zeros[::-1], (*zeros, 1.5), (-1.5, *zeros[::-1])):
        manifest = write_manifest(table, type_, *values)
        assert manifest.partitions
        around += [from_bytes(type_, bound) for bound in (manifest.partitions[0][2], manifest.partitions[0][3])]
    assert str(around) == str([-0.0, 0.0, -0.0, 0.0, -0.0, 1.5, -1.5, 0.0])


def test_a_manifest_has_no_bounds_of_uuids(catalog: Catalog) -> None:
    """Iceberg for Java orders them by two signed numbers, and skips manifests by that order."""
    table = filled_table(
        catalog,
        ID,
        NestedField(2, "part", UUIDType()),
        spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), *by(IdentityTransform()).fields),
    )
    values = UUID(int=7), UUID(int=2**127)
    files = [DataFile(f"file:///{each}", 1, 1, (4,), (), (to_bytes(LongType(), 1), each.bytes)) for each in values]
    manifest = write_files(table, files)
    assert [entry.data_file.partition[1] for entry in manifest.fetch_manifest_entry(table.io)] == [*values]
    assert manifest.partitions is None


def test_pyiceberg_still_takes_zeros_of_both_signs_for_one_another() -> None:
    """Once it does not, the connector need not correct the bounds of manifests."""
    schema, spec = Schema(NestedField(2, "part", DoubleType())), by(IdentityTransform())
    [summary] = construct_partition_summaries(spec, schema, [Record(-0.0), Record(0.0)])
    assert (summary.lower_bound, summary.upper_bound) == (to_bytes(DoubleType(), -0.0),) * 2


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (BooleanType(), [True, False]),
        (IntegerType(), [-7, 0, 7]),
        (LongType(), [-(2**40), 0, 2**62]),
        (DoubleType(), [-1.5, 0.0, 1e300]),
        (DateType(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
        (TimestamptzType(), [datetime(1, 1, 1, tzinfo=UTC), DAY]),
        (StringType(), ["", "a", "ž\U0001f600"]),
        (BinaryType(), [b"", b"\x00\xff"]),
        (DecimalType(9, 2), [Decimal("-1.10"), Decimal("7.00")]),
    ],
)
def test_a_filter_on_an_identity_partition_reads_one_file(
    catalog: Catalog, type_: PrimitiveType, values: Sequence[Any]
) -> None:
    table_by(catalog, type_, IdentityTransform())
    numbered = list(enumerate([*values, None]))
    commit(catalog, *numbered, *((100 + number, value) for number, value in numbered))
    commit(catalog, *((200 + number, value) for number, value in numbered))
    for number, value in numbered:
        expression = IS_NULL("part") if value is None else EQUAL("part", _literal(value))
        assert found(catalog, expression) == ([number, 100 + number, 200 + number], 2)


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


@pytest.mark.parametrize(
    ("type_", "transform", "values", "files"),
    [
        (StringType(), BucketTransform(16), ["a", "b", "c", "d"], 1),
        (DecimalType(9, 2), TruncateTransform(100), [Decimal("1.10"), Decimal("2.00"), Decimal("1.99")], 1),
        # The lowest value is in the partition -10000000.00, which has a digit more.
        (DecimalType(9, 2), TruncateTransform(100), [Decimal("-9999999.99"), Decimal("9999999.99")], 1),
        (BinaryType(), TruncateTransform(1), [b"ab", b"ac", b"b"], 1),
        (TimestamptzType(), YearTransform(), [DAY, DAY.replace(year=1969, day=1)], 1),
        (TimestamptzType(), MonthTransform(), [DAY, DAY.replace(month=3)], 1),
        (TimestamptzType(), DayTransform(), [DAY, DAY.replace(day=1)], 1),
        (TimestamptzType(), HourTransform(), [DAY, DAY.replace(hour=1)], 1),
        (StringType(), VoidTransform(), ["a", "b"], 1),
    ],
    ids=lambda value: str(value),
)
def test_a_filter_on_a_transformed_column_finds_its_rows(
    catalog: Catalog, type_: PrimitiveType, transform: Transform[Any, Any], values: Sequence[Any], files: int
) -> None:
    table_by(catalog, type_, transform, required=True)
    commit(catalog, *enumerate(values))
    for number, value in enumerate(values):
        assert found(catalog, EQUAL("part", _literal(value))) == ([number], files)


def test_nan_is_a_partition(catalog: Catalog) -> None:
    table_by(catalog, DoubleType(), IdentityTransform())
    commit(catalog, (1, math.nan), (2, 0.5), (3, math.nan))
    assert found(catalog, IS_NAN("part"))[0] == [1, 3]
    assert found(catalog, EQUAL("part", 0.5)) == ([2], 1)
    first, second, *_ = ManifestCache().list_files(catalog.load_table(PATH))
    assert first.partition != second.partition


def test_duckdb_reads_partitions_whose_names_are_not_ascii(
    catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    part = NestedField(2, "größe", StringType())
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "größe"), PartitionField(2, 1001, BucketTransform(4), "größe_日付")
    )
    filled_table(catalog, ID, part, spec=spec)
    commit_all_or_raise(catalog, [staged(catalog, {"id": 1, "größe": "ä"}, {"id": 2, "größe": None})])
    location = catalog.load_table(PATH).metadata_location
    assert [row["id"] for row in duckdb_rows(duckdb_reader, location, "id")] == [1, 2]
    query = "SELECT id FROM iceberg_scan($1) WHERE größe = 'ä'"
    assert duckdb_reader.sql(query, params=[location]).fetchall() == [(1,)]


def test_pyiceberg_still_refuses_a_decimal_with_a_digit_more_than_its_type_has() -> None:
    """Once it does not, the connector need not replace how decimals are written. This process has replaced it."""
    imports = "from decimal import Decimal; from pyiceberg.conversions import to_bytes; from pyiceberg.types import *"
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}; to_bytes(DecimalType(4, 2), Decimal('-100.00'))"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert "ValueError: Cannot serialize value, precision of value" in done.stderr


def test_a_manifest_of_other_partitions_is_not_opened(catalog: Catalog) -> None:
    table_by(catalog, StringType(), IdentityTransform(), BucketTransform(4))
    commit(catalog, (1, "a"), (2, "b"))
    commit(catalog, (3, "x"), (4, None))
    table = catalog.load_table(PATH)
    snapshot = table.current_snapshot()
    assert snapshot
    second, _ = snapshot.manifests(table.io)
    Path(second.manifest_path.removeprefix("file://")).unlink()
    assert found(catalog, EQUAL("part", "b")) == ([2], 1)
    with pytest.raises(FileNotFoundError):
        found(catalog, EQUAL("part", "x"))


def test_files_follow_the_spec_that_they_were_staged_for(catalog: Catalog) -> None:
    table_by(catalog, StringType(), IdentityTransform())
    before = staged(catalog, {"id": 1, "part": "a"}, {"id": 2, "part": "b"})
    with catalog.load_table(PATH).update_spec() as update:
        update.remove_field("p0")
        update.add_field("id", BucketTransform(2), "bucket")
    after = staged(catalog, {"id": 3, "part": "a"}, after=before)
    commit_all_or_raise(catalog, [before, after])
    assert sorted(entry.data_file.spec_id for entry in entries(catalog)) == [0, 0, 1]
    assert found(catalog, EQUAL("part", "b")) == ([2], 1)
    assert [row["id"] for row in rows(catalog)] == [1, 2, 3]


def test_a_manifest_keeps_the_values_of_a_column_that_is_gone(catalog: Catalog) -> None:
    """Another engine drops a column of an older spec. Manifests of that spec are still merged."""
    table_by(catalog, StringType(), IdentityTransform())
    late = staged(catalog, {"id": 1, "part": "a"})
    drop_part(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "2"})
    commit_all_or_raise(catalog, [replace(late, is_recovered=True)])
    again = staged(catalog, {"id": 2}, {"id": 3})
    partition = (to_bytes(StringType(), "b"),)
    assert isinstance(again.files, tuple)
    files = tuple(msgspec.structs.replace(file, partition=partition) for file in again.files)
    commit_all_or_raise(catalog, [replace(again, spec_id=0, files=files)])
    assert sorted(str(entry.data_file.partition) for entry in entries(catalog)) == ["Record[a]", "Record[b]"]


def drop_part(catalog: Catalog) -> None:
    """The table is no longer partitioned by the column, and has it no more."""
    with catalog.load_table(PATH).update_spec() as update:
        update.remove_field("p0")
    with catalog.load_table(PATH).update_schema() as update_schema:
        update_schema.delete_column("part")


def test_the_values_of_a_column_that_is_gone_are_of_its_last_type(catalog: Catalog) -> None:
    """Another engine had widened it, and a value may not fit its first type."""
    table_by(catalog, IntegerType(), IdentityTransform())
    with catalog.load_table(PATH).update_schema() as update:
        update.update_column("part", LongType())
    late = staged(catalog, {"id": 1, "part": 2**40})
    drop_part(catalog)
    commit_all_or_raise(catalog, [replace(late, is_recovered=True)])
    assert [str(entry.data_file.partition) for entry in entries(catalog)] == [f"Record[{2**40}]"]


def test_the_sort_order_is_that_of_the_staged_files(catalog: Catalog) -> None:
    filled_table(catalog, ID)
    commit_all_or_raise(
        catalog,
        [
            staged(catalog, {"id": 1}),
        ],
    )
    commit_all_or_raise(catalog, [replace(staged(catalog, {"id": 2}), sort_order_id=3)])
    assert {entry.data_file.sort_order_id for entry in entries(catalog)} == {None, 3}


def test_a_list_of_files_keeps_their_partitions(catalog: Catalog) -> None:
    table = table_by(catalog, StringType(), IdentityTransform())
    for number, part in enumerate(("\xff", None)):
        commit_all_or_raise(catalog, [listed(table, staged(catalog, {"id": number, "part": part}))])
    assert found(catalog, EQUAL("part", "\xff")) == ([0], 1)
    assert found(catalog, IS_NULL("part")) == ([1], 1)


def refusal(catalog: Catalog, broken: StagedCommit) -> str:
    with pytest.raises(UnfitCommitError) as error:
        commit_all_or_raise(catalog, [broken])
    assert isinstance(broken.files, tuple)
    return str(error.value).replace(broken.files[0].path, "<file>")


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("a staged file with too few partition values", ()),
        ("a staged file with too many partition values", (b"a", b"b")),
        ("a staged file with a broken partition value", (b"\xff",)),
    ],
)
def test_a_partition_that_does_not_fit_the_spec_loses_nothing(
    catalog: Catalog, name: str, partition: tuple[bytes, ...]
) -> None:
    table_by(catalog, StringType(), IdentityTransform())
    commit_ = staged(catalog, {"id": 1, "part": "a"})
    assert isinstance(commit_.files, tuple)
    files = tuple(msgspec.structs.replace(file, partition=partition) for file in commit_.files)
    check_text("commit_errors", name, refusal(catalog, replace(commit_, files=files)))
    assert rows(catalog) == []
    commit_all_or_raise(catalog, [commit_])
    assert len(rows(catalog)) == 1


def test_a_partition_in_a_table_without_any_is_refused(catalog: Catalog) -> None:
    filled_table(catalog, ID)
    commit_ = staged(catalog, {"id": 1})
    assert isinstance(commit_.files, tuple)
    files = tuple(msgspec.structs.replace(file, partition=(b"a",)) for file in commit_.files)
    check_text("commit_errors", "a partition in an unpartitioned spec", refusal(catalog, replace(commit_, files=files)))


def test_files_without_values_fit_a_spec_of_void_alone(catalog: Catalog) -> None:
    """An image that knew no partitions has staged them."""
    table_by(catalog, StringType(), VoidTransform())
    commit_ = staged(catalog, {"id": 1, "part": "a"})
    assert isinstance(commit_.files, tuple)
    files = tuple(msgspec.structs.replace(file, partition=()) for file in commit_.files)
    commit_all_or_raise(catalog, [replace(commit_, files=files)])
    assert rows(catalog) == [{"id": 1, "part": "a"}]
