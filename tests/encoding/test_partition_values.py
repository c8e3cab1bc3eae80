"""Partition values: what Iceberg's specification says, and what PyIceberg computes value by value."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimestamptzType,
)

from connector.encoding.parquet.data_files import RowGroupMemory
from connector.encoding.runs.partition_values import PartitionValues
from connector.encoding.values.column_types import arrow_schema
from connector.encoding.values.transformed_columns import TransformedColumn
from connector.host.errors import UserError
from connector.model.binding import PartitionField
from encoding.store_lines import binding
from support.snapshots import check_text

VALUE = 2  # the field id of `value0`
NOT_WRITTEN = 77
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SMALLEST = datetime(1, 1, 1, tzinfo=UTC)
LARGEST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
HASHED = 2**31 - 1  # as many buckets as a spec may have: nearly the hash of Iceberg's specification itself


def rows(types: list[PrimitiveType], *values: tuple[Any, ...]) -> tuple[Any, pa.RecordBatch]:
    of = binding(*types)
    columns = [range(len(values)), *zip(*values, strict=True)]
    schema = arrow_schema(of)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return of, pa.RecordBatch.from_arrays(arrays, schema=schema)


def partition_of_each(type_: PrimitiveType, transform: str, *values: Any) -> list[bytes | None]:
    of, batch = rows([type_], *((value,) for value in values))
    found = PartitionValues(of.columns, [PartitionField(VALUE, transform)]).of([batch])
    assert len(set(found.values)) == len(found.values), "each partition once"
    return [found.values[index][0] for index in found.indices]


def partition_of(type_: PrimitiveType, transform: str, value: Any) -> Any:
    [partition] = partition_of_each(type_, transform, value)
    return None if partition is None else from_bytes(result_of(transform, type_), partition)


def result_of(transform: str, type_: PrimitiveType) -> PrimitiveType:
    found = parse_transform(transform).result_type(type_)
    assert isinstance(found, PrimitiveType)
    return found


@pytest.mark.parametrize(
    ("type_", "transform", "value", "expected"),
    [
        (DateType(), "year", date(1969, 12, 31), -1),
        (DateType(), "month", date(1969, 12, 31), -1),
        (DateType(), "day", date(1969, 12, 31), -1),
        (DateType(), "day", date(1, 1, 1), -719162),
        (DateType(), "year", date(1, 1, 1), -1969),
        (DateType(), "month", date(1, 1, 1), -1969 * 12),
        (DateType(), "year", date(9999, 12, 31), 8029),
        (DateType(), "identity", date(1, 1, 1), -719162),
        (DateType(), "identity", date(9999, 12, 31), 2932896),
        (TimestamptzType(), "hour", EPOCH - timedelta(microseconds=1), -1),
        (TimestamptzType(), "day", EPOCH - timedelta(microseconds=1), -1),
        (TimestamptzType(), "month", EPOCH - timedelta(microseconds=1), -1),
        (TimestamptzType(), "year", EPOCH - timedelta(microseconds=1), -1),
        (TimestamptzType(), "hour", EPOCH, 0),
        (TimestamptzType(), "hour", SMALLEST, -719162 * 24),
        (TimestamptzType(), "day", LARGEST, 2932896),
        (TimestamptzType(), "hour", LARGEST, 2932896 * 24 + 23),
        (TimestamptzType(), "identity", LARGEST, 253402300799999999),
        (TimestamptzNanoType(), "hour", -1, -1),
        (LongType(), "truncate[10]", -1, -10),
        (LongType(), "truncate[10]", 19, 10),
        (IntegerType(), "truncate[10]", -11, -20),
        (DecimalType(9, 2), "truncate[50]", Decimal("10.65"), Decimal("10.50")),
        (DecimalType(9, 2), "truncate[10]", Decimal("-0.05"), Decimal("-0.10")),
        (DecimalType(9, 2), "truncate[10]", Decimal("-9999999.99"), Decimal("-10000000.00")),
        (DecimalType(38, 0), "identity", Decimal("-99999999999999999999999999999999999999"), None),
        (StringType(), "truncate[2]", "é😀x", "é😀"),
        (StringType(), "truncate[3]", "é", "é"),
        (StringType(), "identity", "", ""),
        (BinaryType(), "truncate[2]", b"\xff\xfe\x00", b"\xff\xfe"),
        (BinaryType(), "identity", b"", b""),
        (BooleanType(), "identity", False, False),
        (DoubleType(), "identity", -0.0, -0.0),
    ],
)
def test_values_are_transformed_as_the_specification_says(
    type_: PrimitiveType, transform: str, value: Any, expected: Any
) -> None:
    assert repr(partition_of(type_, transform, value)) == repr(value if expected is None else expected)


@pytest.mark.parametrize(
    ("type_", "value", "hashed"),
    [  # the table in the specification's appendix B
        (IntegerType(), 34, 2017239379),
        (LongType(), 34, 2017239379),
        (DecimalType(9, 2), Decimal("14.20"), -500754589),
        (DateType(), date(2017, 11, 16), -653330422),
        (TimestamptzType(), datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), -2047944441),
        (TimestamptzType(), datetime(2017, 11, 16, 22, 31, 8, 1, tzinfo=UTC), -1207196810),
        (StringType(), "iceberg", 1210000089),
        (BinaryType(), b"\x00\x01\x02\x03", -188683207),
    ],
)
def test_buckets_are_those_of_the_specifications_hashes(type_: PrimitiveType, value: Any, hashed: int) -> None:
    assert partition_of(type_, "bucket[1000]", value) == (hashed & HASHED) % 1000
    assert partition_of(type_, f"bucket[{HASHED}]", value) == (hashed & HASHED) % HASHED


OF_TYPES: list[tuple[PrimitiveType, st.SearchStrategy[Any], tuple[str, ...]]] = [
    (LongType(), st.integers(-(2**60), 2**60), ("identity", "bucket[7]", "truncate[1000]")),
    (IntegerType(), st.integers(-(2**30), 2**30), ("identity", "bucket[7]", "truncate[3]")),
    (StringType(), st.text(max_size=9), ("identity", "bucket[7]", "truncate[3]")),
    (BinaryType(), st.binary(max_size=9), ("identity", "bucket[7]", "truncate[3]")),
    (
        DecimalType(20, 3),
        st.decimals(-(10**15), 10**15, places=3),
        ("identity", "bucket[7]", "truncate[1000]"),
    ),
    (BooleanType(), st.booleans(), ("identity",)),
    (DateType(), st.dates(), ("identity", "bucket[7]", "year", "month", "day")),
    (
        TimestamptzType(),
        st.datetimes(timezones=st.just(UTC)),
        ("identity", "bucket[7]", "year", "month", "day", "hour"),
    ),
]


@given(st.data())
def test_every_value_is_in_the_partition_that_pyiceberg_computes_for_it_alone(data: st.DataObject) -> None:
    type_, strategy, transforms = data.draw(st.sampled_from(OF_TYPES))
    transform = parse_transform(data.draw(st.sampled_from(transforms)))
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=20))
    compute: Callable[[Any], Any] = transform.transform(type_)
    expected = [
        None if value is None else to_bytes(result_of(str(transform), type_), compute(as_number(value)))
        for value in values
    ]
    assert partition_of_each(type_, str(transform), *values) == expected


def as_number(value: Any) -> Any:
    """PyIceberg's own form of a value."""
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


@pytest.mark.parametrize(("transform", "expected"), [("hour", [-1, 48]), ("day", [-1, 2]), ("year", [-1, 0])])
def test_nanoseconds_without_a_zone_are_transformed_for_the_sort_orders_of_other_engines(
    transform: str, expected: list[int]
) -> None:
    column = replace(binding(LongType()).columns[-1], type=TimestampNanoType())
    batch = pa.record_batch({"at": pa.array([-1, 2 * 86_400 * 10**9], pa.timestamp("ns"))})
    assert TransformedColumn(0, column, transform).of(batch).to_pylist() == expected


@pytest.mark.parametrize("transform", ["identity", "bucket[7]", "truncate[100]"])
def test_decimals_may_begin_anywhere_in_memory(transform: str) -> None:
    """The rows of a row group lie one after the other, and those of a sorted run."""
    values = [Decimal("1.10"), None, Decimal("-2.05")]
    of, batch = rows([DecimalType(9, 2)], *((value,) for value in values))
    group = RowGroupMemory(1 << 20)
    for _ in range(2):
        for part in (batch, batch.slice(1, 1), batch.slice(0, 2)):
            assert group.add(part)
        group.add(pa.record_batch({"other": pa.array([1], pa.int8())}))
    taken = [each for each in group.take() if each.num_columns == batch.num_columns]
    addresses = {each.column(1).buffers()[1].address % 16 for each in taken}
    assert addresses == {0, 8}, "otherwise this test shows nothing"
    found = PartitionValues(of.columns, [PartitionField(VALUE, transform)]).of(taken)
    expected = partition_of_each(DecimalType(9, 2), transform, *values)
    each = [expected, expected[1:2], expected[:2]] * 2
    assert [found.values[index][0] for index in found.indices] == [value for part in each for value in part]


@pytest.mark.parametrize(("type_", "bits"), [(LongType(), 63), (IntegerType(), 31)])
def test_a_number_whose_partition_would_be_below_its_type_is_refused(type_: PrimitiveType, bits: int) -> None:
    smallest = -(2**bits)
    lowest = -(-smallest // 10 * 10)  # the lowest multiple of ten
    assert partition_of_each(type_, "truncate[10]", 2**bits - 1, None, lowest)[2] == to_bytes(type_, lowest)
    assert partition_of(type_, "bucket[10]", smallest) in range(10)
    with pytest.raises(UserError) as raised:
        partition_of_each(type_, "truncate[10]", 0, None, lowest - 1)
    check_text("value_errors", f"a number without a partition, {type_}", str(raised.value))


def test_a_decimal_whose_partition_has_no_place_in_a_manifest_is_refused() -> None:
    """A manifest has as many bytes as the digits of the column need."""
    type_ = DecimalType(4, 2)
    assert partition_of(type_, "truncate[100]", Decimal("-99.99")) == Decimal("-100.00")
    assert partition_of(type_, "truncate[32768]", Decimal("-0.01")) == Decimal("-327.68")
    assert partition_of(type_, "truncate[32769]", None) is None
    with pytest.raises(UserError) as raised:
        partition_of_each(type_, "truncate[32769]", Decimal("0.00"), None, Decimal("-0.01"), Decimal("-0.02"))
    check_text("value_errors", "a decimal without a partition", str(raised.value))


def test_zero_minus_zero_nan_and_null_are_four_partitions() -> None:
    """As for Spark, which compares the values of partitions as Java compares Doubles."""
    found = partition_of_each(DoubleType(), "identity", 0.0, -0.0, None, float("nan"), -float("nan"), 0.0, None)
    assert len(set(found)) == 4
    assert (found[0], found[2], found[3]) == (found[5], found[6], found[4])
    assert partition_of_each(DoubleType(), "identity", -float("nan")) == [found[3]], "whichever NaN a batch begins with"


def test_a_partition_is_all_fields_together() -> None:
    of, batch = rows([StringType(), LongType()], ("a", 1), ("a", 2), ("b", 1), (None, 1), ("a", 1), (None, None))
    fields = [PartitionField(2, "identity"), PartitionField(3, "bucket[1000]")]
    found = PartitionValues(of.columns, fields).of([batch])
    assert len(found.values) == 5
    assert found.indices[0] == found.indices[4]
    assert [found.values[index][0] for index in found.indices] == [b"a", b"a", b"b", None, b"a", None]


def test_many_fields_of_many_values_stay_apart() -> None:
    """Their product has more than 64 bits, and the first field alone tells half of the partitions apart."""
    values = [(first % 128, *[n] * 8) for n in range(128) for first in (n, n + 1)]
    of, batch = rows([LongType()] * 9, *values)
    fields = [PartitionField(2 + place, "identity") for place in range(9)]
    assert len(PartitionValues(of.columns, fields).of([batch]).values) == 256


@pytest.mark.parametrize("field", [PartitionField(VALUE, "void"), PartitionField(NOT_WRITTEN, "bucket[4]")])
def test_void_and_columns_that_are_not_written_are_null(field: PartitionField) -> None:
    of, batch = rows([LongType()], (1,), (2,))
    found = PartitionValues(of.columns, [field, PartitionField(VALUE, "identity")]).of([batch])
    assert {values[0] for values in found.values} == {None}
    assert len(found.values) == 2


def test_an_unpartitioned_table_has_one_partition_without_fields() -> None:
    of, batch = rows([LongType()], (1,), (2,))
    found = PartitionValues(of.columns, []).of([batch])
    assert found.values == ((),)
    assert [*found.indices] == [0, 0]
