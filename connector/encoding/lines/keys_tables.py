"""Keys tables: keys as the values that key columns have, and as JSON arrays.

A keys table has one column for each part of the key, named by the column's field id, and the column `key`. Values are
converted by the functions that write the columns. So a row of a key always has the key's values.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg.types import PrimitiveType

from connector.encoding.lines.tuple_columns import ColumnInput, PlainCells, convert_cells
from connector.encoding.values.arrays import Numbers
from connector.encoding.values.column_types import arrow_type_of
from connector.encoding.values.gathered_rows import GatheredRows
from connector.model.binding import KeyPart
from protocol.json_parts import parse_items

KEY: Final = "key"  # the column with the whole key, a JSON array

Items: TypeAlias = Sequence[msgspec.Raw]

_decode_arrays = msgspec.json.Decoder(list[list[msgspec.Raw]]).decode


def part_name(part: KeyPart) -> str:
    """Return the name of a part's column in keys tables."""
    return str(part.column_id)


def make_keys_table(parts: Sequence[KeyPart], cells: Iterable[ColumnInput], texts: pa.Array) -> pa.Table:
    """Return the keys table of keys with these values and texts. A key that does not fit its columns is left out: no
    row can have it."""
    # A null is no misfit here: a search for it finds what there is.
    checked = [convert_cells(column, is_required=False) for column in cells]
    names = [*map(part_name, parts), KEY]
    table = pa.table([*(column.array for column in checked), texts], names=names)
    invalid = sorted(set[int]().union(*(column.invalid for column in checked)))
    if invalid:
        keeps = np.ones(table.num_rows, np.bool_)
        keeps[invalid] = False
        table = table.filter(pa.array(keeps))
    # Only now: the text of a key that was left out may not be UTF-8.
    return table.set_column(len(parts), KEY, table[KEY].cast(pa.string())).combine_chunks()


def plain_cells(items: Sequence[Items], types: Sequence[PrimitiveType]) -> Iterator[ColumnInput]:
    """Yield the values of each part. `items` has the parts of each key as JSON."""
    for column_type, values in zip(types, zip(*items, strict=True), strict=True):
        yield PlainCells(msgspec.Raw, column_type, values)


def keys_of_texts(texts: pa.Array, parts: Sequence[KeyPart], types: Sequence[PrimitiveType]) -> pa.Table:
    """Return the keys table of these JSON arrays, for key columns of these types."""
    if not len(texts):
        return empty_keys_table(parts, types)
    return make_keys_table(parts, plain_cells(_parse_arrays(texts.to_pylist()), types), texts)


def empty_keys_table(parts: Sequence[KeyPart], types: Sequence[PrimitiveType]) -> pa.Table:
    """Return the keys table without keys."""
    names = [*map(part_name, parts), KEY]
    return pa.schema(list(zip(names, [*map(arrow_type_of, types), pa.string()], strict=True))).empty_table()


def _parse_arrays(texts: Sequence[str]) -> Sequence[Items]:
    try:
        return _decode_arrays(f"[{','.join(texts)}]")
    except msgspec.DecodeError:  # a key with half of a surrogate pair
        return [[msgspec.Raw(item) for item in parse_items(text.encode())] for text in texts]


def take_keys(keys: pa.Table, indices: Numbers) -> pa.Table:
    """Return the rows at these indices of a keys table, or of some of its columns, each column in one chunk.

    Arrow's function first copies all rows of a table with several chunks, as that of a large transaction is.
    """
    chunks = keys.to_batches()
    if len(chunks) < 2:
        return keys.combine_chunks().take(pa.array(indices))
    return pa.Table.from_batches([GatheredRows(chunks).take(indices)])


def write_table(sink: str | pa.NativeFile, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
    """Write a table as an Arrow file, to a path of the local disk or to an open file."""
    with pa.ipc.new_file(sink, schema) as file:
        for part in parts:
            file.write_table(part)


def read_table(source: str | bytes) -> pa.Table:
    """Return a table from a path of the local disk, which is mapped into memory, or from the content of such a file."""
    if isinstance(source, bytes):
        return pa.ipc.open_file(source).read_all()
    # The table keeps the mapping, also after the file is closed.
    with pa.memory_map(source) as file:
        return pa.ipc.open_file(file).read_all()
