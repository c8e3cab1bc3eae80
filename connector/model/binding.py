"""A binding, its columns and their types, and how its rows are arranged. It is read at open, and never changes."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec
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
    TimestamptzNanoType,
    TimestamptzType,
)

from connector.model.invalid_values import DEFAULT_MAX_REJECTED_RATIO, OnInvalid
from connector.model.table_identifier import TableIdentifier
from protocol.flow import Json

# The types of columns that the connector writes, apart from decimals of any precision.
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


@dataclass(frozen=True)
class Column:
    """The column that a field's values go to. `type` alone decides how they are decoded: a key has the same value in a
    Load and in a Store."""

    field: str  # the projection's name, as the runtime sends it
    name: str  # the column's name, as the table has it
    id: int  # the column's field id, from the table's schema
    type: PrimitiveType
    required: bool


class UpdateMode(StrEnum):
    """What becomes of a row when its document is updated or deleted."""

    DELTA = "delta"  # each stored document is a row
    KEEP_DELETED = "keep deleted"  # the last version is the only row, also if the document was deleted
    HARD_DELETE = "hard delete"  # the last version is the only row, until the document is deleted


@dataclass(frozen=True)
class RowSettings:
    """How a binding's rows are written, from its config and the endpoint's."""

    on_invalid: OnInvalid = OnInvalid.STOP
    max_rejected_ratio: float = DEFAULT_MAX_REJECTED_RATIO  # of its rows: 0 to 1
    updates: UpdateMode = UpdateMode.DELTA


class KeyPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One part of a key: where documents have it, and which column has it."""

    column_id: int
    pointer: str  # a JSON pointer into documents
    default: Json = None  # of the collection's schema, for documents without the location
    is_exact: bool = True  # whether different keys always have different values in the column


class Updates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a binding with standard updates finds the row of a key, and whether a deletion removes it."""

    parts: tuple[KeyPart, ...]
    document_id: int  # the column's field id
    hard_delete: bool = False  # a deleted document has no row; otherwise the row of its last version stays

    @property
    def is_exact(self) -> bool:
        """Whether the key columns alone tell which key a row has, if all its parts have values. Otherwise the row's
        document decides."""
        return all(part.is_exact for part in self.parts)


@dataclass(frozen=True)
class Binding:
    """A binding of the session, with its columns in the order of the values in a store request."""

    index: int
    state_key: str
    path: TableIdentifier
    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    document: Column | None
    on_invalid: OnInvalid = OnInvalid.STOP
    updates: Updates | None = None  # None: delta updates, which only add rows

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a data file, in order: keys, values, document."""
        return self.keys + self.values + ((self.document,) if self.document else ())

    @property
    def table(self) -> str:
        """The name for errors: namespace.table."""
        return str(self.path)


@dataclass(frozen=True)
class PartitionField:
    """A field of a partition spec. Its values are those of a column, transformed."""

    source_id: int  # the column's field id
    transform: str  # as the table's metadata has it, such as bucket[16]


@dataclass(frozen=True)
class SortField:
    """A field of a sort order. Its values are those of a column, transformed."""

    source_id: int  # the column's field id
    transform: str  # as the table's metadata has it
    is_descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Arrangement:
    """The partition spec and the sort order that data files are written by."""

    spec_id: int = 0
    partition: tuple[PartitionField, ...] = ()  # every field of the spec, in its order
    sort_order_id: int = 0
    sort: tuple[SortField, ...] = ()

    @cached_property
    def is_plain(self) -> bool:
        """Whether rows stay in the order in which they come, in any file."""
        return not (self.partition or self.sort)


PLAIN: Final = Arrangement()
