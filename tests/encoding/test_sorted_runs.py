"""Sorted runs: what comes out of a merge is what went into the runs, in the table's order, partition by partition."""

import io
import math
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from errno import ENOSPC
from functools import cmp_to_key
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.encoding.parquet.encoded_row_groups import write_row_group
from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.runs import run_merging, sorted_runs
from connector.encoding.runs.partition_values import PartitionKey, PartitionValues
from connector.encoding.runs.run_merging import MergeRange, group_ranges, merge, plan_merge
from connector.encoding.runs.sorted_runs import RowArrangement, RunPart, SortedRun, read_encoded, read_part
from connector.encoding.values.column_types import arrow_schema
from connector.model.binding import Arrangement, Binding, PartitionField, SortField
from encoding.store_lines import binding
from support.snapshots import check_text

Row = tuple[Any, ...]
ID, FIRST, SECOND = 1, 2, 3  # field ids

VALUES: list[tuple[PrimitiveType, st.SearchStrategy[Any]]] = [
    (LongType(), st.integers(-3, 3)),
    (StringType(), st.sampled_from(["", "a", "b", "é", "😀", "\uffff", "aa"])),
    (BinaryType(), st.sampled_from([b"", b"\x00", b"\x7f", b"\x80", b"\xff"])),
    (DoubleType(), st.sampled_from([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, -math.nan])),
    (DecimalType(9, 2), st.sampled_from([Decimal("-9.00"), Decimal("0.00"), Decimal("0.50"), Decimal("10.00")])),
    (BooleanType(), st.booleans()),
    (DateType(), st.sampled_from([date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)])),
    (TimestamptzType(), st.datetimes().map(lambda time: time.replace(tzinfo=UTC, fold=0))),
]


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> Iterator[None]:
    """Parts of a few rows, and merges that hold a few parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "PART_SIZE", 64)
        patch.setattr(sorted_runs, "_TAKEN_AT_ONCE", 200)
        patch.setattr(run_merging, "_HELD", 150)
        patch.setattr(run_merging, "_COPIED_AT_ONCE", 100)
        yield


class Runs:
    """Runs in memory, and the rows that come out of them."""

    def __init__(self, of: Binding, arrangement: Arrangement, batches: Sequence[Sequence[Sequence[Row]]]) -> None:
        """`batches` are by run."""
        self.schema = arrow_schema(of)
        self.arrangement = RowArrangement(of.columns, arrangement)
        self._partitions = PartitionValues(of.columns, arrangement.partition)
        self.files: list[io.BytesIO] = []
        self.runs: list[SortedRun] = []
        for first_line, of_run in enumerate(batches):
            self.files.append(io.BytesIO())
            made = [self._batch(rows) for rows in of_run]
            self.runs.append(self.arrangement.write_run(self.files[-1], made, first_line))

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        arrays = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(self.schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def partitions_of(self, rows: Sequence[Row]) -> set[PartitionKey]:
        return set(self._partitions.of([self._batch(rows)]).values)

    def read(self, run: int, part: RunPart) -> pa.RecordBatch:
        return read_part(self.files[run], part, self.schema)

    def plan(self, tasks: int = 1) -> list[MergeRange]:
        return plan_merge(self.runs, self.arrangement.sort_columns, tasks, least_split=300)

    def merged(self, tasks: int = 1) -> list[tuple[PartitionKey, list[Row]]]:
        return [(each.partition, self.rows_of(each)) for each in self.plan(tasks)]

    def rows_of(self, merged: MergeRange) -> list[Row]:
        return [
            tuple(value.replace(tzinfo=UTC) if isinstance(value, datetime) else value for value in row.values())
            for batch in merge(merged, self.arrangement.sort_columns, self.read)
            for row in batch.to_pylist()
        ]


def compare(left: Any, right: Any) -> int:
    """As Java compares: -0.0 before 0.0, and NaN of either sign last."""

    def key(value: Any) -> Any:
        if isinstance(value, float):
            return (True, 0.0, 1.0) if math.isnan(value) else (False, value, math.copysign(1, value))
        return value.encode() if isinstance(value, str) else value

    return bool(key(left) > key(right)) - bool(key(left) < key(right))


def order_of(fields: Sequence[SortField]) -> Callable[[Row], Any]:
    def compare_rows(left: Row, right: Row) -> int:
        for field in fields:
            a, b = left[field.source_id - 1], right[field.source_id - 1]
            if a is None or b is None:
                nulls = (a is None) - (b is None)
                result = -nulls if field.nulls_first else nulls
            else:
                result = -compare(a, b) if field.is_descending else compare(a, b)
            if result:
                return result
        return 0

    return cmp_to_key(compare_rows)


@st.composite
def tables(draw: st.DrawFn, *, is_sorted: bool = True) -> tuple[Runs, list[Row], list[SortField]]:
    (first, firsts), (second, seconds) = draw(st.sampled_from(VALUES)), draw(st.sampled_from(VALUES))
    counts = draw(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), min_size=1, max_size=5))
    values = st.tuples(st.none() | firsts, st.none() | seconds)
    rows = [(n, *draw(values)) for n in range(sum(map(sum, counts)))]
    ids = draw(st.lists(st.sampled_from([FIRST, SECOND, ID]), unique=True, min_size=1, max_size=3)) if is_sorted else []
    fields = [SortField(source, "identity", draw(st.booleans()), draw(st.booleans())) for source in ids]
    partition = draw(st.sampled_from([(), (PartitionField(ID, "bucket[3]"),), (PartitionField(FIRST, "identity"),)]))
    remaining = iter(rows)
    batches = [[[next(remaining) for _ in range(count)] for count in of_run] for of_run in counts]
    return Runs(binding(first, second), Arrangement(1, partition, 1, tuple(fields)), batches), rows, fields


@pytest.mark.long
@settings(max_examples=150)
@given(tables(), st.integers(1, 4))
def test_merged_rows_are_all_rows_in_the_order_that_python_sorts_them_in(
    table: tuple[Runs, list[Row], list[SortField]], tasks: int
) -> None:
    runs, rows, fields = table
    merged = runs.merged(tasks)
    assert sorted(map(repr, (row for _, found in merged for row in found))) == sorted(map(repr, rows))
    by_partition: dict[PartitionKey, list[Row]] = {}
    for partition, found in merged:
        by_partition.setdefault(partition, []).extend(found)
    order = order_of(fields)
    for partition, found in by_partition.items():
        assert runs.partitions_of(found) == {partition}
        keys = [tuple(repr(row[field.source_id - 1]) for field in fields) for row in found]
        assert keys == [tuple(repr(row[field.source_id - 1]) for field in fields) for row in sorted(found, key=order)]


@settings(max_examples=50)
@given(tables(is_sorted=False), st.integers(1, 4))
def test_without_a_sort_order_rows_stay_in_the_order_of_the_input(
    table: tuple[Runs, list[Row], list[SortField]], tasks: int
) -> None:
    runs, rows, _ = table
    runs.runs.reverse()  # tasks report their runs in any order
    runs.files.reverse()
    by_partition: dict[PartitionKey, list[int]] = {}
    for partition, found in runs.merged(tasks):
        by_partition.setdefault(partition, []).extend(row[0] for row in found)
    assert sorted(number for numbers in by_partition.values() for number in numbers) == [row[0] for row in rows]
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())


def one_long(*runs: Sequence[int | None], partition: str = "", of: Binding | None = None, **sort: bool) -> Runs:
    """Runs of rows with these values, sorted by them."""
    numbers = iter(range(10**6))
    fields = (SortField(FIRST, "identity", **sort),) if sort else ()
    spec = (PartitionField(FIRST, partition),) if partition else ()
    batches = [[[(next(numbers), value) for value in values]] for values in runs]
    return Runs(of or binding(LongType()), Arrangement(1, spec, 1, fields), batches)


@pytest.mark.parametrize(
    ("is_descending", "nulls_first", "expected"),
    [
        (False, True, [None, None, 1, 2, 3]),
        (False, False, [1, 2, 3, None, None]),
        (True, True, [None, None, 3, 2, 1]),
        (True, False, [3, 2, 1, None, None]),
    ],
)
def test_nulls_are_where_the_order_has_them(is_descending: bool, nulls_first: bool, expected: list[int | None]) -> None:
    runs = one_long([2, None], [3, 1], [None], is_descending=is_descending, nulls_first=nulls_first)
    [(_, rows)] = runs.merged()
    assert [row[1] for row in rows] == expected


def test_a_small_partition_is_not_split_and_a_large_one_is() -> None:
    runs = one_long(range(100), range(50, 150), is_descending=False, nulls_first=True)
    small = one_long([1, 2], [1], is_descending=False, nulls_first=True)
    assert len(small.plan(tasks=4)) == 1
    assert len(runs.plan(tasks=4)) == 4
    assert [row[1] for _, rows in runs.merged(4) for row in rows] == sorted([*range(100), *range(50, 150)])


def test_rows_that_are_all_equal_are_merged_once_however_many_tasks_there_are() -> None:
    runs = one_long([7] * 100, [7] * 100, is_descending=False, nulls_first=True)
    assert sum(len(rows) for _, rows in runs.merged(4)) == 200


def test_every_partition_is_one_range_of_all_runs() -> None:
    runs = one_long(range(10), range(5, 15), partition="identity")
    assert len(runs.plan(tasks=4)) == 15


def test_no_part_has_rows_of_two_partitions() -> None:
    runs = one_long([n % 5 for n in range(100)], partition="identity")
    [run] = runs.runs
    held = [set(runs.read(0, part).column(1).to_pylist()) for part in run.parts]
    assert [values for values, _ in groupby(held)] == [{n} for n in range(5)]


def test_groups_have_every_range_once() -> None:
    ranges = one_long(range(40), partition="identity").plan()
    groups = list(group_ranges(ranges, 2))
    assert [merged for group in groups for merged in group] == ranges


def test_a_merge_holds_few_rows_of_runs_that_follow_each_other() -> None:
    """However many rows there are: a part is read when the rows before it are out."""
    runs = one_long(*(range(n * 100, n * 100 + 100) for n in range(10)), is_descending=False, nulls_first=True)
    read, most = 0, 0

    def count(run: int, part: RunPart) -> pa.RecordBatch:
        nonlocal read
        rows = runs.read(run, part)
        read += rows.num_rows
        return rows

    [merged] = runs.plan()
    written = 0
    for batch in merge(merged, runs.arrangement.sort_columns, count):
        most = max(most, read - written)
        written += batch.num_rows
    assert (read, written) == (1000, 1000)
    assert most < 50


def test_a_run_that_was_cut_is_an_error() -> None:
    runs = one_long([1, 2, 3], is_descending=False, nulls_first=True)
    runs.files[0].truncate(runs.runs[0].parts[-1].offset + 3)
    with pytest.raises(OSError, match="a sorted run") as raised:
        runs.merged()
    check_text(
        "spark_errors", "a sorted run that was cut", str(raised.value), {str(len(runs.files[0].getvalue())): "N"}
    )


def test_a_run_that_was_cut_in_an_encoded_part_is_an_error() -> None:
    schema = pa.schema([("id", pa.int64())])
    sink = io.BytesIO()
    group = write_row_group(sink, pa.table([[1, 2, 3]], schema=schema), FileOptions(1, "none", None))
    part = RunPart((), group.offset, group.size, 24, group)
    assert b"".join(read_encoded(sink, part)) == sink.getvalue()[group.offset : group.offset + group.size]
    sink.truncate(group.offset + 5)
    with pytest.raises(OSError, match=f"a sorted run ends after {group.offset + 5} bytes"):
        list(read_encoded(sink, part))


def test_transformed_sort_columns_sort_by_the_transforms_values() -> None:
    of = binding(TimestamptzType())
    times = [datetime(2024, 1, day, hour, tzinfo=UTC) for day, hour in ((2, 1), (1, 5), (2, 0), (1, 9), (1, 1))]
    fields = (SortField(FIRST, "day", False, True), SortField(ID, "identity", True, False))
    runs = Runs(of, Arrangement(0, (), 1, fields), [[[(n, time)] for n, time in enumerate(times)]])
    [(_, rows)] = runs.merged()
    assert [row[0] for row in rows] == [4, 3, 1, 2, 0]


def test_a_file_that_takes_a_part_of_the_bytes_gets_the_others_too() -> None:
    """As a file without a buffer does, before the disk is full or after 2 GiB."""

    class Short(io.BytesIO):
        def write(self, content: Any) -> int:
            return super().write(content[:100])

    rows = pa.record_batch([pa.array(range(50), pa.int64())], names=["id"])
    sink = Short()
    [*parts] = RowArrangement([], Arrangement()).write_run(sink, [rows], 0).parts
    assert pa.Table.from_batches([read_part(sink, part, rows.schema) for part in parts]) == pa.table(rows)


def test_a_disk_that_takes_no_encoded_row_group_says_so() -> None:
    class Full(io.BytesIO):
        def write(self, content: Any) -> int:
            if self.tell():
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            return super().write(content)  # the first four bytes

    with pytest.raises(OSError, match="No space left"):
        write_row_group(Full(), pa.table({"id": [1]}), FileOptions.of_table({}))
