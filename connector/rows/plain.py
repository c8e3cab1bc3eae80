"""The plain form of a tuple: a JSON array of its elements."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.rows.schema import ARROW_TYPES
from connector.rows.texts import Texts, UnfitError, of_json
from connector.rows.values import RULES

# What msgspec makes of the usual kind of value in a column. Where values are of other kinds: Raw, and they go as text.
CELL_TYPES: Final[dict[PrimitiveType, Any]] = {
    BooleanType(): bool | None,
    LongType(): int | None,
    DoubleType(): float | None,
    StringType(): str | None,
    BinaryType(): bytes | None,
    DateType(): str | None,
    TimestamptzType(): str | None,
}
_FROM_STRINGS: Final = frozenset({DateType(), TimestamptzType()})


def array_of_cells(cell_type: Any, column_type: PrimitiveType, cells: Sequence[Any]) -> tuple[pa.Array, int]:
    """The column, and how many values were clamped."""
    if cell_type is msgspec.Raw:
        return RULES[column_type](of_json(cells))
    if column_type in _FROM_STRINGS:
        return RULES[column_type](Texts(pa.array(cells, pa.string()), np.ones(len(cells), np.bool_)))
    return pa.array(cells, ARROW_TYPES[column_type]), 0


def is_usual(cell_type: Any, column_type: PrimitiveType, cells: Sequence[msgspec.Raw]) -> bool:
    """Whether all these values are of the kind that the cell type stands for."""
    if cell_type is msgspec.Raw:
        return True
    try:
        typed = msgspec.json.decode(b"[" + b",".join(cells) + b"]", type=list[cell_type])
        array_of_cells(cell_type, column_type, typed)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, pa.ArrowInvalid, UnfitError):
        return False
    return True
