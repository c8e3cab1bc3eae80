"""Binds tables: reads everything that a session's transactions need to know of them, when the session opens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType, TimestamptzType

from connector.evolution.field_config import match_columns, name_columns
from connector.evolution.type_mapping import tells_keys_apart
from connector.host.errors import MissingTableError, UserError
from connector.host.signals import map_in_threads
from connector.iceberg.commits import fence
from connector.iceberg.loading import check_table_properties, load_table
from connector.iceberg.metadata.table_arrangement import find_arrangement
from connector.iceberg.metadata.table_updates import find_generation, restrict_to_generation
from connector.model.binding import Arrangement, Binding, Column, KeyPart, Policy, UpdateMode, Updates
from connector.model.invalid_values import OnInvalid, name_rejected_table
from connector.model.properties import Properties
from connector.model.state import WriterId
from connector.model.table_identifier import Generation, TableIdentifier
from connector.model.written_types import is_written
from connector.storage.file_access import FileAccess, access_to
from protocol.flow import Collection, FieldSelection, Materialization, MaterializationBinding, find_collection

TABLES_AT_ONCE: Final = 8  # each waits for its catalog most of the time


@dataclass(frozen=True)
class Quarantine:
    """The table of a binding's rejected rows, and how many rows may be rejected."""

    table: int  # its place among the session's tables
    max_ratio: float  # of all rows


@dataclass(frozen=True)
class BoundTable:
    """A bound table, read once. Its properties have the fence values that the session begins with.

    Its place among the session's tables is its binding's index.
    """

    binding: Binding
    writer: WriterId
    table_uuid: str  # of its generation
    arrangement: Arrangement
    schema_id: int
    location: str
    properties: Properties
    access: FileAccess
    quarantine: Quarantine | None = None
    published_column_id: int | None = None  # of the column with the publication times of documents

    @property
    def awaits_backfill(self) -> bool:
        """Whether the next commit of the task replaces all rows."""
        return Generation.of(self.table_uuid, self.properties, self.writer.materialization).is_awaited


def bind_all(catalog: Catalog, task: Materialization, key_range: str, policies: Sequence[Policy]) -> list[BoundTable]:
    """Load the table of every binding, in the order of the bindings, and then the tables of rejected rows.

    MissingTableError if a table does not exist; UserError if a table cannot take its rows; ProtocolError if a resource
    path names no table.
    """
    rejected_paths = {
        index: path
        for index, (binding, policy) in enumerate(zip(task.bindings, policies, strict=True))
        if (path := name_rejected_table(TableIdentifier(*binding.table), policy.on_invalid))
    }
    rejected = (_of_rejected_rows(task.bindings[index], path) for index, path in rejected_paths.items())
    requested = [*task.bindings, *rejected]
    all_policies = [*policies, *(Policy() for _ in rejected_paths)]

    def bind_one(index: int) -> BoundTable:
        writer = WriterId(task.name, requested[index].state_key, key_range)
        updates = all_policies[index].updates
        bound = _bind(catalog, index, requested[index], writer, all_policies[index])
        is_of_rejected_rows = index >= len(task.bindings)
        has_collection = requested[index].collection is not None or bool(task.linked_collections)
        if updates is UpdateMode.DELTA and (is_of_rejected_rows or not has_collection):
            return bound
        collection = find_collection(requested[index], task.linked_collections)
        bound = replace(bound, published_column_id=_find_published(bound.binding, collection))
        if updates is UpdateMode.DELTA:
            return bound
        return _with_updates(bound, collection, is_hard_delete=updates is UpdateMode.HARD_DELETE)

    tables = map_in_threads(bind_one, range(len(requested)), TABLES_AT_ONCE, "open")
    for place, index in enumerate(rejected_paths, start=len(task.bindings)):
        quarantine = Quarantine(place, policies[index].max_rejected_ratio)
        tables[index] = replace(tables[index], quarantine=quarantine)
    return tables


def _find_published(binding: Binding, collection: Collection) -> int | None:
    """Return the id of the column with the publication times of documents, if their field is selected."""
    fields = {
        projection.field
        for projection in collection.projections
        if projection.ptr == collection.uuid_ptr and projection.inference.string.format == "date-time"
    }
    columns = (each for each in binding.columns if each.field in fields and each.type == TimestamptzType())
    return next((column.id for column in columns), None)


def _with_updates(bound: BoundTable, collection: Collection, *, is_hard_delete: bool) -> BoundTable:
    """Return the table with what Loads need. UserError if the documents are not stored."""
    binding = bound.binding
    if binding.document is None:
        raise UserError(
            f"table {binding.table}: the binding updates rows in place, but does not select the root document, which "
            "the runtime reads back. Select it, or set `delta_updates` to true, and publish the task again."
        )
    projections = {projection.field: projection for projection in collection.projections}
    parts = tuple(
        KeyPart(
            column.id,
            projections[column.field].ptr,
            projections[column.field].inference.default,
            tells_keys_apart(projections[column.field], column.type),
        )
        for column in binding.keys
    )
    return replace(bound, binding=replace(binding, updates=Updates(parts, binding.document.id, is_hard_delete)))


def _of_rejected_rows(binding: MaterializationBinding, path: TableIdentifier) -> MaterializationBinding:
    """Make a binding with the same state key. Fences and staged commits are kept apart by their tables."""
    from connector.evolution.rejected_table import COLUMNS  # only if a binding has such a table

    return MaterializationBinding(
        resource_path=path,
        field_selection=FieldSelection(values=tuple(column.name for column in COLUMNS)),
        state_key=binding.state_key,
    )


def _bind(
    catalog: Catalog, index: int, requested: MaterializationBinding, writer: WriterId, policy: Policy
) -> BoundTable:
    path = TableIdentifier(*requested.table)
    table = load_table(catalog, path)
    if table is None:
        raise MissingTableError(path, requested.state_key)
    generation = find_generation(table, writer.materialization)
    task_table = restrict_to_generation(table, generation)
    binding = _binding(index, requested, policy.on_invalid, task_table.schema())
    check_table_properties(table)
    fence.check_recorded(path, table.properties, writer)
    return BoundTable(
        binding=binding,
        writer=writer,
        table_uuid=generation.uuid,
        arrangement=find_arrangement(task_table, {column.id for column in binding.columns}),
        schema_id=task_table.metadata.current_schema_id,
        location=table.location(),
        properties=Properties(table.properties),
        access=access_to(table),
    )


def _binding(index: int, requested: MaterializationBinding, on_invalid: OnInvalid, schema: Schema) -> Binding:
    selection = requested.field_selection
    path = TableIdentifier(*requested.table)
    table = str(path)

    names = name_columns(selection)
    existing = match_columns(schema, names.values())

    def columns(*fields: str) -> tuple[Column, ...]:
        return tuple(_column(table, field, names[field], existing.get(names[field])) for field in fields)

    binding = Binding(
        index=index,
        state_key=requested.state_key,
        path=path,
        keys=columns(*selection.keys),
        values=columns(*selection.values),
        document=columns(selection.document)[0] if selection.document else None,
        on_invalid=on_invalid,
    )
    _check_required(table, binding, schema)
    return binding


def _column(table: str, field: str, name: str, found: NestedField | None) -> Column:
    if found is None:
        raise UserError(
            f"table {table} has no column {name!r} for the field {field!r}: it was dropped or renamed after the task "
            "was published. Publish the task again to add it, or deselect the field."
        )
    if not isinstance(found.field_type, PrimitiveType) or not is_written(found.field_type):
        raise UserError(
            f"table {table}, column {found.name!r}: columns of type {found.field_type} cannot be written. "
            'Deselect the field, or give it another column with {"column": "…"} in its field config.'
        )
    return Column(field, found.name, found.field_id, found.field_type, found.required)


def _check_required(table: str, binding: Binding, schema: Schema) -> None:
    written = {column.id for column in binding.columns}
    missing = [column.name for column in schema.fields if column.required and column.field_id not in written]
    if missing:
        raise UserError(
            f"table {table} requires values for {', '.join(map(repr, missing))}, which the binding does not select. "
            "Select these fields, or make the columns optional in the table."
        )
