"""A binding's columns as Arrow has them: what a data file's schema is."""

from typing import Final

import pyarrow as pa
from pyiceberg.schema import make_compatible_name
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.encoding.decimals import arrow_decimal
from connector.model.binding import Binding

FIELD_ID: Final = b"PARQUET:field_id"  # in the metadata of an Arrow field

_ARROW_TYPES: Final[dict[PrimitiveType, pa.DataType]] = {
    BooleanType(): pa.bool_(),
    LongType(): pa.int64(),
    IntegerType(): pa.int32(),  # in a table that we did not make and may not widen
    DoubleType(): pa.float64(),
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    DateType(): pa.date32(),
    TimestamptzType(): pa.timestamp("us", "UTC"),
}


def is_written(column_type: IcebergType) -> bool:
    """Whether values can be written to columns of this type."""
    return isinstance(column_type, DecimalType) or column_type in _ARROW_TYPES


def arrow_type_of(column_type: PrimitiveType) -> pa.DataType:
    return arrow_decimal(column_type) if isinstance(column_type, DecimalType) else _ARROW_TYPES[column_type]


def arrow_schema(binding: Binding) -> pa.Schema:
    """Names are only for people and may collide: readers go by field id, and we by position."""
    return pa.schema(
        pa.field(
            make_compatible_name(column.name),
            arrow_type_of(column.type),
            nullable=not column.required,
            metadata={FIELD_ID: str(column.id)},
        )
        for column in binding.columns
    )
