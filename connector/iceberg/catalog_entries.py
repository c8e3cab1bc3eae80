"""Finds what the catalog has under the name of a table: plans of changes start from it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import IcebergType

from connector.config.endpoint_config import EndpointConfig
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.host.errors import UserError
from connector.host.threads import map_in_threads
from connector.iceberg.catalogs.opening import translate_errors
from connector.iceberg.catalogs.registered_tables import FixedColumns
from connector.iceberg.fences import fence
from connector.iceberg.loaded_tables import check_table_properties, load_table
from connector.iceberg.metadata.retention import is_in_nessie
from connector.iceberg.metadata.row_lineage import can_keep_lineage
from connector.iceberg.metadata.table_arrangement import check_partition_spec, read_arrangement
from connector.iceberg.metadata.table_properties import find_generation, has_rows, restrict_to_generation
from connector.model.estuary_state import read_added
from connector.model.table_identifier import Generation, Owner, TableIdentifier

T = TypeVar("T")
R = TypeVar("R")


def find_all(
    catalog: Catalog,
    endpoint: EndpointConfig,
    task: str,
    paths: Sequence[TableIdentifier],
    known: Mapping[str, bool] = MappingProxyType({}),
) -> list[CatalogEntry | UserError]:
    """Return what the catalog has at each path for a task, or the UserError why it can be neither used nor replaced.
    Other errors are raised.

    The catalog is asked at most once for each namespace, and only if none of the tables in it exists. `known` says of
    some namespaces whether they exist.
    """
    ask_all = partial(_ask_all, endpoint)
    found = dict(zip(paths, ask_all(partial(_find_table, catalog, task), paths), strict=True))
    absent = [path for path, entry in found.items() if entry is None]
    namespaces: dict[str, bool | UserError] = {
        **known,
        **{path.namespace: True for path, entry in found.items() if isinstance(entry, CatalogEntry)},
    }
    asked = [*dict.fromkeys(path.namespace for path in absent if path.namespace not in namespaces)]
    namespaces |= zip(asked, ask_all(catalog.namespace_exists, asked), strict=True)
    described = ask_all(lambda path: _describe_absent(catalog, path, namespaces[path.namespace]), absent)
    found |= zip(absent, described, strict=True)
    return [entry for path in paths if (entry := found[path])]


def _ask_all(endpoint: EndpointConfig, ask: Callable[[T], R], things: Sequence[T]) -> list[R | UserError]:
    """Return the answer for each thing, or its UserError. Other errors are raised."""

    def ask_for(thing: T) -> R | UserError:
        try:
            with translate_errors(endpoint):
                return ask(thing)
        except UserError as error:
            return error

    return map_in_threads(ask_for, things, "lookup")


def _find_table(catalog: Catalog, task: str, path: TableIdentifier) -> CatalogEntry | None:
    table = load_table(catalog, path)
    if table is None:
        return None
    check_partition_spec(table)
    return describe_found(catalog, path, table, task)


def _describe_absent(catalog: Catalog, path: TableIdentifier, namespace_exists: bool | UserError) -> CatalogEntry:
    """Return what a plan starts from that creates the table. UserError if a view has the name."""
    if isinstance(namespace_exists, UserError):
        raise namespace_exists
    if namespace_exists and catalog.view_exists(path):
        raise UserError(f"{path} is a view. Choose another table name, or drop the view.")
    return CatalogEntry(namespace_exists, None)


def describe_found(
    catalog: Catalog, path: TableIdentifier, table: Table | None, task: str, unconvertible: Collection[int] = ()
) -> CatalogEntry:
    """Return what a task's plan starts from, if the catalog has this table; None: it has none.

    `unconvertible` are the ids of columns with a value that has no equivalent.
    """
    if table is None:
        return CatalogEntry(catalog.namespace_exists(path.namespace), None)
    check_table_properties(table)
    owner = Owner.of(table.properties)
    generation = find_generation(table, task)
    # Without the columns of a backfill, which another program has removed, another backfill can still begin.
    is_lost = generation.is_awaited and generation.schema_id not in table.schemas()
    task_table = table if is_lost else restrict_to_generation(table, generation)
    return CatalogEntry(
        namespace_exists=True,
        table=ExistingTable(
            schema=task_table.schema(),
            uuid=str(table.metadata.table_uuid),
            owner=owner,
            has_rows=has_rows(task_table),
            needs_snapshot=needs_snapshot(table),
            generation=Generation.recorded(table.properties),
            format_version=table.metadata.format_version,
            fixed_types=_list_types(table) if isinstance(catalog, FixedColumns) else (),
            pinned=_find_pinned_columns(table),
            unconvertible=_find_unconvertible(table, unconvertible),
            arrangement=read_arrangement(table),
            current_ids=frozenset(column.field_id for column in table.schema().fields),
            partition_fields={each.name: each.source_id for spec in table.specs().values() for each in spec.fields},
            properties=table.properties,
            taken_over=None if owner else _find_estuary_task(table.properties),
            location=table.location(),
        ),
    )


def needs_snapshot(table: Table) -> bool:
    """Whether the table has no snapshot, and its catalog does not check commits that assert this. Then a first commit
    could replace that of another process. With an empty snapshot, each commit has a snapshot to assert."""
    return table.current_snapshot() is None and is_in_nessie(table)


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
    return dict.fromkeys(
        (field.source_id for spec in table.specs().values() for field in spec.fields), "a partition spec"
    )


def _find_estuary_task(properties: Mapping[str, str]) -> str | None:
    """Return the materialization for which Estuary's S3 Iceberg connector has written a table; None if there is none,
    or if another one has written it too."""
    tasks = list(read_added(properties))
    writers = fence.find_writer_hashes(properties)
    is_only = len(tasks) == 1 and all(each.startswith(fence.materialization_hash(tasks[0])) for each in writers)
    return tasks[0] if is_only else None
