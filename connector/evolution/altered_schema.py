"""A table's schema after its alterations."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from connector.evolution.table_change import (
    AddColumn,
    Alteration,
    ConvertColumn,
    MakeOptional,
    NewColumn,
    RenameColumn,
    SetAsideColumn,
    WidenColumn,
)


def alter_schema(schema: Schema, changes: Collection[Alteration], last_column_id: int) -> Schema:
    """Return the schema after these changes. Renames come first: the other changes use the new names.

    `last_column_id` is the highest id that any column of the table ever had: a new column never gets the id of a
    dropped one.
    """
    renamed = {change.name: change.new_name for change in changes if isinstance(change, RenameColumn)}
    columns = [column.model_copy(update={"name": renamed.get(column.name, column.name)}) for column in schema.fields]
    ids = count(last_column_id + 1)

    def place_of(name: str) -> int:
        return [column.name for column in columns].index(name)

    def replace(name: str, values: Mapping[str, object]) -> None:
        place = place_of(name)
        columns[place] = columns[place].model_copy(update=values)

    for change in changes:
        match change:
            case WidenColumn():
                replace(change.name, {"field_type": change.new_type})
            case ConvertColumn():
                columns[place_of(change.name)] = _optional(change.column, next(ids))
            case SetAsideColumn():
                replace(change.name, {"name": change.kept_as, "required": False})
                columns.append(_optional(change.column, next(ids)))
            case AddColumn():
                columns.append(_optional(change.column, next(ids)))
            case MakeOptional():
                replace(change.name, {"required": False})
    return Schema(*columns, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


@dataclass(frozen=True)
class ConvertedColumn:
    """A column whose values are rewritten, and the column that gets them."""

    old: NestedField
    new: NestedField


def find_converted_columns(
    schema: Schema, changes: Collection[Alteration], last_column_id: int
) -> tuple[ConvertedColumn, ...]:
    """Find the columns that the changes convert, each with the new column that `alter_schema` adds for it."""
    conversions = [change for change in changes if isinstance(change, ConvertColumn)]
    before = alter_schema(schema, [change for change in changes if isinstance(change, RenameColumn)], last_column_id)
    old, new = (
        {column.name: column for column in each.fields}
        for each in (before, alter_schema(schema, changes, last_column_id))
    )
    return tuple(ConvertedColumn(old[change.name], new[change.column.name]) for change in conversions)


def _optional(column: NewColumn, number: int) -> NestedField:
    """The column is optional, since existing rows have no value for it."""
    return NestedField(number, column.name, column.type, required=False, doc=column.doc or None)
