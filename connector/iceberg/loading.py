"""Loads a table from the catalog, and says why the connector cannot write to it."""

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchNamespaceError, NoSuchTableError, ValidationError
from pyiceberg.table import Table

from connector.config.values import FORMAT_VERSIONS
from connector.encoding.parquet.file_options import FileOptions
from connector.host.errors import UserError
from connector.iceberg.metadata.table_properties import check_properties, is_location, name_table_in_errors
from connector.model.table_identifier import TableIdentifier


def load_table(catalog: Catalog, path: TableIdentifier) -> Table | None:
    """Load a table; None if there is none. UserError if the connector cannot write to what is there."""
    try:
        table = catalog.load_table(path)
    except NoSuchIcebergTableError as error:
        raise UserError(f"{path} exists, but is no Iceberg table. Choose another table name, or drop it.") from error
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except ValidationError as error:
        raise UserError(
            f"Table {path}: its metadata file is broken. Restore the file, or drop the table in its catalog "
            "and publish the task again with the binding's backfill incremented."
        ) from error
    version = table.metadata.format_version
    if version not in FORMAT_VERSIONS:
        raise UserError(
            f"Table {path} has Iceberg format version {version}. Only versions 2 and 3 are written: upgrade the table "
            "(in Spark: ALTER TABLE … SET TBLPROPERTIES ('format-version'='2')), or choose another table name."
        )
    if not is_location(table.location()):
        raise UserError(
            f"Table {path} is at {table.location()}. The connector only writes to absolute locations without # and ?. "
            "Choose another table name, or drop the table and create it at another location."
        )
    return table


def check_table_properties(table: Table) -> None:
    """Raise UserError if the table's properties ask for files that the connector cannot write."""
    with name_table_in_errors(table):
        FileOptions.of_table(table.properties)
        check_properties(table.properties)
