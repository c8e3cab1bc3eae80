"""Store lines to record batches: usual lines in a few calls for a whole batch, other lines one by one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pyarrow as pa

from connector.encoding.lines.invalid_cells import InvalidCells, RejectedRow
from connector.encoding.lines.key_digest import hash_keys
from connector.encoding.lines.packed import PackedTupleError
from connector.encoding.lines.row_lines import Lines, LooseRow, Row, binding_of, rows_decoder
from connector.encoding.lines.tuple_columns import (
    CheckedColumn,
    ColumnInput,
    PlainCells,
    TupleColumns,
    convert_cells,
    is_usual,
    usual_cell_type,
)
from connector.encoding.values.arrays import Words
from connector.encoding.values.column_types import arrow_schema
from connector.model.binding import Binding
from connector.model.invalid_values import Tally
from protocol.protocol_error import ProtocolError

_NEWLINE: Final = b"\n"


class _UnusualLinesError(Exception):
    """A line is of another binding, or has two messages."""


# Whatever makes decoding at once fail: line by line, it succeeds or fails with an error that names the line.
_UNUSUAL: Final = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    OverflowError,
    RecursionError,
    pa.ArrowInvalid,
    PackedTupleError,
    _UnusualLinesError,
)


@dataclass(frozen=True)
class Stray:
    """A line that turned out to be of another binding; it is not decoded."""

    binding: int
    line: bytes  # without its newline
    number: int


@dataclass(frozen=True)
class Decoded:
    """The decoded rows, in no particular order, and the treated values."""

    batch: pa.RecordBatch
    treated: Tally
    strays: Sequence[Stray] = ()
    rejected: Sequence[RejectedRow] = ()
    existing_keys: Sequence[Words] = ()  # hashes of the keys of Stores whose rows exist; none in delta updates


class RowDecoder:
    """Decodes one binding's lines, and learns from them in which columns not all values are of the usual kind."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.schema = arrow_schema(binding)
        self._keys = TupleColumns("key", binding.keys)
        self._values = TupleColumns("values", binding.values)
        self._learn([usual_cell_type(column.type) for column in binding.keys + binding.values])
        self._is_new = True

    def decode(self, lines: Lines) -> Decoded:
        """Return the rows of these lines. Raises InvalidValueError if the policy is to stop at an invalid value, and
        ProtocolError if a line is no Store."""
        if self._is_new:
            self._learn_from_line(Lines(lines.content.partition(_NEWLINE)[0] + _NEWLINE, lines.number))
        try:
            return self._decode_at_once(lines)
        except _UNUSUAL:
            return self._decode_one_by_one(lines)

    def _decode_at_once(self, lines: Lines) -> Decoded:
        rows, count = self._decode_rows(lines.content), lines.count
        if len(rows) != count or [row.binding for row in rows].count(self._binding.index) != count:
            raise _UnusualLinesError
        return self._decode(rows, self._cell_types, lines, range(count))

    def _decode_one_by_one(self, lines: Lines) -> Decoded:
        rows, indices, strays = [], [], []
        for index, row in enumerate(lines.rows()):
            number = lines.number(index)
            binding = binding_of(row, number)
            if binding == self._binding.index:
                self._check(row, number)
                rows.append(row)
                indices.append(index)
            else:
                strays.append(Stray(binding, lines.each[index], number))
        try:
            decoded = self._decode(rows, [msgspec.Raw] * len(self._cell_types), lines, indices)
        except PackedTupleError as error:
            raise ProtocolError(f"line {lines.number(indices[error.row])}: {error.reason}") from error
        self._learn_from(rows)
        return replace(decoded, strays=strays)

    def _decode(
        self, rows: Sequence[Row[Any, Any]], cell_types: Sequence[Any], lines: Lines, indices: Sequence[int]
    ) -> Decoded:
        """`indices` are those of the rows among the lines."""
        invalid = InvalidCells(self._binding, lines)
        kept = self._without_deleted(rows)
        batches = [] if kept else [pa.RecordBatch.from_pylist([], self.schema)]
        existing_keys = [] if len(kept) == len(rows) else [*self._hash_deleted(rows, cell_types)]
        for group in _by_form(rows, kept):
            group_rows = [rows[row] for row in group]
            with _name_rows(group):
                columns = self._columns(group_rows, cell_types)
            if self._binding.updates:
                existing_keys += _hash_existing(group_rows, columns[: len(self._keys.columns)])
            line_indices = indices if len(group) == len(rows) else [indices[row] for row in group]
            is_as_sent = all(column.is_as_sent for column in columns)
            rejected = set() if is_as_sent else invalid.treat(columns, line_indices)
            batch = pa.RecordBatch.from_arrays([column.array for column in columns], schema=self.schema)
            if rejected:
                batch = batch.filter(pa.array([row not in rejected for row in range(len(group))]))
            batches.append(batch)
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        return Decoded(batch, invalid.tally, rejected=invalid.rejected, existing_keys=existing_keys)

    def _without_deleted(self, rows: Sequence[Row[Any, Any]]) -> Sequence[int]:
        """Return the indices of the Stores that are rows. A document that is deleted for good has none."""
        if not (self._binding.updates and self._binding.updates.hard_delete):
            return range(len(rows))
        return [index for index, row in enumerate(rows) if not row.delete]

    def _hash_deleted(self, rows: Sequence[Row[Any, Any]], cell_types: Sequence[Any]) -> Iterator[Words]:
        """Yield the hashes of the keys of documents that are deleted for good."""
        for group in _by_form(rows, [index for index, row in enumerate(rows) if row.delete]):
            group_rows = [rows[row] for row in group]
            with _name_rows(group):
                cells = self._keys.read_cells(group_rows, cell_types[: len(self._keys.columns)])
                keys = [convert_cells(column, is_required=False) for column in cells]
            yield from _hash_existing(group_rows, keys)

    def _columns(self, rows: Sequence[Row[Any, Any]], cell_types: Sequence[Any]) -> list[CheckedColumn]:
        return [
            convert_cells(cells, is_required=column.required)
            for column, cells in zip(self._binding.columns, self._cells(rows, cell_types), strict=True)
        ]

    def _cells(self, rows: Sequence[Row[Any, Any]], cell_types: Sequence[Any]) -> Iterator[ColumnInput]:
        keys = len(self._keys.columns)
        yield from self._keys.read_cells(rows, cell_types[:keys])
        yield from self._values.read_cells(rows, cell_types[keys:])
        if self._binding.document:
            yield PlainCells(msgspec.Raw, self._binding.document.type, [row.doc for row in rows])

    def _check(self, row: LooseRow, number: int) -> None:
        try:
            self._keys.check(row)
            self._values.check(row)
        except ValueError as error:
            raise ProtocolError(f"line {number}: the Store {error}") from error

    def _learn_from_line(self, line: Lines) -> None:
        """Learn from the first line. Otherwise a whole batch would often be decoded twice."""
        self._is_new = False
        row, number = line.row(0), line.number(0)
        if binding_of(row, number) == self._binding.index:
            self._check(row, number)
            self._learn_from([row])

    def _learn_from(self, rows: Sequence[LooseRow]) -> None:
        """From now on columns with unusual values are decoded as raw JSON, so that later batches are not tried
        twice."""
        cell_types: list[Any] = []
        for tuple_columns in (self._keys, self._values):
            tuples = [tuple_columns.get_tuple(row) for row in rows if tuple_columns.get_tuple(row) is not None]
            cells_by_column = zip(*tuples, strict=True) if tuples else [()] * len(tuple_columns.columns)
            for column, cells in zip(tuple_columns.columns, cells_by_column, strict=True):
                known = self._cell_types[len(cell_types)]
                cell_types.append(known if is_usual(known, column.type, cells) else msgspec.Raw)
        self._learn(cell_types)

    def _learn(self, cell_types: list[Any]) -> None:
        keys = len(self._keys.columns)
        self._cell_types = cell_types
        self._decode_rows = rows_decoder(cell_types[:keys], cell_types[keys:])


@contextmanager
def _name_rows(group: Sequence[int]) -> Iterator[None]:
    """Make errors name a row by its index among all rows, not by its index in the group."""
    try:
        yield
    except PackedTupleError as error:
        error.row = group[error.row]
        raise


def _by_form(rows: Sequence[Row[Any, Any]], indices: Sequence[int]) -> list[Sequence[int]]:
    """Return the indices, grouped by the forms of key and values of their rows. Nearly always there is one group."""
    forms = [(rows[index].key is None, rows[index].values is None) for index in indices]
    if len(set(forms)) <= 1:
        return [indices] if indices else []
    return [[index for index, other in zip(indices, forms, strict=True) if other == form] for form in set(forms)]


def _hash_existing(rows: Sequence[Row[Any, Any]], keys: Sequence[CheckedColumn]) -> Iterator[Words]:
    """Yield the hashes of the keys whose rows exist, if there are some. `keys` are the key columns of these Stores."""
    exist, arrays = [bool(row.exists) for row in rows], [column.array for column in keys]
    if any(exist):
        yield hash_keys(arrays if all(exist) else [array.filter(pa.array(exist)) for array in arrays])
