"""Finds what the catalog has under the name of a table: plans of changes start from it."""

from collections.abc import Collection, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import IcebergType

from connector.config.endpoint_config import EndpointConfig
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.host.errors import UserError
from connector.host.signals import map_in_threads
from connector.iceberg.catalogs.opening import translate_errors
from connector.iceberg.catalogs.registered_tables import FixedColumns
from connector.iceberg.loading import check_table_properties, load_table
from connector.iceberg.metadata.row_lineage import can_keep_lineage
from connector.iceberg.metadata.table_arrangement import check_partition_spec, read_arrangement
from connector.iceberg.metadata.table_properties import find_generation, restrict_to_generation
from connector.model.table_identifier import Generation, Owner, TableIdentifier


def find(catalog: Catalog, path: TableIdentifier) -> CatalogEntry:
    """Return what a plan of changes starts from. UserError if what has the name can be neither used nor replaced."""
    table = load_table(catalog, path)
    if table:
        check_partition_spec(table)
    elif catalog.view_exists(path):
        raise UserError(f"{path} is a view. Choose another table name, or drop the view.")
    return describe_found(catalog, path, table)


def find_all(
    catalog: Catalog, endpoint: EndpointConfig, paths: Sequence[TableIdentifier]
) -> list[CatalogEntry | UserError]:
    """Return what the catalog has at each path, or the UserError why it cannot be used. Other errors are raised."""

    def look_up(path: TableIdentifier) -> CatalogEntry | UserError:
        try:
            with translate_errors(endpoint):
                return find(catalog, path)
        except UserError as error:
            return error

    return map_in_threads(look_up, paths, "lookup")


def describe_found(
    catalog: Catalog, path: TableIdentifier, table: Table | None, unconvertible: Collection[int] = ()
) -> CatalogEntry:
    """Return what a plan starts from, if the catalog has this table; None: it has none.

    `unconvertible` are the ids of columns with a value that has no equivalent.
    """
    if table is None:
        return CatalogEntry(catalog.namespace_exists(path.namespace), None)
    check_table_properties(table)
    owner = Owner.of(table.properties)
    generation = find_generation(table, owner.materialization if owner else "")
    # Without the columns of a backfill, which another program has removed, another backfill can still begin.
    is_lost = generation.is_awaited and generation.schema_id not in table.schemas()
    task_table = table if is_lost else restrict_to_generation(table, generation)
    return CatalogEntry(
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
