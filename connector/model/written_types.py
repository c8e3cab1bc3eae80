"""The types of columns that the connector writes."""

from typing import Final

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzNanoType,
    TimestamptzType,
)

WRITTEN_TYPES: Final = frozenset(
    {
        BooleanType(),
        LongType(),
        IntegerType(),  # in a table that we did not make and may not widen
        DoubleType(),
        StringType(),
        BinaryType(),
        DateType(),
        TimestamptzType(),
        TimestamptzNanoType(),
    }
)


def is_written(column_type: IcebergType) -> bool:
    """Return whether values can be written to columns of this type."""
    return isinstance(column_type, DecimalType) or column_type in WRITTEN_TYPES
