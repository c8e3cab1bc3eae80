"""Files that cannot have a searched key are left out, by the bounds that manifests have of the key columns."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
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
    TimestamptzNanoType,
    TimestamptzType,
)

from connector.encoding.parquet.statistics import describe_file, find_nan
from connector.encoding.search import key_bounds
from connector.encoding.search.key_bounds import ColumnBounds, KeyValues, find_files, make_bounds_table
from connector.encoding.search.row_search import SearchedFile
from connector.encoding.values.column_types import arrow_type_of
from connector.model.binding import Column
from encoding.searched_tables import SearchedTable

# Values in their order, so that some files have a range of them. Long texts and bytes are cut in bounds.
TEXTS = ["", "a", "b" * 16, "b" * 17, "b" * 16 + "c", "b" * 40, "é", "\ud7ff" * 20, "\uffff" * 20, "\U0010ffff" * 20]
VALUES: dict[PrimitiveType, list[str]] = {
    LongType(): [str(number) for number in (-(2**63), -300, -1, 0, 1, 255, 256, 2**40, 2**63 - 1)],
    IntegerType(): ["-300", "-1", "0", "1", "255", "256", "2147483647"],
    StringType(): [json.dumps(text) for text in TEXTS],
    DoubleType(): ["-7.5", "-0.0", "0", "7", '"Infinity"', '"NaN"'],
    BooleanType(): ["false", "true"],
    DateType(): ['"0001-01-01"', '"1969-12-31"', '"2020-01-01"', '"+12020-01-01"'],
    TimestamptzType(): ['"0001-01-01T00:00:00Z"', '"1969-12-31T00:00:00Z"', '"2020-01-01T00:00:00.000001Z"'],
    TimestamptzNanoType(): ['"1969-12-31T00:00:00Z"', '"2020-01-01T00:00:00.000000001Z"', '"2020-01-02T00:00:00Z"'],
    DecimalType(38, 2): ["-12345678901234567890", "-1.28", "-1.27", "0", "1.27", "1.28", "327.68", "1e20"],
    BinaryType(): ['""', '"YQ=="', f'"{"YWFh" * 5}YQ=="', f'"{"YWFh" * 6}"', f'"{"////" * 5}"', f'"{"////" * 6}"'],
}
SHAPES = [[each] for each in VALUES] + [
    [LongType(), StringType()],
    [BooleanType(), TimestamptzType(), LongType()],
    [StringType(), DoubleType()],
    [DecimalType(38, 2), BinaryType()],
]


def describe(table: SearchedTable, path: str) -> dict[int, ColumnBounds]:
    """The bounds that the manifest of a file has."""
    metadata, rows = pq.read_metadata(path[7:]), pq.read_table(path[7:])
    columns = [
        Column(name, name, 10 + place, each, required=False)
        for place, (name, each) in enumerate(zip(table.key_names, table.types, strict=True))
    ]
    described = describe_file(path, 1, metadata, columns, [*find_nan(rows.select(table.key_names))])
    return {each.field_id: (each.lower, each.upper, each.nulls) for each in described.columns}


def weaken(random: Random, bounds: ColumnBounds) -> ColumnBounds:
    """What another engine may say of the column instead."""
    lower, upper, nulls = bounds
    match random.randrange(8):
        case 0:
            return None, upper, nulls
        case 1:
            return lower, None, nulls
        case 2:
            return lower, upper, None
        case 3:
            return b"\xff", upper, nulls  # neither UTF-8 nor a number of its size
        case _:
            return bounds


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("types", SHAPES, ids=lambda types: "-".join(map(str, types)))
def test_a_search_finds_the_same_without_the_files_that_are_left_out(
    tmp_path: Path, types: list[PrimitiveType], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(key_bounds, "_TRIED", random.choice([0, 1, 64]))
    monkeypatch.setattr(key_bounds, "_COMPARED", random.choice([0, 1 << 18]))
    table = SearchedTable(tmp_path, types, is_exact=False)

    def some_values(column_type: PrimitiveType) -> list[str]:
        """Some that are beside each other in the order, sometimes with nulls."""
        values = VALUES[column_type]
        begin = random.randrange(len(values))
        return values[begin : begin + random.randrange(1, 4)] + ["null"] * random.randrange(2)

    def some_keys(count: int) -> list[str]:
        values = [some_values(each) for each in types]
        return [f"[{','.join(map(random.choice, values))}]" for _ in range(count)]

    files = [table.write(some_keys(random.randrange(1, 6))) for _ in range(8)]
    described = [describe(table, path) for path in files]
    if seed % 2:
        described = [{number: weaken(random, bounds) for number, bounds in each.items()} for each in described]
    columns = {10 + place: column_type for place, column_type in enumerate(types)}
    for _ in range(5):
        wanted = list({json.dumps(json.loads(key)): key for key in some_keys(random.randrange(1, 6))}.values())
        keys = KeyValues(columns, table.keys(wanted).drop_columns(["key"]))
        may_have = find_files(make_bounds_table(columns, described), keys)
        for path, is_kept in zip(files, may_have.tolist(), strict=True):
            assert is_kept or not table.find([SearchedFile(path, 1)], wanted)


def choose(columns: dict[int, PrimitiveType], bounds: Sequence[dict[int, ColumnBounds]], *keys: Sequence[Any]) -> Any:
    """Which files may have one of these keys."""
    values = [
        pa.array([key[place] for key in keys], arrow_type_of(each)) for place, each in enumerate(columns.values())
    ]
    table = pa.table(values, names=[*map(str, columns)])
    return find_files(make_bounds_table(columns, bounds), KeyValues(columns, table)).tolist()


def between(column_type: PrimitiveType, lower: Any, upper: Any, nulls: int | None = 0) -> ColumnBounds:
    return to_bytes(column_type, lower), to_bytes(column_type, upper), nulls


# Bounds of a file, a key that it may have, and keys that it cannot have.
KEYS_OF_BOUNDS: dict[str, tuple[PrimitiveType, ColumnBounds, Any, list[Any]]] = {
    "long": (LongType(), between(LongType(), -5, 7), 7, [-6, 8, None]),
    "long that was an int": (LongType(), between(IntegerType(), -5, 7), -5, [-6, 8, None]),
    "long with nulls": (LongType(), between(LongType(), -5, 7, nulls=2), None, [-6, 8]),
    "long with unknown nulls": (LongType(), between(LongType(), -5, 7, nulls=None), None, [-6, 8]),
    "int": (IntegerType(), between(IntegerType(), -5, 7), 0, [-6, 8]),
    "text": (StringType(), between(StringType(), "a", "b"), "az", ["Z", "ba", ""]),
    "cut text": (StringType(), between(StringType(), "a" * 16, "a" * 15 + "b"), "a" * 30, ["a" * 15, "b"]),
    "bytes": (BinaryType(), (b"a", b"\xff", 0), b"\xfe\xff", [b"", b"\xff\x00"]),
    "boolean": (BooleanType(), between(BooleanType(), True, True), True, [False]),
    "date": (DateType(), between(DateType(), -1, 2), -1, [-2, 3]),
    "time": (TimestamptzType(), between(TimestamptzType(), -1, 2), 2, [-2, 3]),
    "nanoseconds": (TimestamptzNanoType(), between(TimestamptzNanoType(), -1, 2), 2, [-2, 3]),
    "decimal": (
        DecimalType(20, 2), between(DecimalType(9, 2), Decimal("-1.29"), Decimal("1.28")),
        Decimal("-1.28"), [Decimal("-1.30"), Decimal("1.29"), Decimal("123456789012345678.00")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", KEYS_OF_BOUNDS)
def test_a_file_is_left_out_if_its_bounds_exclude_all_keys(case: str) -> None:
    column_type, bounds, inside, outside = KEYS_OF_BOUNDS[case]
    files = [{1: bounds}]
    assert choose({1: column_type}, files, [inside]) == [True]
    assert choose({1: column_type}, files, *([key] for key in [*outside, inside])) == [True]
    assert choose({1: column_type}, files, *([key] for key in outside)) == [False]


@pytest.mark.parametrize(
    ("column_type", "bounds"),
    [
        (LongType(), {}),
        (LongType(), {1: (None, None, 0)}),
        (LongType(), {1: (to_bytes(LongType(), 5), None, 0)}),
        (LongType(), {1: (None, to_bytes(LongType(), 5), 0)}),
        (LongType(), {1: (b"", b"123", 0)}),
        (LongType(), {1: between(LongType(), 9, 5)}),
        (IntegerType(), {1: between(LongType(), 5, 9)}),
        (StringType(), {1: (b"a\xc3", b"b", 0)}),
        (DoubleType(), {1: between(DoubleType(), 5.0, 9.0)}),
        (TimestamptzType(), {1: between(DateType(), 5, 9)}),
        (DecimalType(4, 2), {1: between(DecimalType(9, 2), Decimal("5.00"), Decimal("12345.67"))}),
    ],
    ids=str,
)
def test_a_file_is_searched_if_its_bounds_are_unknown(column_type: PrimitiveType, bounds: Any) -> None:
    keys: dict[PrimitiveType, Any] = {StringType(): "c", DecimalType(4, 2): Decimal(1)}
    for key in keys.get(column_type, 1), None:
        assert choose({1: column_type}, [bounds, bounds], [key]) == [True, True]


def test_no_file_is_searched_for_no_keys() -> None:
    assert choose({1: LongType()}, [{}, {1: between(LongType(), 1, 2)}]) == [False, False]


@pytest.mark.parametrize(("tried", "expected"), [(64, [True, False, False]), (1, [True, True, True])])
def test_one_key_has_to_be_within_the_bounds_of_all_columns(
    tried: int, expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recent numbers of one tenant are old ones of another. Of many keys within the bounds, one will be the file's."""
    monkeypatch.setattr(key_bounds, "_TRIED", tried)
    columns: dict[int, PrimitiveType] = {1: StringType(), 2: LongType()}
    files = [
        {1: between(StringType(), tenant, tenant), 2: between(LongType(), *numbers)}
        for tenant, *numbers in (("a", 5, 9), ("a", 1, 4), ("b", 5, 9))
    ]
    assert choose(columns, files, ["a", 7], ["a", 8], ["b", 1], ["b", 2]) == expected


def test_a_null_within_a_key_is_compared_with_the_bounds_of_the_other_columns() -> None:
    columns: dict[int, PrimitiveType] = {1: StringType(), 2: LongType()}
    files = [
        {1: between(StringType(), "a", "c", nulls), 2: between(LongType(), *numbers)}
        for nulls, *numbers in ((0, 1, 4), (1, 1, 4), (1, 5, 9), (None, 1, 4))
    ]
    assert choose(columns, files, [None, 3], ["d", 7]) == [False, True, False, True]


def test_many_keys_are_compared_by_the_lowest_and_the_highest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_bounds, "_COMPARED", 2)
    files = [{1: between(LongType(), lowest, lowest + 1, nulls)} for lowest, nulls in ((0, 0), (4, 0), (8, 0), (8, 1))]
    assert choose({1: LongType()}, files, [3], [5], [7]) == [False, True, False, False]
    assert choose({1: LongType()}, files, [3], [None], [3]) == [False, False, False, True]
    assert choose({1: LongType()}, [*files, {}], [None], [None], [None]) == [False, False, False, True, True]


def test_the_bounds_of_a_file_take_little_memory() -> None:
    """A table may have 100,000 files, and a session hundreds of tables."""
    bounds = [{1: between(LongType(), number, number)} for number in range(1000)]
    assert make_bounds_table({1: LongType()}, bounds).nbytes < 17 * len(bounds)
