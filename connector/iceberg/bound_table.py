"""Binds tables: reads everything that a session's transactions need to know of them, when the session opens."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType, TimestamptzType

from connector.evolution.field_config import match_columns, name_columns
from connector.evolution.type_mapping import tells_keys_apart
from connector.host.errors import MissingTableError, UserError
from connector.host.threads import map_in_threads
from connector.iceberg.commits.key_columns import check_key_columns, find_inexact_parts
from connector.iceberg.fences import fence
from connector.iceberg.loaded_tables import check_table_properties, load_table
from connector.iceberg.metadata.table_arrangement import find_arrangement
from connector.iceberg.metadata.table_properties import find_generation, restrict_to_generation
from connector.model.binding import Arrangement, Binding, Column, KeyPart, RowSettings, UpdateMode, Updates, is_written
from connector.model.invalid_values import OnInvalid, name_rejected_table
from connector.model.properties import Properties
from connector.model.state import ChainId, StagedCommit, TableId, WriterId
from connector.model.table_identifier import Generation, Owner, TableIdentifier
from connector.storage.file_access import FileAccess, access_to
from protocol.flow import Collection, FieldSelection, Materialization, MaterializationBinding, find_collection


@dataclass(frozen=True)
class Quarantine:
    """The table of a binding's rejected rows, and how many rows may be rejected."""

    table_index: int  # its place among the session's tables
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
    def table_id(self) -> TableId:
        """The table by path and UUID, as staged commits name it."""
        return self.binding.path, self.table_uuid

    @property
    def chain_id(self) -> ChainId:
        """The chain that the session's commits to the table belong to."""
        return self.table_id, self.writer

    @property
    def may_have_other_rows(self) -> bool:
        """Whether the table is updated by keys, and may have rows of keys that its binding has never stored."""
        return self.binding.updates is not None and not self._is_owned

    def has_superseded(self, staged: StagedCommit) -> bool:
        """Whether the table was made for a backfill of a binding whose earlier table the commit was staged for."""
        is_earlier = staged.path == self.binding.path and staged.writer.state_key != self.writer.state_key
        return is_earlier and self._is_owned and staged.table_uuid not in self.generations

    @property
    def awaits_backfill(self) -> bool:
        """Whether the next commit of the task replaces all rows."""
        return self._generation.is_awaited

    @property
    def generations(self) -> frozenset[str]:
        """The UUIDs of all generations that the task's rows of the table have had."""
        return frozenset((self.table_uuid, *self._generation.former))

    @property
    def has_earlier_owner(self) -> bool:
        """Whether the table's metadata is from before the binding got its state key."""
        owner = Owner.of(self.properties)
        if owner is None or owner.materialization != self.writer.materialization:
            return False
        return owner.state_key != self.writer.state_key

    @property
    def _is_owned(self) -> bool:
        """Whether the binding has owned the table since its last backfill."""
        return Owner.of(self.properties) == Owner(self.writer.materialization, self.writer.state_key)

    @property
    def _generation(self) -> Generation:
        return Generation.of(self.table_uuid, self.properties, self.writer.materialization)


def bind_all(
    catalog: Catalog, task: Materialization, key_range: str, row_settings: Sequence[RowSettings]
) -> list[BoundTable]:
    """Load the table of every binding, in the order of the bindings, and then the tables of rejected rows.

    MissingTableError if a table does not exist; UserError if a table cannot take its rows; ProtocolError if a resource
    path names no table.
    """
    requested = [
        _RequestedTable(binding, settings, _find_collection(task, binding, settings.updates))
        for binding, settings in zip(task.bindings, row_settings, strict=True)
    ]
    quarantines: dict[int, Quarantine] = {}  # by the binding's index
    for index, (binding, settings) in enumerate(zip(task.bindings, row_settings, strict=True)):
        if path := name_rejected_table(TableIdentifier(*binding.table), settings.on_invalid):
            quarantines[index] = Quarantine(len(requested), settings.max_rejected_ratio)
            requested.append(_RequestedTable(_of_rejected_rows(binding, path), RowSettings(), None))

    def bind_one(index: int) -> BoundTable:
        writer = WriterId(task.name, requested[index].binding.state_key, key_range)
        return replace(_bind(catalog, index, requested[index], writer), quarantine=quarantines.get(index))

    return map_in_threads(bind_one, range(len(requested)), "open")


@dataclass(frozen=True)
class _RequestedTable:
    """A table that a session asks for."""

    binding: MaterializationBinding
    settings: RowSettings
    collection: Collection | None  # None for the tables of rejected rows, and if the runtime has left it out


def _find_collection(task: Materialization, binding: MaterializationBinding, updates: UpdateMode) -> Collection | None:
    """Find a binding's collection. Without updates nothing needs it, so requests written by hand may leave it out."""
    may_be_left_out = updates is UpdateMode.DELTA
    if may_be_left_out and binding.collection is None and not task.linked_collections:
        return None
    return find_collection(binding, task.linked_collections)


def _find_published(binding: Binding, collection: Collection) -> int | None:
    """Return the id of the column with the publication times of documents, if their field is selected."""
    fields = {
        projection.field
        for projection in collection.projections
        if projection.ptr == collection.uuid_ptr and projection.inference.string.format == "date-time"
    }
    columns = (each for each in binding.columns if each.field in fields and each.type == TimestamptzType())
    return next((column.id for column in columns), None)


def _plan_updates(binding: Binding, collection: Collection, mode: UpdateMode, inexact: Set[str]) -> Updates:
    """Return what Loads need. UserError if the documents are not stored. `inexact` are parts of the key by pointers."""
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
            tells_keys_apart(projections[column.field], column.type) and projections[column.field].ptr not in inexact,
        )
        for column in binding.keys
    )
    return Updates(parts, binding.document.id, mode is UpdateMode.HARD_DELETE)


def _of_rejected_rows(binding: MaterializationBinding, path: TableIdentifier) -> MaterializationBinding:
    """Make a binding with the same state key. Fences and staged commits are kept apart by their tables."""
    from connector.evolution.rejected_table import COLUMNS  # only if a binding has such a table

    return MaterializationBinding(
        resource_path=path,
        field_selection=FieldSelection(values=tuple(column.name for column in COLUMNS)),
        state_key=binding.state_key,
    )


def _bind(catalog: Catalog, index: int, requested: _RequestedTable, writer: WriterId) -> BoundTable:
    path = TableIdentifier(*requested.binding.table)
    table = load_table(catalog, path)
    if table is None:
        raise MissingTableError(path, requested.binding.state_key)
    generation = find_generation(table, writer.materialization)
    task_table = restrict_to_generation(table, generation)
    binding = _binding(index, requested.binding, requested.settings.on_invalid, task_table.schema())
    check_table_properties(table)
    fence.check_recorded(path, table.properties, writer)
    arrangement = find_arrangement(task_table, {column.id for column in binding.columns})
    collection, updates = requested.collection, requested.settings.updates
    if updates is not UpdateMode.DELTA:
        assert collection
        pointers = {each.field: each.ptr for each in collection.projections}
        columns = {pointers[column.field]: column.id for column in binding.keys}
        inexact = find_inexact_parts(task_table, writer, generation.uuid, columns)
        binding = replace(binding, updates=_plan_updates(binding, collection, updates, inexact))
        check_key_columns(task_table, writer, generation.uuid, binding)
    return BoundTable(
        binding=binding,
        writer=writer,
        table_uuid=generation.uuid,
        arrangement=arrangement,
        schema_id=task_table.metadata.current_schema_id,
        location=table.location(),
        properties=Properties(table.properties),
        access=access_to(table),
        published_column_id=_find_published(binding, collection) if collection else None,
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
