"""The values of a column as values of another type: exact equivalents, or none at all."""

import base64
from collections.abc import Callable
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import orjson
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
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connector.rows.texts import Texts, UnfitError
from connector.rows.values import RULES

Conversion: TypeAlias = Callable[[pa.Array], pa.Array]


class NoEquivalentError(Exception):
    """Some value of the column has no equivalent of the other type."""


def converted(array: pa.Array, old: IcebergType, new: PrimitiveType) -> pa.Array:
    """Every value's equivalent; nulls stay null."""
    try:
        return CONVERSIONS[type(old), type(new)](array)
    except (KeyError, pa.ArrowInvalid, UnfitError) as error:
        raise NoEquivalentError from error


def _exactly(arrow_type: pa.DataType) -> Conversion:
    """Arrow's own cast refuses what loses a digit."""
    return lambda array: array.cast(arrow_type)


def _double_texts(array: pa.Array) -> pa.Array:
    """As documents have them: the shortest digits that mean the number."""
    doubles = array.cast(pa.float64())
    numbers = doubles.fill_null(0).to_numpy()
    texts = orjson.dumps(np.where(np.isfinite(numbers), numbers, 0.0), option=orjson.OPT_SERIALIZE_NUMPY)
    finite = pa.array(texts[1:-1].decode().split(",") if len(array) else [], pa.string())
    named = np.select([np.isnan(numbers), numbers > 0], ["NaN", "Infinity"], "-Infinity")
    values = pc.if_else(pa.array(np.isfinite(numbers)), finite, pa.array(named, pa.string()))
    return pc.if_else(doubles.is_valid(), values, pa.scalar(None, pa.string()))


def _instant_texts(array: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_local_time_texts(array.cast(pa.timestamp("us"))), "Z", "")


def _local_time_texts(array: pa.Array) -> pa.Array:
    return pc.replace_substring(_without_zeros(array.cast(pa.string())), " ", "T", max_replacements=1)


def _time_texts(array: pa.Array) -> pa.Array:
    return _without_zeros(array.cast(pa.string()))


def _without_zeros(texts: pa.Array) -> pa.Array:
    """Of a fraction of a second, which Arrow writes with all six digits."""
    return pc.replace_substring_regex(texts, r"\.?0+$", "")


def _each(text: Callable[[object], str]) -> Conversion:
    def texts(array: pa.Array) -> pa.Array:
        return pa.array((None if value is None else text(value) for value in array.to_pylist()), pa.string())

    return texts


def _base64(value: object) -> str:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


def _by_rule(needed: PrimitiveType, *, of_strings: bool = True) -> Conversion:
    """As if the text came in a document: a string, or the JSON text of something else. What would be clamped is unfit."""

    def read(array: pa.Array) -> pa.Array:
        values, clamped = RULES[needed](Texts(array, np.full(len(array), of_strings)))
        if len(clamped):
            raise UnfitError(clamped, "would be clamped")
        return values

    return read


def _uuid_text(value: object) -> str:
    return str(value if isinstance(value, UUID) else UUID(bytes=value))  # type: ignore[arg-type]  # Arrow's bytes


_TO_TEXT: Final = _exactly(pa.string())
CONVERSIONS: Final[dict[tuple[type[IcebergType], type[PrimitiveType]], Conversion]] = {
    (IntegerType, DoubleType): _exactly(pa.float64()),
    (LongType, DoubleType): _exactly(pa.float64()),
    (FloatType, LongType): _exactly(pa.int64()),
    (DoubleType, LongType): _exactly(pa.int64()),
    (DecimalType, LongType): _exactly(pa.int64()),
    (BooleanType, StringType): _TO_TEXT,
    (IntegerType, StringType): _TO_TEXT,
    (LongType, StringType): _TO_TEXT,
    (FloatType, StringType): _double_texts,
    (DoubleType, StringType): _double_texts,
    (DecimalType, StringType): _each(lambda value: f"{value:f}"),
    (DateType, StringType): _TO_TEXT,
    (TimeType, StringType): _time_texts,
    (TimestampType, StringType): _local_time_texts,
    (TimestamptzType, StringType): _instant_texts,
    (UUIDType, StringType): _each(_uuid_text),
    (FixedType, StringType): _each(_base64),
    (BinaryType, StringType): _each(_base64),
    (StringType, BooleanType): _by_rule(BooleanType(), of_strings=False),
    (StringType, LongType): _by_rule(LongType()),
    (StringType, DoubleType): _by_rule(DoubleType()),
    (StringType, DateType): _by_rule(DateType()),
    (StringType, TimestamptzType): _by_rule(TimestamptzType()),
    (StringType, BinaryType): _by_rule(BinaryType()),
}
