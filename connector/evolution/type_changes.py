"""How a column changes whose field needs another type: one table, keyed by the two types."""

from enum import StrEnum
from typing import Final

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


class TypeChange(StrEnum):
    """The ways in which a column gets another type. Each costs more than the one before."""

    NONE = "none"
    WIDEN = "in place: Iceberg reads the old values as the wider type"
    CONVERT = "every value is rewritten as its equivalent; if one has none, the column is set aside"
    SET_ASIDE = "the column is renamed, and a new one is added"


# A column keeps its unit: Iceberg cannot change it, and a setting that is turned on or off means new columns.
_INSTANTS: Final = {TimestamptzType(), TimestamptzNanoType()}

_NUMBERS: Final = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
# Numbers, as long as no digit is lost, and the text that the connector writes to a column of strings.
_CONVERTED: Final[dict[type[PrimitiveType], tuple[type[PrimitiveType], ...]]] = {
    LongType: (FloatType, DoubleType, DecimalType),
    DoubleType: (IntegerType, LongType, DecimalType),
    DecimalType: _NUMBERS,  # of another scale
    StringType: (
        *_NUMBERS,
        BooleanType,
        DateType,
        TimeType,
        TimestampType,
        TimestamptzType,
        UUIDType,
        FixedType,
        BinaryType,
    ),
}
# The connector writes strings of documents to columns of these types, which keep the value, and not the text.
_WITHOUT_TEXTS: Final = (*_NUMBERS, TimestampType, TimestamptzType)
# By the rules for the values of documents, which drop digits that the new type does not hold.
_CONVERTED_FROM_TEXT: Final = (
    BooleanType,
    LongType,
    DoubleType,
    DecimalType,
    DateType,
    TimestamptzType,
    TimestamptzNanoType,
    BinaryType,
)
# From the type that a column has to the one that is needed. Every other pair is SET_ASIDE.
TYPE_CHANGES: Final[dict[tuple[type[IcebergType], type[PrimitiveType]], TypeChange]] = {
    (IntegerType, LongType): TypeChange.WIDEN,
    (FloatType, DoubleType): TypeChange.WIDEN,
    **{(old, new): TypeChange.CONVERT for new, olds in _CONVERTED.items() for old in olds},
    **{(StringType, new): TypeChange.CONVERT for new in _CONVERTED_FROM_TEXT},
}


def find_type_change(column: IcebergType, needed: PrimitiveType) -> TypeChange:
    """Find how a column can get the type that its field needs."""
    if column == needed or {column, needed} == _INSTANTS:
        return TypeChange.NONE
    if isinstance(column, DecimalType) and isinstance(needed, DecimalType) and column.scale == needed.scale:
        # A column with more digits can hold all values, and Iceberg never reduces a precision.
        return TypeChange.WIDEN if column.precision < needed.precision else TypeChange.NONE
    return TYPE_CHANGES.get((type(column), type(needed)), TypeChange.SET_ASIDE)


def loses_texts(column: IcebergType, needed: PrimitiveType) -> bool:
    """Whether a conversion gives strings of documents another text than they had: "007" is 7 in the column."""
    return isinstance(column, _WITHOUT_TEXTS) and needed == StringType()


def name_lost_text(column: IcebergType) -> tuple[str, str]:
    """Return a text that a column of this type does not keep, and its value there."""
    if isinstance(column, _NUMBERS):
        return "007", "7"
    return "2024-01-02T03:04:05+01:00", "2024-01-02T02:04:05Z"


def can_hold(column: IcebergType, needed: PrimitiveType) -> bool:
    """Whether the field's values can be written to the column without a change. Values that do not fit are invalid."""
    return column == needed or (isinstance(column, IntegerType) and isinstance(needed, LongType))
