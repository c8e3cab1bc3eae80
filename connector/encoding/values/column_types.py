"""Columns: Arrow's type for each of Iceberg's, the rule by which a text becomes a value of that type, and the ids by
which files name their columns."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import make_compatible_name
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

from connector.encoding.values.arrays import NO_ROWS, Positions
from connector.encoding.values.decimals import NUMBER, arrow_decimal, decimals
from connector.encoding.values.temporal import NANOSECONDS, dates, instants, nanosecond_instants
from connector.encoding.values.texts import InvalidCellsError, Parser, Texts, find_valid
from connector.model.binding import Binding

# From texts to the column, and the rows whose values were clamped.
Rule: TypeAlias = Callable[[Texts], tuple[pa.Array, Positions]]

FIELD_ID: Final = b"PARQUET:field_id"  # in the metadata of an Arrow field
# Arrow's types for one type of Iceberg: a file says which of them its writer had.
LIST_TYPES: Final = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
NO_ID: Final = -1

_ARROW_TYPES: Final[dict[PrimitiveType, pa.DataType]] = {
    BooleanType(): pa.bool_(),
    LongType(): pa.int64(),
    IntegerType(): pa.int32(),  # in a table that we did not make and may not widen
    DoubleType(): pa.float64(),
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    DateType(): pa.date32(),
    TimestamptzType(): pa.timestamp("us", "UTC"),
    TimestamptzNanoType(): NANOSECONDS,
}

_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_decode_base64 = msgspec.json.Decoder(list[bytes]).decode


def arrow_type_of(column_type: PrimitiveType) -> pa.DataType:
    """Return Arrow's type for columns of this type, one that is written."""
    return arrow_decimal(column_type) if isinstance(column_type, DecimalType) else _ARROW_TYPES[column_type]


def arrow_schema(binding: Binding) -> pa.Schema:
    """Return the schema of a binding's data files, in the order of its columns.

    Names are only for people and may collide: readers go by field id, and the connector by position.
    """
    return pa.schema(
        pa.field(
            make_compatible_name(column.name),
            arrow_type_of(column.type),
            nullable=not column.required,
            metadata={FIELD_ID: str(column.id)},
        )
        for column in binding.columns
    )


def column_id(field: pa.Field) -> int:
    """Return a column's field id; NO_ID if the file does not say it."""
    return int((field.metadata or {}).get(FIELD_ID, NO_ID))


def _longs(texts: Texts) -> tuple[pa.Array, Positions]:
    hexadecimal = pc.match_substring(texts.array, "x", ignore_case=True)  # Arrow would read it
    if pc.any(hexadecimal).as_py():
        raise InvalidCellsError(np.flatnonzero(hexadecimal.fill_null(False)), _LONGS.reason)
    return _LONGS.parse(texts.array), NO_ROWS


def _ints(texts: Texts) -> tuple[pa.Array, Positions]:
    longs, clamped = _longs(texts)
    ints = longs.cast(pa.int32(), safe=False)
    outside = np.flatnonzero(pc.not_equal(longs, ints.cast(pa.int64())).fill_null(False))
    if len(outside):
        raise InvalidCellsError(outside, "is not an integer of 32 bits, which is all that its column holds")
    return ints, clamped


def _long(text: str) -> int:
    if not NUMBER.fullmatch(text):
        raise ValueError(text)
    try:
        number = Decimal(text)
    except InvalidOperation as error:  # an exponent of twenty digits
        raise ValueError(text) from error
    # The range is checked first: int(1e999999999) would take all memory.
    if not -(2**63) <= number < 2**63 or number != number.to_integral_value():
        raise ValueError(text)
    return int(number)


def _doubles(texts: Texts) -> tuple[pa.Array, Positions]:
    array = _DOUBLES.parse(texts.array)
    not_finite = np.flatnonzero(~np.isfinite(array.fill_null(0).to_numpy()))
    # Arrow also reads "inf", "nan(1)", and numbers beyond the range of a double.
    invalid = [row for row in not_finite if texts.array[row].as_py() not in _NOT_FINITE]
    if invalid:
        raise InvalidCellsError(np.array(invalid), _DOUBLES.reason)
    # An integer has one zero. msgspec, which decodes the usual cells, reads the integer -0 as 0.0; Arrow reads -0.0.
    is_integer_zero = pc.and_(pc.equal(texts.array, "-0"), ~texts.is_string)
    return pc.if_else(is_integer_zero, 0.0, array), NO_ROWS


def _double(text: str) -> float:
    if text not in _NOT_FINITE and not NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def _booleans(texts: Texts) -> tuple[pa.Array, Positions]:
    true = pc.equal(texts.array, "true")
    fits = pc.or_(true, pc.equal(texts.array, "false")).fill_null(True).to_numpy(zero_copy_only=False)
    others = np.flatnonzero(~fits | (texts.is_string & find_valid(texts.array)))
    if len(others):
        raise InvalidCellsError(others, "is not a boolean")
    return true, NO_ROWS


def _binaries(texts: Texts) -> tuple[pa.Array, Positions]:
    texts.require_strings(_NOT_BASE64)
    strings = texts.array.fill_null("")
    column = pa.ListArray.from_arrays(pa.array([0, len(strings)], pa.int32()), strings)
    json = pc.binary_join(column, '","')[0].as_py()
    try:
        values = _decode_base64(f'["{json}"]')
    except msgspec.DecodeError:
        values = []
    # Backslashes and quotes are not base64, but would have a meaning in the JSON that is decoded here.
    if "\\" in json or len(values) != len(strings):
        values = _binaries_by_value(strings)
    mask = ~find_valid(texts.array) if texts.array.null_count else None
    return pa.array(values, pa.binary(), mask=mask), NO_ROWS


def _binaries_by_value(strings: pa.StringArray) -> list[bytes]:
    values, invalid = [], []
    for row, string in enumerate(strings.to_pylist()):
        try:
            values.append(msgspec.convert(string, bytes))
        except msgspec.ValidationError:
            invalid.append(row)
    if invalid:
        raise InvalidCellsError(np.array(invalid), _NOT_BASE64)
    return values


def _texts(texts: Texts) -> tuple[pa.Array, Positions]:
    return texts.array, NO_ROWS


_NOT_BASE64: Final = "is not base64 (standard alphabet, padded)"
_LONGS: Final = Parser(pa.int64(), _long, "is not an integer of 64 bits")
_DOUBLES: Final = Parser(pa.float64(), _double, "is not a number in the range of a double")

_RULES: Final[dict[PrimitiveType, Rule]] = {
    BooleanType(): _booleans,
    LongType(): _longs,
    IntegerType(): _ints,
    DoubleType(): _doubles,
    StringType(): _texts,
    BinaryType(): _binaries,
    DateType(): dates,
    TimestamptzType(): instants,
    TimestamptzNanoType(): nanosecond_instants,
}


def find_rule(column_type: PrimitiveType) -> Rule:
    """Return the function that turns texts into a column of this type.

    It does not get all values: `PlainCells.array` and `PackedCells.array` read many without it.
    """
    return decimals(column_type) if isinstance(column_type, DecimalType) else _RULES[column_type]
