"""The plain form of a tuple: a JSON array of its elements."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.encoding.arrow_schema import arrow_type_of
from connector.encoding.texts import NO_ROWS, Positions, Texts, UnfitError, of_json
from connector.encoding.value_rules import rule

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
}
_FROM_STRINGS: Final = frozenset({DateType(), TimestamptzType()})


def usual_cell_type(column_type: PrimitiveType) -> Any:
    return _CELL_TYPES.get(column_type, msgspec.Raw)


@dataclass(frozen=True)
class PlainCells:
    """A column's values as JSON (`cell_type` Raw), or as msgspec has decoded them."""

    cell_type: Any
    column_type: PrimitiveType
    values: Sequence[Any]

    def array(self) -> tuple[pa.Array, Positions]:
        if self.cell_type is msgspec.Raw:
            return rule(self.column_type)(of_json(self.values))
        if self.column_type in _FROM_STRINGS:
            strings = pa.array(self.values, pa.string())
            return rule(self.column_type)(Texts(strings, np.ones(len(self.values), np.bool_)))
        return pa.array(self.values, arrow_type_of(self.column_type)), NO_ROWS

    def without(self, rows: Positions) -> "PlainCells":
        values = list(self.values)
        for row in rows:
            values[row] = msgspec.Raw() if self.cell_type is msgspec.Raw else None
        return replace(self, values=values)


def is_usual(cell_type: Any, column_type: PrimitiveType, cells: Sequence[msgspec.Raw]) -> bool:
    """Whether all these values can be decoded as the cell type."""
    if cell_type is msgspec.Raw:
        return True
    try:
        typed = msgspec.json.decode(b"[" + b",".join(cells) + b"]", type=list[cell_type])
        with suppress(UnfitError):  # unfit, but of the usual kind
            PlainCells(cell_type, column_type, typed).array()
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError, pa.ArrowInvalid):
        return False
    return True
