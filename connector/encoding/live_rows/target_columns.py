"""New files whose rows come from other files of the table: their columns, and how they are written."""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import make_compatible_name
from pyiceberg.types import FloatType, IcebergType, NestedField, PrimitiveType, TimestampType, TimeType

from connector.encoding.parquet.file_options import Destination
from connector.encoding.values.column_types import FIELD_ID, arrow_type_of
from connector.encoding.values.name_mapping import NO_MAPPING, NameMapping
from connector.model.binding import PLAIN, Arrangement, is_written

# Of columns that only other engines' tables have.
_OTHER_ARROW_TYPES: Final[dict[PrimitiveType, pa.DataType]] = {
    FloatType(): pa.float32(),
    TimeType(): pa.time64("us"),
    TimestampType(): pa.timestamp("us"),
}


@dataclass(frozen=True)
class TargetColumn:
    """A column of the new files with the values of its source, which is the column itself unless it is converted."""

    id: int
    name: str
    type: IcebergType
    required: bool
    source_id: int
    source_type: IcebergType
    default: Any = None  # the value of rows whose file does not have the source

    @classmethod
    def of(cls, column: NestedField, source: NestedField) -> "TargetColumn":
        """Return the column with the values of `source`, which has the same id if it is not converted."""
        default = source.initial_default if isinstance(source.field_type, PrimitiveType) else None
        return cls(
            column.field_id,
            column.name,
            column.field_type,
            column.required,
            source.field_id,
            source.field_type,
            default,
        )

    @property
    def is_converted(self) -> bool:
        """Whether its values are those of another column, converted."""
        return self.id != self.source_id

    def make_defaults(self, rows: int, arrow_type: pa.DataType) -> pa.Array:
        """Return the values of so many rows whose file does not have the source."""
        if self.default is None:
            return pa.nulls(rows, arrow_type)
        return pa.repeat(pa.scalar(self.default, arrow_type), rows)


@dataclass(frozen=True)
class TargetFiles:
    """How the new files of one table are written, and where to."""

    columns: tuple[TargetColumn, ...]
    destination: Destination
    # Of the rows in the new files. Without partition fields, all rows of a file group stay in one partition. Without
    # sort fields, they keep the order of the sources.
    arrangement: Arrangement = PLAIN
    mapping: NameMapping = NO_MAPPING  # of the table


def arrow_field(column: TargetColumn, arrow_type: pa.DataType) -> pa.Field:
    """Return the field of a column in the new files."""
    return pa.field(
        make_compatible_name(column.name),
        arrow_type,
        nullable=not column.required,
        metadata={FIELD_ID: str(column.id)},
    )


def known_arrow_type(type_: IcebergType) -> pa.DataType | None:
    """Return Arrow's type for a column of this type. None for types that only the file itself can tell."""
    if not isinstance(type_, PrimitiveType):
        return None
    return arrow_type_of(type_) if is_written(type_) else _OTHER_ARROW_TYPES.get(type_)
