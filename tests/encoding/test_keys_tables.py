"""Keys tables: the values that a row of a key has, and how tasks get them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import DateType, DoubleType, LongType, PrimitiveType, StringType, TimestamptzType

from connector.encoding.lines.keys_tables import keys_of_texts, read_table, take_keys, write_table
from connector.model.binding import KeyPart


def table(texts: Sequence[str], *types: PrimitiveType) -> list[tuple[Any, ...]]:
    parts = [KeyPart(10 + place, f"/{place}") for place in range(len(types))]
    rows = keys_of_texts(pa.array(texts, pa.string()), parts, types)
    assert rows.column_names == [*(str(part.column_id) for part in parts), "key"]
    return [tuple(row.values()) for row in rows.to_pylist()]


def test_keys_are_converted_as_columns_are() -> None:
    found = table(['["a",7]', '["b","07"]', '["\\u00e9",7.0]'], StringType(), LongType())

    assert found == [("a", 7, '["a",7]'), ("b", 7, '["b","07"]'), ("é", 7, '["\\u00e9",7.0]')]


@pytest.mark.parametrize("chunks", [[5], [2, 0, 3], [1, 1, 1, 1, 1], [0, 5]])
@pytest.mark.parametrize("places", [[], [3], [4, 0, 2, 2, 4, 1, 3], [0, 1, 2]])
def test_keys_are_taken_from_all_chunks_in_the_order_of_their_places(chunks: list[int], places: list[int]) -> None:
    schema = pa.schema({"1": pa.int64(), "key": pa.string()})
    numbers = iter(range(5))
    parts = [
        pa.Table.from_pylist([{"1": (number := next(numbers)), "key": f"[{number}]"} for _ in range(size)], schema)
        for size in chunks
    ]

    taken = take_keys(pa.concat_tables(parts), np.array(places, np.int32))

    assert taken.schema == schema
    assert taken.to_pylist() == [{"1": place, "key": f"[{place}]"} for place in places]
    assert all(column.num_chunks <= 1 for column in taken.columns)


def test_keys_are_taken_from_any_number_of_chunks() -> None:
    """Rows of many files are a chunk for each file."""
    count = (1 << 16) + 2
    column = pa.chunked_array([pa.array([number]) for number in range(count)])

    taken = take_keys(pa.table({"1": column}), np.array([count - 1, 0, count - 2]))

    assert taken["1"].to_pylist() == [count - 1, 0, count - 2]


@pytest.mark.parametrize(
    ("column_type", "fitting", "invalid"),
    [
        (LongType(), "7", '"x"'),
        (DateType(), '"2020-01-01"', "1"),
        (TimestamptzType(), '"2020-01-01T00:00:00Z"', '"now"'),
        (StringType(), '"a"', '"\\ud800"'),
        (DoubleType(), "1e300", "1e999"),
    ],
)
def test_a_key_that_its_columns_cannot_hold_is_left_out(column_type: PrimitiveType, fitting: str, invalid: str) -> None:
    texts = [f"[1,{each}]" for each in (fitting, invalid, fitting)]

    assert [row[-1] for row in table(texts, LongType(), column_type)] == [texts[0], texts[2]]


def test_a_null_is_looked_for_as_null() -> None:
    assert table(["[null]"], LongType()) == [(None, "[null]")]


def test_a_table_without_keys_has_the_columns() -> None:
    parts = [KeyPart(4, "/a")]
    one = keys_of_texts(pa.array(["[1]"]), parts, [LongType()])

    assert keys_of_texts(pa.array([], pa.string()), parts, [LongType()]).schema.equals(one.schema)


def test_tasks_read_the_same_table_from_a_file_and_from_bytes(tmp_path: Path) -> None:
    written = keys_of_texts(pa.array(["[1]", "[2]"]), [KeyPart(4, "/a")], [LongType()])
    write_table(str(tmp_path / "keys"), written.schema, [written])
    read = read_table(str(tmp_path / "keys"))
    (tmp_path / "keys").unlink()

    assert read.equals(written)
    sink = pa.BufferOutputStream()
    write_table(sink, written.schema, [written])
    assert read_table(sink.getvalue().to_pybytes()).equals(written)
