"""Store lines to record batches: usual lines in a few calls for all of them, other lines one by one."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from connector.binding import Binding, Column
from connector.errors import InvalidValueError
from connector.rows.halves import Half
from connector.rows.lines import LooseRow, Row, binding_of, loose_row, rows_decoder
from connector.rows.packed import PackedTupleError
from connector.rows.plain import CELL_TYPES, array_of_cells, is_usual
from connector.rows.schema import arrow_schema
from connector.rows.texts import UnfitError, validity
from protocol.errors import ProtocolError

_NEWLINE: Final = b"\n"
_SHOWN: Final = 100  # characters of a value or a key in an error


class _UnusualLinesError(Exception):
    """Some line is another binding's, or two values stand on one line."""


class _UnfitCellError(Exception):
    """A value that fits its column in no way, by the row's place in the batch."""

    def __init__(self, row: int, column: Column, reason: str) -> None:
        super().__init__(row, column, reason)
        self.row, self.column, self.reason = row, column, reason


# Whatever keeps the quick way from an answer: going line by line gives it, or the error that names the line.
_UNUSUAL: Final = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    OverflowError,
    RecursionError,
    pa.ArrowInvalid,
    PackedTupleError,
    _UnusualLinesError,
    _UnfitCellError,
)


@dataclass(frozen=True)
class Stray:
    """A line that is not of the binding that it was taken to be of: not decoded."""

    binding: int
    line: bytes  # without its newline
    number: int


@dataclass(frozen=True)
class Decoded:
    """Rows in no particular order, and how many values of a field were clamped."""

    batch: pa.RecordBatch
    clamped: Mapping[str, int]
    strays: Sequence[Stray] = ()


class RowDecoder:
    """Decodes one binding's lines, and learns from them which columns hold more than the usual kind of value."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.schema = arrow_schema(binding)
        self._keys = Half("key", binding.keys)
        self._values = Half("values", binding.values)
        self._learn([CELL_TYPES[column.type] for column in binding.keys + binding.values])
        self._is_new = True

    def decode(self, lines: bytes, number_of: Callable[[int], int]) -> Decoded:
        """`lines` are whole; `number_of` tells the number of the first (0), the second (1), …, for errors."""
        if self._is_new:
            self._learn_from_line(lines.partition(_NEWLINE)[0], number_of(0))
        try:
            return self._decode_at_once(lines)
        except _UNUSUAL:
            return self._decode_one_by_one(lines, number_of)

    def _decode_at_once(self, lines: bytes) -> Decoded:
        rows = self._decode_rows(lines)
        newlines = np.count_nonzero(np.frombuffer(lines, np.uint8) == ord(_NEWLINE))
        if len(rows) != newlines or [row.binding for row in rows].count(self._binding.index) != newlines:
            raise _UnusualLinesError
        return self._decoded(rows, self._cell_types)

    def _decode_one_by_one(self, lines: bytes, number_of: Callable[[int], int]) -> Decoded:
        rows, numbers, strays = [], [], []
        for place, line in enumerate(lines.removesuffix(_NEWLINE).split(_NEWLINE)):
            number = number_of(place)
            row = loose_row(line, number)
            binding = binding_of(row, number)
            if binding == self._binding.index:
                self._check(row, number)
                rows.append(row)
                numbers.append(number)
            else:
                strays.append(Stray(binding, line, number))
        try:
            decoded = self._decoded(rows, [msgspec.Raw] * len(self._cell_types))
        except PackedTupleError as error:
            raise ProtocolError(f"line {numbers[error.row]}: {error.reason}") from error
        except _UnfitCellError as error:
            raise self._invalid_value(error, rows[error.row], numbers[error.row]) from error
        self._learn_from(rows)
        return Decoded(decoded.batch, decoded.clamped, strays)

    def _decoded(self, rows: Sequence[Row[Any, Any]], cell_types: Sequence[Any]) -> Decoded:
        clamped: Counter[str] = Counter()
        batches = [] if rows else [pa.RecordBatch.from_pylist([], self.schema)]
        for group in _by_form(rows):
            try:
                batches.append(self._batch([rows[row] for row in group], cell_types, clamped))
            except (PackedTupleError, _UnfitCellError) as error:
                error.row = group[error.row]
                raise
        return Decoded(batches[0] if len(batches) == 1 else pa.concat_batches(batches), clamped)

    def _batch(self, rows: Sequence[Row[Any, Any]], cell_types: Sequence[Any], clamped: Counter[str]) -> pa.RecordBatch:
        arrays: list[pa.Array] = []
        try:
            for array, count in self._arrays(rows, cell_types):
                column = self._binding.columns[len(arrays)]
                if column.required and array.null_count:
                    raise UnfitError(int(np.argmin(validity(array))), "is null or missing, and the column is required")
                if count:
                    clamped[column.field] += count
                arrays.append(array)
        except UnfitError as error:
            raise _UnfitCellError(error.row, self._binding.columns[len(arrays)], error.reason) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _arrays(self, rows: Sequence[Row[Any, Any]], cell_types: Sequence[Any]) -> Iterator[tuple[pa.Array, int]]:
        keys = len(self._keys.columns)
        yield from self._keys.arrays(rows, cell_types[:keys])
        yield from self._values.arrays(rows, cell_types[keys:])
        if self._binding.document:
            yield array_of_cells(msgspec.Raw, self._binding.document.type, [row.doc for row in rows])

    def _check(self, row: LooseRow, number: int) -> None:
        try:
            self._keys.check(row)
            self._values.check(row)
        except ValueError as error:
            raise ProtocolError(f"line {number}: the Store {error}") from error

    def _invalid_value(self, error: _UnfitCellError, row: LooseRow, number: int) -> InvalidValueError:
        key = self._keys.json_texts(row)
        texts = [*key, *self._values.json_texts(row), bytes(row.doc).decode(errors="replace") or "null"]
        value = _shortened(texts[self._binding.columns.index(error.column)])
        described_key = _shortened(f"[{','.join(key)}]")
        return InvalidValueError(self._binding.table, error.column.field, described_key, value, error.reason, number)

    def _learn_from_line(self, line: bytes, number: int) -> None:
        """Most of what there is to learn, before a whole batch is decoded in vain."""
        self._is_new = False
        row = loose_row(line, number)
        if binding_of(row, number) == self._binding.index:
            self._check(row, number)
            self._learn_from([row])

    def _learn_from(self, rows: Sequence[LooseRow]) -> None:
        """Columns whose usual type did not do are cut out as text from now on: not every batch is to be tried twice."""
        cell_types: list[Any] = []
        for half in (self._keys, self._values):
            tuples = [half.tuple_of(row) for row in rows if half.tuple_of(row) is not None]
            cells_by_column = zip(*tuples, strict=True) if tuples else [()] * len(half.columns)
            for column, cells in zip(half.columns, cells_by_column, strict=True):
                known = self._cell_types[len(cell_types)]
                cell_types.append(known if is_usual(known, column.type, cells) else msgspec.Raw)
        self._learn(cell_types)

    def _learn(self, cell_types: list[Any]) -> None:
        keys = len(self._keys.columns)
        self._cell_types = cell_types
        self._decode_rows = rows_decoder(cell_types[:keys], cell_types[keys:])


def _by_form(rows: Sequence[Row[Any, Any]]) -> list[Sequence[int]]:
    """The rows' places, by the form of their halves: nearly always all are of one."""
    forms = [(row.key is None, row.values is None) for row in rows]
    if len(set(forms)) <= 1:
        return [range(len(rows))] if rows else []
    return [[row for row, other in enumerate(forms) if other == form] for form in set(forms)]


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
