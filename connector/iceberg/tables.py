"""Finds tables in the catalog, and performs their planned changes."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final, Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, NestedField

from connector.config.endpoint_config import EndpointConfig
from connector.encoding.rewriting.converted_files import UnconvertibleError
from connector.evolution.table_change import (
    Alteration,
    CreateNamespace,
    CreateTable,
    DropTable,
    ExistingTable,
    Found,
    RecordExistingRows,
    StartBackfill,
    TableChange,
)
from connector.host.errors import RetryableError, UserError
from connector.host.signals import map_in_threads
from connector.iceberg.catalogs.opening import translate_errors
from connector.iceberg.commits.backfill import start_backfill
from connector.iceberg.loading import LOOKUPS_AT_ONCE, check_table_properties, load_table
from connector.iceberg.metadata.row_lineage import can_keep_lineage
from connector.iceberg.metadata.table_arrangement import (
    check_partition_spec,
    make_partition_spec,
    make_sort_order,
    read_arrangement,
)
from connector.iceberg.metadata.table_properties import find_generation, restrict_to_generation
from connector.iceberg.metadata.table_updates import FixedColumns
from connector.model.owner import OWNER_PROPERTY, Owner
from connector.model.table_identifier import Generation, TableIdentifier

ATTEMPTS: Final = 8


def find(catalog: Catalog, path: TableIdentifier) -> Found:
    """Return what a plan of changes starts from. UserError if what has the name can be neither used nor replaced."""
    table = load_table(catalog, path)
    if table:
        check_partition_spec(table)
    elif catalog.view_exists(path):
        raise UserError(f"{path} is a view. Choose another table name, or drop the view.")
    return _describe(catalog, path, table)


class Alter(Protocol):
    """Makes all changes in one commit; see `Alterer.alter`."""

    def __call__(self, catalog: Catalog, table: Table, changes: Sequence[Alteration]) -> None: ...


def evolve(
    catalog: Catalog,
    path: TableIdentifier,
    location: str | None,
    plan: Callable[[Found], Sequence[TableChange]],
    alter: Alter,
) -> list[TableChange]:
    """Plan the changes of a table and perform them. Plan again when another writer was faster. Return what was done.

    RetryableError if others change the table during every attempt.
    """
    performed: list[TableChange] = []
    unconvertible: set[int] = set()
    for _ in range(ATTEMPTS):
        table = load_table(catalog, path)
        changes = plan(_describe(catalog, path, table, unconvertible))
        try:
            if table is not None and (alterations := [c for c in changes if isinstance(c, Alteration)]):
                alter(catalog, table, alterations)
                performed += alterations
            for change in (change for change in changes if not isinstance(change, Alteration)):
                _perform(catalog, table, change, location)
                performed.append(change)
        except (CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError):
            continue  # changes that were committed are not planned again
        except UnconvertibleError as error:
            unconvertible |= error.column_ids
            continue
        return performed
    raise RetryableError(
        f"Table {path} was changed by another process during each of {ATTEMPTS} attempts to alter it. "
        "No change is half done. The next start tries again."
    )


def _describe(
    catalog: Catalog, path: TableIdentifier, table: Table | None, unconvertible: Collection[int] = ()
) -> Found:
    if table is None:
        return Found(catalog.namespace_exists(path[0]), None)
    check_table_properties(table)
    owner = Owner.of(table.properties)
    generation = find_generation(table, owner.materialization if owner else "")
    # Without the columns of a backfill, which another program has removed, another backfill can still begin.
    is_lost = generation.is_awaited and generation.schema_id not in table.schemas()
    task_table = table if is_lost else restrict_to_generation(table, generation)
    return Found(
        namespace_exists=True,
        table=ExistingTable(
            schema=task_table.schema(),
            uuid=str(table.metadata.table_uuid),
            owner=owner,
            has_snapshot=task_table.current_snapshot() is not None,
            generation=Generation.recorded(table.properties),
            format_version=table.metadata.format_version,
            fixed_types=_list_types(table) if isinstance(catalog, FixedColumns) else (),
            pinned=_find_pinned_columns(table),
            unconvertible=_find_unconvertible(table, unconvertible),
            arrangement=read_arrangement(table),
            properties=table.properties,
        ),
    )


def _find_unconvertible(table: Table, failed: Collection[int]) -> frozenset[int]:
    """Return the ids of columns that are not converted. `failed` are those with a value that has no equivalent."""
    if not can_keep_lineage(table) and table.current_snapshot():  # rows that are written again would lose their ids
        return frozenset(column.field_id for column in table.schema().fields)
    return frozenset(failed)


def _list_types(table: Table) -> tuple[IcebergType, ...]:
    return tuple(column.field_type for column in table.schema().fields)


def _find_pinned_columns(table: Table) -> dict[int, str]:
    """Return the ids of columns that something depends on, besides the sort order and the identifier fields, each with
    what that is."""
    if table.name_mapping():  # files without field ids go by the columns' names
        return {column.field_id: "the name mapping" for column in table.schema().fields}
    return dict.fromkeys(
        (field.source_id for spec in table.specs().values() for field in spec.fields), "a partition spec"
    )


def _perform(catalog: Catalog, table: Table | None, change: TableChange, location: str | None) -> None:
    match change:
        case CreateNamespace():
            _create_namespace(catalog, change.namespace)
        case CreateTable():
            _create_table(catalog, change, location)
        case DropTable():
            # Not purged, because another table, a branch or a reader may still use the files.
            with suppress(NoSuchTableError):
                catalog.drop_table(change.path)
        case StartBackfill():
            assert table is not None, "only a table that was found is backfilled"
            start_backfill(catalog, table, change)
        case RecordExistingRows():
            with catalog.load_table(change.path).transaction() as transaction:
                transaction.set_properties({OWNER_PROPERTY: change.owner.encode()})


def _create_namespace(catalog: Catalog, namespace: str) -> None:
    try:
        catalog.create_namespace(namespace)
    except NamespaceAlreadyExistsError:  # the server may hide it from who has no permission to read it
        return
    except Exception:  # if two processes create it at once, the SQL catalog raises the error of its database
        if not catalog.namespace_exists(namespace):
            raise


def _create_table(catalog: Catalog, change: CreateTable, location: str | None) -> None:
    # PyIceberg renumbers the fields, so ids are always read from the table. It also pops format-version from the dict.
    fields = [
        NestedField(number, column.name, column.type, required=column.required, doc=column.doc or None)
        for number, column in enumerate(change.columns, start=1)
    ]
    identifier = [field.field_id for field in fields if field.name in change.identifier]
    schema = Schema(*fields, identifier_field_ids=identifier)
    properties = {**change.properties, "format-version": str(change.format_version)}
    try:
        catalog.create_table(
            change.path,
            schema,
            location,
            make_partition_spec(schema, change.partition_by),
            make_sort_order(schema, change.sort_by),
            properties,
        )
    except TableAlreadyExistsError as error:
        table = load_table(catalog, change.path)
        if table is None or Owner.of(table.properties) != Owner.of(change.properties):
            raise UserError(
                f"{change.path} cannot be created: a {'view' if table is None else 'table'} of that name, "
                "made by somebody else, has appeared. Choose another table name, or drop it."
            ) from error
        raise


def find_all(catalog: Catalog, endpoint: EndpointConfig, paths: Sequence[TableIdentifier]) -> list[Found | UserError]:
    """Return what the catalog has at each path, or the UserError why it cannot be used. Other errors are raised."""

    def look_up(path: TableIdentifier) -> Found | UserError:
        try:
            with translate_errors(endpoint):
                return find(catalog, path)
        except UserError as error:
            return error

    return map_in_threads(look_up, paths, LOOKUPS_AT_ONCE, "lookup")
