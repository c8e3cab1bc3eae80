"""What becomes of a column whose field needs another type: one table, keyed by the two types."""

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
    TimestamptzType,
    TimeType,
    UUIDType,
)


class TypeChange(StrEnum):
    """The ways in which a column gets another type, each costlier than the one before."""

    NONE = "none"
    WIDEN = "in place: Iceberg reads what is there as the wider type"
    CONVERT = "every value is rewritten as the exact equivalent; where one has none, the column is set aside"
    SET_ASIDE = "the column goes on under another name, beside a new one"


# From the type that a column has to the one that is needed. Every other pair is SET_ASIDE.
TYPE_CHANGES: Final[dict[tuple[type[IcebergType], type[PrimitiveType]], TypeChange]] = {
    (IntegerType, LongType): TypeChange.WIDEN,
    (FloatType, DoubleType): TypeChange.WIDEN,
    # Numbers, as long as no digit is lost.
    (IntegerType, DoubleType): TypeChange.CONVERT,
    (LongType, DoubleType): TypeChange.CONVERT,
    (FloatType, LongType): TypeChange.CONVERT,
    (DoubleType, LongType): TypeChange.CONVERT,
    (DecimalType, LongType): TypeChange.CONVERT,
    (DecimalType, DoubleType): TypeChange.CONVERT,
    (IntegerType, DecimalType): TypeChange.CONVERT,
    (LongType, DecimalType): TypeChange.CONVERT,
    (FloatType, DecimalType): TypeChange.CONVERT,
    (DoubleType, DecimalType): TypeChange.CONVERT,
    (DecimalType, DecimalType): TypeChange.CONVERT,  # to another scale
    # The text that would have been written if the column had been one of strings from the beginning.
    (BooleanType, StringType): TypeChange.CONVERT,
    (IntegerType, StringType): TypeChange.CONVERT,
    (LongType, StringType): TypeChange.CONVERT,
    (FloatType, StringType): TypeChange.CONVERT,
    (DoubleType, StringType): TypeChange.CONVERT,
    (DecimalType, StringType): TypeChange.CONVERT,
    (DateType, StringType): TypeChange.CONVERT,
    (TimeType, StringType): TypeChange.CONVERT,
    (TimestampType, StringType): TypeChange.CONVERT,
    (TimestamptzType, StringType): TypeChange.CONVERT,
    (UUIDType, StringType): TypeChange.CONVERT,
    (FixedType, StringType): TypeChange.CONVERT,
    (BinaryType, StringType): TypeChange.CONVERT,
    # And back, by the rules for the values of documents.
    (StringType, BooleanType): TypeChange.CONVERT,
    (StringType, LongType): TypeChange.CONVERT,
    (StringType, DoubleType): TypeChange.CONVERT,
    (StringType, DecimalType): TypeChange.CONVERT,
    (StringType, DateType): TypeChange.CONVERT,
    (StringType, TimestamptzType): TypeChange.CONVERT,
    (StringType, BinaryType): TypeChange.CONVERT,
}


def type_change(column: IcebergType, needed: PrimitiveType) -> TypeChange:
    """How a column can come to have the type that its field needs."""
    if column == needed:
        return TypeChange.NONE
    if isinstance(column, DecimalType) and isinstance(needed, DecimalType) and column.scale == needed.scale:
        # A column with more digits holds all that is needed, and Iceberg never reduces a precision.
        return TypeChange.WIDEN if column.precision < needed.precision else TypeChange.NONE
    return TYPE_CHANGES.get((type(column), type(needed)), TypeChange.SET_ASIDE)


def holds(column: IcebergType, needed: PrimitiveType) -> bool:
    """Whether the field's values can be written to the column as it is; those that do not fit are invalid values."""
    return column == needed or (isinstance(column, IntegerType) and isinstance(needed, LongType))
