"""A table's schema after its alterations."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from connector.evolution.table_change import (
    AddColumn,
    Alteration,
    ConvertColumn,
    MakeOptional,
    RenameColumn,
    SetAsideColumn,
    SetIdentifierFields,
    WidenColumn,
)
from connector.evolution.target import NewColumn


def alter_schema(schema: Schema, changes: Collection[Alteration], last_column_id: int) -> Schema:
    """Return the schema after these changes. Renames come first: the other changes use the new names.

    `last_column_id` is the highest id that any column of the table ever had: a new column never gets the id of a
    dropped one.
    """
    renamed = {change.name: change.new_name for change in changes if isinstance(change, RenameColumn)}
    columns = [column.model_copy(update={"name": renamed.get(column.name, column.name)}) for column in schema.fields]
    ids = count(last_column_id + 1)

    def find_index(name: str) -> int:
        return [column.name for column in columns].index(name)

    def replace(name: str, values: Mapping[str, object]) -> None:
        index = find_index(name)
        columns[index] = columns[index].model_copy(update=values)

    for change in changes:
        match change:
            case WidenColumn():
                replace(change.name, {"field_type": change.new_type})
            case ConvertColumn():
                columns[find_index(change.name)] = _optional(change.column, next(ids))
            case SetAsideColumn():
                replace(change.name, {"name": change.kept_as, "required": False})
                columns.append(_optional(change.column, next(ids)))
            case AddColumn():
                columns.append(_optional(change.column, next(ids)))
            case MakeOptional():
                replace(change.name, {"required": False})
    identifier = _find_identifier(schema, columns, changes)
    return Schema(*columns, schema_id=schema.schema_id, identifier_field_ids=identifier)


def _find_identifier(schema: Schema, columns: Iterable[NestedField], changes: Iterable[Alteration]) -> list[int]:
    """Find the ids of the identifier fields among the columns after the changes."""
    ids = {column.name: column.field_id for column in columns}
    for change in changes:
        if isinstance(change, SetIdentifierFields):
            return [ids[name] for name in change.names]
    return schema.identifier_field_ids


def plan_schema(
    schema: Schema,
    columns: Sequence[NewColumn],
    identifier: Collection[str],
    arranged: Collection[int],
    last_column_id: int,
) -> Schema:
    """Return the schema of a table that has only these columns, once a backfill has replaced its rows.

    A column that does not change keeps its id: partition specs, sort orders and other engines know it by that. So do
    older rows, which branches may still have. `arranged` are the ids that the current partition spec and sort order
    have: such a column keeps its id even if it stays optional for that.
    """
    before = {field.name: field for field in schema.fields}
    usable, ids = find_usable_ids(schema, columns, identifier), count(last_column_id + 1)
    kept_optional = name_kept_optional(schema, columns, identifier, arranged)

    def follow(column: NewColumn) -> NestedField:
        required, number = column.required and column.name not in kept_optional, usable.get(column.name)
        if number is None or (required and not before[column.name].required):
            number = next(ids)
        return NestedField(number, column.name, column.type, required=required, doc=column.doc or None)

    fields = [follow(column) for column in columns]
    identifiers = [field.field_id for field in fields if field.name in identifier]
    return Schema(*fields, identifier_field_ids=identifiers)


def name_kept_optional(
    schema: Schema, columns: Collection[NewColumn], identifier: Collection[str], arranged: Collection[int | None]
) -> frozenset[str]:
    """Name the columns that stay optional in a backfill, because the partition spec or the sort order has their ids."""
    before = {field.name: field for field in schema.fields}
    usable = find_usable_ids(schema, columns, identifier)
    return frozenset(
        column.name
        for column in columns
        if column.name in usable and usable[column.name] in arranged and _becomes_required(before[column.name], column)
    )


def find_usable_ids(schema: Schema, columns: Iterable[NewColumn], identifier: Collection[str]) -> dict[str, int]:
    """Find the columns that partitions and a sort order can use before and after a backfill. Returns ids by name.

    A column never becomes required under its id, because an older row may have no value for it. So an optional column
    stays optional, and cannot become an identifier field.
    """
    before = {field.name: field for field in schema.fields}
    return {
        column.name: old.field_id
        for column in columns
        if (old := before.get(column.name))
        and old.field_type == column.type
        and not (_becomes_required(old, column) and column.name in identifier)
    }


def _becomes_required(before: NestedField, column: NewColumn) -> bool:
    return column.required and not before.required


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
