"""The table of a binding's rejected rows: its columns, its name, and what can prevent it."""

from collections.abc import Iterator
from typing import Final

from pyiceberg.types import PrimitiveType, StringType, TimestamptzType

from connector.config.values import LONGEST_NAME
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.evolution.target import NewColumn
from connector.host.errors import UserError
from connector.model.invalid_values import REJECTED_SUFFIX
from connector.model.table_identifier import TableIdentifier

HINT: Final = (
    " If `on_invalid` is quarantine, a binding's rejected rows go to a table with the name of its table and "
    f"{REJECTED_SUFFIX}."
)


def _column(name: str, type_: PrimitiveType, doc: str) -> NewColumn:
    return NewColumn(name, name, type_, required=True, doc=doc, is_indispensable=True)


COLUMNS: Final = (
    _column("reason", StringType(), "Why the row was rejected: what is wrong with the field's value."),
    _column("field", StringType(), "The first field with an invalid value."),
    _column("key", StringType(), "The row's key: a JSON array."),
    _column("document", StringType(), "The row as it was sent: a JSON object of its fields."),
    _column("rejected_at", TimestamptzType(), "When the row was rejected."),
)


def has_possible_name(path: TableIdentifier) -> bool:
    """Whether a table can have this name."""
    return len(path.name) <= LONGEST_NAME


def find_table_problems(
    path: TableIdentifier, materialization: str, found: CatalogEntry | UserError | None
) -> Iterator[str]:
    """Find why a binding's rejected rows cannot go to the table with this identifier. `found` is what is there."""
    table = found.table if isinstance(found, CatalogEntry) else None
    if not has_possible_name(path):
        yield (
            f"the table of rejected rows would have a name of {len(path.name)} characters, {path.name}, but the limit "
            f"is {LONGEST_NAME}: give the binding's table a shorter name."
        )
    elif isinstance(found, UserError):
        yield str(found)
    elif table and not _is_for_rejected_rows(table, materialization):
        yield (
            f"rejected rows need the table {path}, but a table of that name exists that was not created for "
            "them. Drop or rename it, or choose another table name for the binding."
        )


def _is_for_rejected_rows(table: ExistingTable, materialization: str) -> bool:
    columns = {column.name: column.field_type for column in table.schema.fields}
    return table.is_of(materialization) and all(columns.get(column.name) == column.type for column in COLUMNS)
