"""Loads tables from the catalog, and says why the connector cannot write to one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from pydantic import ValidationError as UnreadableAnswerError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.table import Table

from connector.config.endpoint_config import EndpointConfig
from connector.config.values import FORMAT_VERSIONS
from connector.encoding.parquet.file_options import FileOptions
from connector.host.errors import NEW_TABLE, ConnectorError, UserError
from connector.host.threads import map_in_threads
from connector.iceberg.catalog_messages import explain_unknown_type
from connector.iceberg.catalogs.opening import translate_errors
from connector.iceberg.fences import fence
from connector.iceberg.metadata.table_properties import check_committable, check_location, name_table_in_errors
from connector.model.table_identifier import Owner, TableIdentifier

# Iceberg's own REST server answers so.
NOT_FOUND: Final = (
    "the catalog lists the table, but does not find it. If it was not dropped just now, its metadata file may be gone. "
    "Restore the file, or drop the table in the catalog."
)

FoundTables: TypeAlias = Iterator[tuple[TableIdentifier, Table | ConnectorError]]


def load_table(catalog: Catalog, path: TableIdentifier) -> Table | None:
    """Load a table; None if there is none. UserError if the connector cannot write to what is there."""
    try:
        table = catalog.load_table(path)
    except NoSuchIcebergTableError as error:
        raise UserError(f"{path} exists, but is no Iceberg table. Choose another table name, or drop it.") from error
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except (InvalidMetadataError, UnreadableAnswerError, TypeError) as error:
        if reason := explain_unknown_type(error):
            raise UserError(f"Table {path} {reason}") from error
        if not isinstance(error, InvalidMetadataError):
            raise
        raise UserError(f"Table {path}: its metadata file is broken. Restore the file, or {NEW_TABLE}.") from error
    version = table.metadata.format_version
    if version not in FORMAT_VERSIONS:
        raise UserError(
            f"Table {path} has Iceberg format version {version}. Only versions 2 and 3 are written: upgrade the table "
            "(in Spark: ALTER TABLE … SET TBLPROPERTIES ('format-version'='2')), or choose another table name."
        )
    check_location(table)
    return table


def load_tables(
    catalog: Catalog,
    endpoint: EndpointConfig,
    paths: Sequence[TableIdentifier],
    missing: str = "the table does not exist.",
) -> FoundTables:
    """Load the tables. A table that cannot be read comes with the error: it may be the only one.

    `missing` is the error of a table that the catalog does not find.
    """

    def load(path: TableIdentifier) -> Table | ConnectorError:
        try:
            with translate_errors(endpoint):
                return load_table(catalog, path) or UserError(missing)
        except ConnectorError as error:
            return error

    return zip(paths, map_in_threads(load, paths, "lookup"), strict=True)


def find_own_tables(catalog: Catalog, endpoint: EndpointConfig, namespace: str, materialization: str) -> FoundTables:
    """Find the tables that the connector has created in a namespace, for all tasks if it is "". Otherwise those that
    one task has created or written to.

    A table that cannot be read comes with the error. Raises UserError if the namespace does not exist.
    """
    for path, table in load_tables(catalog, endpoint, _list_tables(catalog, namespace), NOT_FOUND):
        if isinstance(table, ConnectorError):
            if not isinstance(table.__cause__, NoSuchIcebergTableError):
                yield path, table
        elif _is_own(table.properties, materialization):
            yield path, table


def _is_own(properties: Mapping[str, str], materialization: str) -> bool:
    owner = Owner.of(properties)
    if owner and materialization in ("", owner.materialization):
        return True
    return bool(materialization) and fence.has_written(properties, materialization)


def _list_tables(catalog: Catalog, namespace: str) -> list[TableIdentifier]:
    try:
        listed = catalog.list_tables(namespace)
    except NoSuchNamespaceError as error:
        raise UserError(f"namespace {namespace} does not exist: no task that uses it has been published.") from error
    return [TableIdentifier(namespace, identifier[-1]) for identifier in sorted(listed)]


def check_table_properties(table: Table) -> None:
    """Raise UserError if the table's properties ask for files that the connector cannot write."""
    with name_table_in_errors(table):
        FileOptions.of_table(table.properties)
    check_committable(table)
