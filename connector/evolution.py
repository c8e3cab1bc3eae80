"""What has to change for a table to fit its binding: a pure plan, of which apply only performs the steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from connector.errors import UserError
from connector.table_change import (
    OWNER_PROPERTY,
    AddColumn,
    CreateNamespace,
    CreateTable,
    DropTable,
    ExistingTable,
    Found,
    MakeOptional,
    NewColumn,
    TableChange,
    Target,
    matching_columns,
)
from connector.type_mapping import column_type, incompatible, is_compatible, is_key, is_required
from protocol.errors import ProtocolError
from protocol.flow import Collection, FieldSelection, Materialization, MaterializationBinding, Projection

# AWS Glue keeps a column's doc as its comment: one line, no more than this.
MAX_DOC: Final = 255

# Every commit writes the metadata anew, and names the versions before: keep a bounded number of both.
DEFAULT_PROPERTIES: Final = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def columns(collection: Collection, selection: FieldSelection) -> tuple[NewColumn, ...]:
    """The selected fields' columns: keys, values, document."""
    projections = {projection.field: projection for projection in collection.projections}
    fields = selection.keys + selection.values + ((selection.document,) if selection.document else ())
    spellings: dict[str, str] = {}
    for field in fields:
        if field not in projections:
            raise ProtocolError(f"field {field!r} is selected, but collection {collection.name} has no such projection")
        if (other := spellings.setdefault(field.lower(), field)) != field:
            raise UserError(
                f"Fields {other!r} and {field!r} of collection {collection.name} differ in upper and lower case only, "
                "and one table cannot have both. Deselect one of them, or give it another name with a projection."
            )
    return tuple(_column(projections[field], collection, selection) for field in fields)


def changes(found: Found, target: Target) -> list[TableChange]:
    """What has to be done, in this order; nothing if the table fits already.

    Repeating it is safe after a crash anywhere: a table that records the target's owner is the replacement.
    """
    table = found.table
    if table is None:
        namespace = [] if found.namespace_exists else [CreateNamespace(target.path[0])]
        return [*namespace, _create(target)]
    if target.replaces and table.owner != target.owner:
        return [_drop(table, target), _create(target)]
    return _alterations(table.schema, target)


def last_bindings(last: Materialization | None) -> dict[tuple[str, ...], MaterializationBinding]:
    """The binding that each resource path had before; a disabled one counts too."""
    bindings = (*last.inactive_bindings, *last.bindings) if last else ()
    return {binding.resource_path: binding for binding in bindings}


def _column(projection: Projection, collection: Collection, selection: FieldSelection) -> NewColumn:
    key = is_key(projection, collection, selection.keys)
    column = column_type(projection, selection.field_config.get(projection.field), key)
    if column is None:
        raise UserError(
            f"Field {projection.field!r} of collection {collection.name} is selected, but its schema allows no value "
            "but null, so that there is no type for its column. Deselect it, or give the location a type."
        )
    inference = projection.inference
    doc = ": ".join(" ".join(text.split()) for text in (inference.title, inference.description) if text)
    return NewColumn(projection.field, column, is_required(projection), doc[:MAX_DOC], key)


def _create(target: Target) -> CreateTable:
    properties = {**DEFAULT_PROPERTIES, **target.properties, OWNER_PROPERTY: target.owner.encode()}
    return CreateTable(target.path, target.columns, properties)


def _drop(table: ExistingTable, target: Target) -> DropTable:
    if table.owner is not None and table.owner.materialization != target.owner.materialization:
        raise UserError(
            f"The backfill needs to replace table {target.table}, but materialization {table.owner.materialization} "
            "made it, and its rows would be lost. Choose another table name for the binding, or drop the table yourself."
        )
    return DropTable(target.path, table.uuid)


def _alterations(schema: Schema, target: Target) -> list[TableChange]:
    existing = matching_columns(schema, (column.name for column in target.columns))
    if problems := [
        incompatible(column.name, existing[column.name].field_type, column.type, column.is_key)
        for column in target.columns
        if column.name in existing and not is_compatible(existing[column.name].field_type, column.type)
    ]:
        raise UserError("\n".join(f"table {target.table}: {problem}" for problem in problems))
    added = [AddColumn(target.path, _optional(column)) for column in target.columns if column.name not in existing]
    never_null = {
        existing[column.name].field_id for column in target.columns if column.required and column.name in existing
    }
    nullable = [column for column in schema.fields if column.required and column.field_id not in never_null]
    _refuse_identifiers(schema, nullable, target)
    return [*added, *(MakeOptional(target.path, column.name) for column in nullable)]


def _optional(column: NewColumn) -> NewColumn:
    """Rows that are there already have no value for it."""
    return replace(column, required=False)


def _refuse_identifiers(schema: Schema, nullable: Sequence[NestedField], target: Target) -> None:
    if names := [column.name for column in nullable if column.field_id in schema.identifier_field_ids]:
        raise UserError(
            f"Table {target.table} has identifier fields that may be null from now on: {', '.join(map(repr, names))}. "
            "Take them out of the table's identifier fields (in Spark: ALTER TABLE … DROP IDENTIFIER FIELDS …), "
            "or select required fields for them."
        )
