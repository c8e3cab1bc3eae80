"""From tuples to columns: the key and the values of rows, in the plain form (a JSON array) or the packed form.

The values of one column are cells. Values of the column's usual kind are decoded at once. Others go by their text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzNanoType,
    TimestamptzType,
)

from connector.encoding.lines.packed import (
    DOUBLE,
    FALSE,
    INTEGERS,
    NULL,
    TRUE,
    Elements,
    PackedRows,
    PackedTupleError,
)
from connector.encoding.lines.row_lines import KeyRow, LooseKeyRow
from connector.encoding.values.arrays import NO_ROWS, Positions
from connector.encoding.values.column_types import arrow_type_of, find_rule
from connector.encoding.values.texts import InvalidCellsError, Texts, double_texts, find_valid, of_json
from connector.model.binding import Column

# What msgspec decodes the usual values of a column to. Values of other kinds, and columns of other types, for which
# msgspec's numbers would not be exact, are decoded as Raw and go by their text.
_CELL_TYPES: Final[dict[PrimitiveType, Any]] = {
    BooleanType(): bool | None,
    LongType(): int | None,
    IntegerType(): int | None,
    DoubleType(): float | None,
    StringType(): str | None,
    BinaryType(): bytes | None,
    DateType(): str | None,
    TimestamptzType(): str | None,
    TimestamptzNanoType(): str | None,
}
_FROM_STRINGS: Final = {each for each, cell_type in _CELL_TYPES.items() if cell_type == (str | None)} - {StringType()}

_NUMBERS: Final = INTEGERS | {NULL, DOUBLE}
_SIGN: Final = np.uint64(2**63)


class ColumnInput(Protocol):
    """A column's values, in the plain or the packed form."""

    def array(self) -> tuple[pa.Array, Positions]:
        """Return the column, and the rows whose values were clamped. Raises InvalidCellsError if a value is invalid."""

    def without(self, rows: Positions) -> "ColumnInput":
        """Return the same values, with null in these rows."""


MISSING: Final = "is null or missing in the document, and the column is required"


@dataclass(frozen=True)
class CheckedColumn:
    """A column, with null wherever a value is invalid."""

    array: pa.Array
    clamped: Positions
    invalid: Mapping[int, str]  # rows and reasons

    @property
    def is_as_sent(self) -> bool:
        """Whether every value is in the column as it was sent."""
        return not self.invalid and not len(self.clamped)


def convert_cells(cells: ColumnInput, *, is_required: bool) -> CheckedColumn:
    """Return the column, and which values are invalid. Nearly always all values fit, which costs one conversion."""
    invalid: dict[int, str] = {}
    while isinstance(found := _try_array(cells), InvalidCellsError):
        rows = found.rows.tolist()
        assert invalid.keys().isdisjoint(rows), "a null fits"
        invalid |= dict.fromkeys(rows, found.reason)
        cells = cells.without(found.rows)
    array, clamped = found
    if is_required and array.null_count > len(invalid):
        missing = set(np.flatnonzero(~find_valid(array)).tolist()) - invalid.keys()
        invalid |= dict.fromkeys(missing, MISSING)
    return CheckedColumn(array, clamped, invalid)


def _try_array(cells: ColumnInput) -> tuple[pa.Array, Positions] | InvalidCellsError:
    try:
        return cells.array()
    except InvalidCellsError as error:
        return error


def usual_cell_type(column_type: PrimitiveType) -> Any:
    """Return the type to which msgspec decodes a column's plain values; Raw if none is exact."""
    return _CELL_TYPES.get(column_type, msgspec.Raw)


@dataclass(frozen=True)
class PlainCells:
    """A column's values as JSON (`cell_type` Raw), or as msgspec has decoded them."""

    cell_type: Any
    column_type: PrimitiveType
    values: Sequence[Any]

    def array(self) -> tuple[pa.Array, Positions]:
        """Return the column and its clamped rows; see ColumnInput."""
        if self.cell_type is msgspec.Raw:
            return find_rule(self.column_type)(of_json(self.values))
        if self.column_type in _FROM_STRINGS:
            strings = pa.array(self.values, pa.string())
            return find_rule(self.column_type)(Texts(strings, np.ones(len(self.values), np.bool_)))
        return pa.array(self.values, arrow_type_of(self.column_type)), NO_ROWS

    def without(self, rows: Positions) -> "PlainCells":
        """Return the same values, with a missing value in these rows."""
        values = list(self.values)
        for row in rows:
            values[row] = msgspec.Raw() if self.cell_type is msgspec.Raw else None
        return replace(self, values=values)


def is_usual(cell_type: Any, column_type: PrimitiveType, cells: Sequence[msgspec.Raw]) -> bool:
    """Return whether all these values can be decoded as the cell type."""
    if cell_type is msgspec.Raw:
        return True
    try:
        typed = msgspec.json.decode(b"[" + b",".join(cells) + b"]", type=list[cell_type])
        with suppress(InvalidCellsError):  # invalid, but of the usual kind
            PlainCells(cell_type, column_type, typed).array()
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError, pa.ArrowInvalid):
        return False
    return True


@dataclass(frozen=True)
class PackedCells:
    """A column's values as elements of packed tuples."""

    elements: Elements
    column_type: PrimitiveType

    def array(self) -> tuple[pa.Array, Positions]:
        """Return the column and its clamped rows; see ColumnInput."""
        if self.column_type in _OWN_CODES:
            codes, read = _OWN_CODES[self.column_type]
            if self.elements.present <= codes and (array := read(self.elements)) is not None:
                return array, NO_ROWS
        return find_rule(self.column_type)(_format_numbers(self.elements) or self.elements.texts())

    def without(self, rows: Positions) -> "PackedCells":
        """Return the same elements, with null in these rows."""
        return replace(self, elements=self.elements.without(rows))


def _format_numbers(elements: Elements) -> Texts | None:
    """Return the same as `Elements.texts`, but faster; None unless all are numbers of at most 64 bits."""
    doubles = elements.codes == DOUBLE
    if not elements.present <= _NUMBERS:
        return None
    longs = _read_longs(elements.without(np.flatnonzero(doubles)) if DOUBLE in elements.present else elements)
    if longs is None:
        return None
    array = longs.cast(pa.string())
    if DOUBLE in elements.present:
        mask = pa.array(doubles)
        array = pc.replace_with_mask(array, mask, double_texts(_read_doubles(elements).filter(mask)))
    return Texts(array, np.zeros(len(array), np.bool_))


def _read_booleans(elements: Elements) -> pa.Array:
    return _with_nulls(elements.codes == TRUE, elements)


def _read_longs(elements: Elements) -> pa.Array | None:
    magnitudes, negative = elements.integers()
    if (magnitudes >= _SIGN + negative).any():
        return None
    return _with_nulls(np.where(negative, ~magnitudes + np.uint64(1), magnitudes).view(np.int64), elements)


def _read_doubles(elements: Elements) -> pa.Array:
    words = elements.words()
    numbers = np.where(words & _SIGN, words ^ _SIGN, ~words).view(np.float64)
    if not elements.present <= {NULL, DOUBLE}:
        magnitudes, negative = elements.integers()
        integers = magnitudes.astype(np.float64)
        numbers = np.where(elements.codes == DOUBLE, numbers, np.where(negative, -integers, integers))
    return _with_nulls(numbers, elements)


def _with_nulls(values: npt.NDArray[np.generic], elements: Elements) -> pa.Array:
    return pa.array(values, mask=elements.codes == NULL if NULL in elements.present else None)


_Reader: TypeAlias = Callable[[Elements], pa.Array | None]
# By column type, the codes whose elements are read straight from the buffer, and the reader.
_OWN_CODES: Final[dict[PrimitiveType, tuple[frozenset[int], _Reader]]] = {
    BooleanType(): (frozenset({NULL, FALSE, TRUE}), _read_booleans),
    LongType(): (INTEGERS | {NULL}, _read_longs),
    DoubleType(): (_NUMBERS, _read_doubles),
}


@dataclass(frozen=True)
class TupleColumns:
    """The columns of the key or of the values: `name` is the attribute of Row."""

    name: str
    columns: tuple[Column, ...]

    def get_tuple(self, row: KeyRow[Any]) -> Any:
        """Return the row's plain tuple; None if it is packed or absent."""
        return getattr(row, self.name)

    def read_cells(self, rows: Sequence[KeyRow[Any]], cell_types: Sequence[Any]) -> Iterator[ColumnInput]:
        """Yield the cells of each column. All rows have the form of the first one."""
        if self.get_tuple(rows[0]) is None:
            return self._read_packed_cells(rows)
        return self._read_plain_cells(rows, cell_types)

    def check(self, row: LooseKeyRow) -> None:
        """Raise ValueError unless the row has this tuple, with the right number of elements."""
        elements = self.get_tuple(row)
        if elements is None:
            if self._packed_of(row) is None and self.columns:
                raise ValueError(f"has neither {self.name} nor {self.name}Packed")
        elif len(elements) != len(self.columns):
            raise ValueError(f"has {len(elements)} elements in {self.name}, expected {len(self.columns)}")

    def describe_values(self, rows: Sequence[LooseKeyRow]) -> Iterator[list[str]]:
        """Yield the values of each column as JSON, for people. All rows have the form of the first one."""
        if self.get_tuple(rows[0]) is None:
            for elements in self._packed_rows(rows).elements(len(self.columns)):
                yield [elements.json_text(row) for row in range(len(rows))]
        else:
            for values in zip(*map(self.get_tuple, rows), strict=True):
                yield [bytes(value).decode(errors="replace") for value in values]

    @property
    def _packed_of(self) -> Callable[[KeyRow[Any]], bytes | None]:
        return attrgetter(f"{self.name}_packed")

    def _read_plain_cells(self, rows: Sequence[KeyRow[Any]], cell_types: Sequence[Any]) -> Iterator[ColumnInput]:
        values_by_column = zip(*map(attrgetter(self.name), rows), strict=True)
        for column, cell_type, values in zip(self.columns, cell_types, values_by_column, strict=True):
            yield PlainCells(cell_type, column.type, values)

    def _read_packed_cells(self, rows: Sequence[KeyRow[Any]]) -> Iterator[ColumnInput]:
        elements_by_column = self._packed_rows(rows).elements(len(self.columns))
        try:
            # strict=True makes `elements` check that nothing is left over behind the last element.
            for column, elements in zip(self.columns, elements_by_column, strict=True):
                yield PackedCells(elements, column.type)
        except PackedTupleError as error:
            raise PackedTupleError(error.row, f"{self.name}Packed: the tuple {error.reason}") from error

    def _packed_rows(self, rows: Sequence[KeyRow[Any]]) -> PackedRows:
        return PackedRows([content or b"" for content in map(self._packed_of, rows)])
