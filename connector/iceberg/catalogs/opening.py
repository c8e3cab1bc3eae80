"""Opens the catalog of an endpoint config, and says where its new tables go and what opens their files."""

import hashlib
import logging
import re
import tempfile
import threading
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog

from connector.config.catalog import GlueCatalog, HiveCatalog, LocalCatalog, RestCatalog, S3TablesCatalog, SqlCatalog
from connector.config.catalog_properties import is_signed
from connector.config.endpoint_config import EndpointConfig
from connector.config.values import Settings
from connector.host.refresh import Refreshed
from connector.host.tempdirs import temporary_directory, translate_disk_errors
from connector.model.table_identifier import TableIdentifier
from connector.storage import file_stores
from connector.storage.file_access import FileAccess, access_to

logger = logging.getLogger(__name__)

_warehouse_lock = threading.Lock()

READABLE_CHARACTERS: Final = 64


def open_catalog(config: EndpointConfig) -> Catalog:
    """The catalog, made from the config alone: PyIceberg's own environment variables and files are not read."""
    # Each catalog's client is imported when it is needed: together they take a second and many megabytes.
    addresses, aws = file_stores.file_addresses(config), file_stores.aws_credentials_of(config)
    credentials = file_stores.file_credentials(config, aws)
    with translate_errors(config):
        match config.catalog:
            case LocalCatalog() as catalog:
                from connector.iceberg.catalogs.local import open_local

                return open_local(warehouse_of(catalog), addresses)
            case RestCatalog() as catalog if is_signed(dict(catalog.properties)):
                from connector.iceberg.catalogs.signed_rest import open_signed

                assert aws, "the config's check demands them"
                return open_signed(catalog, config.region, aws, addresses, credentials)
            case RestCatalog() as catalog:
                from connector.iceberg.catalogs.rest import open_rest

                return open_rest(catalog, addresses, credentials=credentials)
            case S3TablesCatalog() as catalog:
                from connector.iceberg.catalogs.signed_rest import open_s3_tables

                assert aws, "the config's check demands them"
                return open_s3_tables(catalog, aws, addresses, credentials)
            case SqlCatalog() as catalog:
                from connector.iceberg.catalogs.sql import open_sql

                return open_sql(catalog, addresses, credentials)
            case HiveCatalog() as catalog:
                from connector.iceberg.catalogs.hive import open_hive

                return open_hive(catalog, addresses, credentials)
            case GlueCatalog() as catalog:
                from connector.iceberg.catalogs.glue import open_glue

                assert aws, "the config's check demands them"
                return open_glue(catalog, config.region, aws, addresses)


def translate_errors(config: EndpointConfig) -> AbstractContextManager[None]:
    """For any use of the catalog but commits: what its client raises becomes an error that says what to do."""
    match config.catalog:
        case LocalCatalog() as catalog:
            from connector.iceberg.catalogs import local

            return local.translate_errors(warehouse_of(catalog))
        case RestCatalog() as catalog:
            from connector.iceberg.catalogs import rest_errors

            return rest_errors.translate_errors(catalog.uri)
        case S3TablesCatalog() as catalog:
            from connector.iceberg.catalogs import rest_errors

            return rest_errors.translate_errors(catalog.uri, rest_errors.S3_TABLES_WORDS)
        case SqlCatalog() as catalog:
            from connector.iceberg.catalogs import sql

            return sql.translate_errors(catalog.uri)
        case HiveCatalog() as catalog:
            from connector.iceberg.catalogs import metastore_errors

            return metastore_errors.translate_errors(catalog.uri)
        case GlueCatalog():
            from connector.iceberg.catalogs import glue

            return glue.translate_errors(config.region)


def keep_access_fresh(
    catalog: Catalog, config: EndpointConfig, path: TableIdentifier, first: FileAccess
) -> Refreshed[Settings]:
    """What opens a table's files, renewed for as long as a session lasts."""

    def load() -> FileAccess:
        with translate_errors(config):
            return access_to(catalog.load_table(path))

    return Refreshed(f"the keys for the files of table {'.'.join(path)}", load, first)


def table_location(config: EndpointConfig, path: TableIdentifier) -> str | None:
    """Where a new table's files go; None leaves it to the catalog."""
    match config.catalog:
        case LocalCatalog() as catalog:
            root: str | None = "/".join(filter(None, (f"file://{warehouse_of(catalog)}", config.prefix)))
        case _:
            root = file_stores.root(config)
    namespace, table = path
    return root and f"{root}/{_namespace_directory(namespace)}/{_with_digest(table)}"


def _namespace_directory(namespace: str) -> str:
    # Two namespaces must not share a directory: their tables may have the same name.
    return namespace if _readable(namespace) == namespace else _with_digest(namespace)


def _with_digest(name: str) -> str:
    return f"{_readable(name)}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _readable(name: str) -> str:
    return re.sub("[^-_0-9a-zA-Z]", "_", name)[:READABLE_CHARACTERS]


def warehouse_of(catalog: LocalCatalog) -> Path:
    """The catalog's directory, whether or not it exists."""
    with _warehouse_lock:  # several threads may be the first to ask
        return catalog.warehouse or _temporary_warehouse()


@cache
def _temporary_warehouse() -> Path:
    """One directory for the whole process: the next request must find what one has created."""
    parent = temporary_directory()
    with translate_disk_errors(f"directory in {parent}"):
        directory = Path(tempfile.mkdtemp(prefix="iceberg-warehouse-", dir=parent))
    logger.warning(
        "the Local catalog has no /catalog/warehouse: its tables go to a temporary directory, %s, in which no other "
        "process looks for them",
        directory,
    )
    return directory
