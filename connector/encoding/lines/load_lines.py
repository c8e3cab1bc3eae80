"""Load lines to keys: which keys the runtime asks for, and the values that their rows have in the key columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson
import pyarrow as pa

from connector.encoding.lines.keys_tables import empty_keys_table, make_keys_table, plain_cells
from connector.encoding.lines.packed import INTEGERS, STRING, Elements, PackedRows, PackedTupleError
from connector.encoding.lines.row_lines import KeyRow, LineDecoder, Lines, LooseKeyRow, binding_of
from connector.encoding.lines.tuple_columns import PackedCells, TupleColumns
from connector.encoding.values.texts import InvalidCellsError
from connector.model.binding import Binding
from protocol.protocol_error import ProtocolError
from protocol.request import Load

_LOADS: Final[LineDecoder[LooseKeyRow]] = LineDecoder(KeyRow, Load)


@dataclass(frozen=True)
class LoadLines:
    """The Loads of one binding, and the indexes of their lines."""

    loads: Sequence[LooseKeyRow]
    indexes: Sequence[int]
    lines: Lines

    def number(self, load: int) -> int:
        """Return the number that the line of a Load has in the input."""
        return self.lines.number(self.indexes[load])


def parse_loads(lines: Lines) -> dict[int, LoadLines]:
    """Return the Loads by the index of their binding. Raises ProtocolError if a line is no Load."""
    loads = _LOADS.of_lines(lines)
    bindings = [load.binding for load in loads]
    if loads and isinstance(bindings[0], int) and bindings.count(bindings[0]) == len(loads):
        return {bindings[0]: LoadLines(loads, range(len(loads)), lines)}
    by_binding: dict[int, tuple[list[LooseKeyRow], list[int]]] = {}
    for index, load in enumerate(loads):
        found, indexes = by_binding.setdefault(binding_of(load, lines.number(index)), ([], []))
        found.append(load)
        indexes.append(index)
    return {binding: LoadLines(*found, lines) for binding, found in by_binding.items()}


def keys_table_of_loads(binding: Binding, lines: LoadLines) -> pa.Table:
    """Return the keys table of a binding's Loads, in no particular order. A key that fits no column is left out.

    Raises ProtocolError if a key has another number of elements than the binding.
    """
    assert binding.updates, "only bindings with standard updates have Loads"
    parts, types = binding.updates.parts, [column.type for column in binding.keys]
    assert [part.column_id for part in parts] == [column.id for column in binding.keys]
    _check(binding, lines)
    tables = []
    if plain := [load.key for load in lines.loads if load.key is not None]:
        texts = pa.array([b"[%b]" % b",".join(items) for items in plain], pa.binary())
        tables.append(make_keys_table(parts, plain_cells(plain, types), texts))
    if packed := [index for index, load in enumerate(lines.loads) if load.key is None]:
        elements = _unpack(lines, packed, len(parts))
        cells = [PackedCells(each, column_type) for each, column_type in zip(elements, types, strict=True)]
        tables.append(make_keys_table(parts, cells, _texts(elements)))
    return pa.concat_tables(tables).combine_chunks() if tables else empty_keys_table(parts, types)


def _check(binding: Binding, lines: LoadLines) -> None:
    keys = [load.key for load in lines.loads]
    if None not in keys and {len(key) for key in keys if key is not None} == {len(binding.keys)}:
        return
    columns = TupleColumns("key", binding.keys)
    for index, load in enumerate(lines.loads):
        try:
            columns.check(load)
        except ValueError as error:
            raise ProtocolError(f"line {lines.number(index)}: the Load {error}") from error


def _unpack(lines: LoadLines, indexes: Sequence[int], count: int) -> list[Elements]:
    try:
        return [*PackedRows([lines.loads[index].key_packed or b"" for index in indexes]).elements(count)]
    except PackedTupleError as error:
        number = lines.number(indexes[error.row])
        raise ProtocolError(f"line {number}: keyPacked: the tuple {error.reason}") from error


def _texts(elements: Sequence[Elements]) -> pa.Array:
    """Return packed keys as JSON arrays."""
    return pa.array([f"[{','.join(items)}]" for items in zip(*map(_json_texts, elements), strict=True)], pa.string())


def _json_texts(elements: Elements) -> list[str]:
    try:
        if elements.present == {STRING}:
            return [orjson.dumps(text).decode() for text in elements.texts().array.to_pylist()]
        if elements.present <= INTEGERS:
            texts: list[str] = elements.texts().array.to_pylist()
            return texts
    except InvalidCellsError:  # a string that is not UTF-8
        pass
    return [elements.json_text(row) for row in range(len(elements.codes))]
