"""A binding and its columns: parsed once, at open, and never changed."""

from dataclasses import dataclass
from functools import cached_property

from pyiceberg.types import PrimitiveType

from connector.model.invalid_values import OnInvalid
from connector.model.table_identifier import TableIdentifier


@dataclass(frozen=True)
class Column:
    """Where a field's values go."""

    field: str  # the projection's name, as the runtime sends it
    name: str  # the column's name, as the table has it
    id: int  # the column's field id, from the table's schema
    type: PrimitiveType
    required: bool


@dataclass(frozen=True)
class Binding:
    """One table of the session, with its columns in the order in which Store carries them."""

    index: int
    state_key: str
    path: TableIdentifier
    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    document: Column | None
    on_invalid: OnInvalid = OnInvalid.STOP

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Keys, values, document: the columns of a data file, in order."""
        return self.keys + self.values + ((self.document,) if self.document else ())

    @property
    def table(self) -> str:
        return ".".join(self.path)
