"""A column's values as their equivalents of another type: of texts by the rules for documents, else exact ones."""

import base64
from collections.abc import Callable
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connector.encoding.values.column_types import arrow_type_of, find_rule
from connector.encoding.values.texts import InvalidCellsError, Texts, double_texts

Conversion: TypeAlias = Callable[[pa.Array, PrimitiveType], pa.Array]
_ToTexts: TypeAlias = Callable[[pa.Array], pa.StringArray]


class NoEquivalentError(Exception):
    """Some value of the column has no equivalent of the other type."""


def convert(array: pa.Array, old: IcebergType, new: PrimitiveType) -> pa.Array:
    """Return the equivalent of every value; nulls stay null. Raises NoEquivalentError if a value has none."""
    try:
        return CONVERSIONS[type(old), type(new)](array, new)
    except (KeyError, pa.ArrowInvalid, InvalidCellsError, UnicodeDecodeError) as error:  # not all engines write UTF-8
        raise NoEquivalentError from error


def _exactly(array: pa.Array, new: PrimitiveType) -> pa.Array:
    """Return values that Arrow casts. It refuses what loses a digit."""
    return array.cast(arrow_type_of(new))


def _plain_texts(array: pa.Array) -> pa.StringArray:
    return array.cast(pa.string())


def _calendar_texts(array: pa.Array) -> pa.StringArray:
    """Return dates, times or timestamps as texts. Instead of a year beyond 32767, Arrow writes that it is out of range,
    in angle brackets."""
    texts = _plain_texts(array)
    if pc.any(pc.starts_with(texts, "<")).as_py():
        raise NoEquivalentError
    return texts


def _double_texts(array: pa.Array) -> pa.StringArray:
    return double_texts(array.cast(pa.float64()))


def _number_texts(array: pa.Array) -> pa.StringArray:
    """Return doubles as texts. Most sources write an integer without a fraction, where a double holds each integer."""
    doubles, texts = array.cast(pa.float64()), _double_texts(array)
    is_exact = pc.and_(pc.less(pc.abs(doubles), 2.0**53), pc.not_equal(texts, "-0.0"))
    return pc.if_else(is_exact, pc.replace_substring_regex(texts, r"\.0$", ""), texts)


def _instant_texts(array: pa.Array) -> pa.StringArray:
    return pc.binary_join_element_wise(_local_time_texts(array.cast(pa.timestamp("us"))), "Z", "")


def _local_time_texts(array: pa.Array) -> pa.StringArray:
    return pc.replace_substring(_time_texts(array), " ", "T", max_replacements=1)


def _time_texts(array: pa.Array) -> pa.StringArray:
    """Return texts of times without trailing zeros: Arrow writes fractions of a second with all six digits."""
    return pc.replace_substring_regex(_calendar_texts(array), r"\.?0+$", "")


def _each(text: Callable[[object], str]) -> _ToTexts:
    def texts(array: pa.Array) -> pa.StringArray:
        return pa.array((None if value is None else text(value) for value in array.to_pylist()), pa.string())

    return texts


def _base64(value: object) -> str:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


def _uuid_text(value: object) -> str:
    return str(value if isinstance(value, UUID) else UUID(bytes=value))  # type: ignore[arg-type]  # Arrow's bytes


_decimal_texts: Final = _each(lambda value: f"{value:f}")


def _text(texts: _ToTexts) -> Conversion:
    return lambda array, _: texts(array)


def _as_if_sent(texts: _ToTexts, *, of_strings: bool = True) -> Conversion:
    """Return a conversion that reads each text as if a document had it: as a string, or else as JSON.

    A value that would be clamped is invalid.
    """

    def read(array: pa.Array, new: PrimitiveType) -> pa.Array:
        values, clamped = find_rule(new)(Texts(texts(array), np.full(len(array), of_strings)))
        if len(clamped):
            raise InvalidCellsError(clamped, "would be clamped")
        return values

    return read


def _doubles_of_decimals(array: pa.Array, new: PrimitiveType) -> pa.Array:
    """Return the doubles whose shortest digits are those of the decimals."""
    doubles = _as_if_sent(_decimal_texts)(array, new)
    back = _as_if_sent(_double_texts)(doubles, DecimalType(array.type.precision, array.type.scale))
    if not back.equals(array):
        raise NoEquivalentError
    return doubles


_SENT: Final = _as_if_sent(_plain_texts)
CONVERSIONS: Final[dict[tuple[type[IcebergType], type[PrimitiveType]], Conversion]] = {
    (IntegerType, DoubleType): _exactly,
    (LongType, DoubleType): _exactly,
    (FloatType, LongType): _exactly,
    (DoubleType, LongType): _exactly,
    (DecimalType, LongType): _exactly,
    (DecimalType, DoubleType): _doubles_of_decimals,
    (IntegerType, DecimalType): _SENT,
    (LongType, DecimalType): _SENT,
    (FloatType, DecimalType): _as_if_sent(_double_texts),
    (DoubleType, DecimalType): _as_if_sent(_double_texts),
    (DecimalType, DecimalType): _as_if_sent(_decimal_texts),
    (BooleanType, StringType): _text(_plain_texts),
    (IntegerType, StringType): _text(_plain_texts),
    (LongType, StringType): _text(_plain_texts),
    (FloatType, StringType): _text(_number_texts),
    (DoubleType, StringType): _text(_number_texts),
    (DecimalType, StringType): _text(_decimal_texts),
    (DateType, StringType): _text(_calendar_texts),
    (TimeType, StringType): _text(_time_texts),
    (TimestampType, StringType): _text(_local_time_texts),
    (TimestamptzType, StringType): _text(_instant_texts),
    (UUIDType, StringType): _text(_each(_uuid_text)),
    (FixedType, StringType): _text(_each(_base64)),
    (BinaryType, StringType): _text(_each(_base64)),
    (StringType, BooleanType): _as_if_sent(_plain_texts, of_strings=False),
    (StringType, LongType): _SENT,
    (StringType, DoubleType): _SENT,
    (StringType, DecimalType): _SENT,
    (StringType, DateType): _SENT,
    (StringType, TimestamptzType): _SENT,
    (StringType, TimestamptzNanoType): _SENT,
    (StringType, BinaryType): _SENT,
}
