"""Parquet's metadata is read and written again without a change."""

from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.encoding.parquet import thrift_structs as thrift
from connector.encoding.parquet.thrift_structs import Struct, read_struct, write_struct
from support.snapshots import check_text

LONGS = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    thrift.TRUE: st.none(),
    thrift.FALSE: st.none(),
    thrift.BYTE: st.binary(min_size=1, max_size=1),
    thrift.I16: st.integers(-(2**15), 2**15 - 1),
    thrift.I32: st.integers(-(2**31), 2**31 - 1),
    thrift.I64: LONGS,
    thrift.DOUBLE: st.binary(min_size=8, max_size=8),
    thrift.BINARY: st.binary(max_size=200),
}


def fields(kind: int) -> st.SearchStrategy[tuple[int, Any]]:
    return st.tuples(st.just(kind), VALUES[kind])


def structs(values: st.SearchStrategy[tuple[int, Any]]) -> st.SearchStrategy[tuple[int, Any]]:
    numbers = st.integers(1, 40) | st.integers(1, 2**15 - 1)
    of_structs = st.dictionaries(numbers, values, max_size=5)
    lists = st.lists(LONGS, max_size=20).map(lambda found: (thrift.LIST, (thrift.I64, found)))
    of_lists = st.lists(of_structs, max_size=3).map(lambda found: (thrift.LIST, (thrift.STRUCT, found)))
    return of_structs.map(lambda found: (thrift.STRUCT, found)) | lists | of_lists


ANY = st.recursive(st.one_of([fields(kind) for kind in VALUES]), structs, max_leaves=10)


@given(st.dictionaries(st.integers(1, 2**15 - 1), ANY, max_size=8))
def test_a_struct_is_read_as_it_was_written(struct: Struct) -> None:
    assert read_struct(BytesIO(write_struct(struct) + b"what follows")) == struct


@pytest.mark.parametrize("columns", [1, 14, 15, 40])
def test_a_footer_of_pyarrow_is_written_as_it_was_read(columns: int) -> None:
    sink = BytesIO()
    table = pa.table({f"column {place}": pa.array([place, None, -1.5]) for place in range(columns)})
    pq.write_table(table, sink, row_group_size=1)
    content = sink.getvalue()
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8]
    assert write_struct(read_struct(BytesIO(footer))) == footer


def test_a_type_that_parquet_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="Thrift") as raised:
        read_struct(BytesIO(bytes([1 << 4 | 11, 0, 0])))
    check_text("value_errors", "metadata of Parquet that Parquet does not have", str(raised.value))
