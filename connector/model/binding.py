"""A binding and its columns. They are read once, at open, and never change."""

from dataclasses import dataclass
from functools import cached_property

from pyiceberg.types import PrimitiveType

from connector.model.invalid_values import OnInvalid
from connector.model.table_identifier import TableIdentifier


@dataclass(frozen=True)
class Column:
    """The column that a field's values go to."""

    field: str  # the projection's name, as the runtime sends it
    name: str  # the column's name, as the table has it
    id: int  # the column's field id, from the table's schema
    type: PrimitiveType
    required: bool


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

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a data file, in order: keys, values, document."""
        return self.keys + self.values + ((self.document,) if self.document else ())

    @property
    def table(self) -> str:
        """The name for errors: namespace.table."""
        return ".".join(self.path)
