"""Opens the catalog of an endpoint config, and finds the locations of new tables."""

import hashlib
import logging
import re
import tempfile
import threading
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from connector.config.catalog import GlueCatalog, HiveCatalog, LocalCatalog, RestCatalog, S3TablesCatalog, SqlCatalog
from connector.config.catalog_properties import is_signed
from connector.config.endpoint_config import EndpointConfig
from connector.encoding.values.pyiceberg_patches import apply_patches
from connector.host.tempdirs import temporary_directory, translate_disk_errors
from connector.iceberg.catalog_messages import explain_dropped_table
from connector.model.table_identifier import TableIdentifier
from connector.storage import store_properties

log = logging.getLogger(__name__)

apply_patches()  # for the default values of columns

_warehouse_lock = threading.Lock()

READABLE_CHARACTERS: Final = 64

OpenedCatalog: TypeAlias = Catalog  # for sessions, which only pass it on


def open_catalog(config: EndpointConfig) -> Catalog:
    """Open the catalog from the config alone. PyIceberg's environment variables and config files are not read."""
    # Only the client that is needed is imported: all of them take a second and many megabytes.
    addresses, aws = store_properties.find_file_addresses(config), store_properties.find_aws_credentials(config)
    credentials = store_properties.choose_file_credentials(config, aws)
    with translate_errors(config):
        match config.catalog:
            case LocalCatalog() as catalog:
                from connector.iceberg.catalogs.local import open_local

                return open_local(find_warehouse(catalog), addresses)
            case RestCatalog() as catalog if is_signed(catalog.properties):
                from connector.iceberg.catalogs.signed_rest import open_signed

                assert aws, "the config's check demands them"
                return open_signed(catalog, config.region, aws, addresses, credentials)
            case RestCatalog() as catalog:
                from connector.iceberg.catalogs.rest import open_rest

                has_own_keys = store_properties.has_bucket_keys(config)
                return open_rest(catalog, addresses, credentials=credentials, has_own_keys=has_own_keys)
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
                return open_glue(catalog, config.region, aws, addresses, credentials)


def open_existing_catalog(config: EndpointConfig) -> Catalog:
    """Open the catalog to look at its tables. Raises UserError if it is a Local catalog that does not exist: to open it
    would make it."""
    if isinstance(config.catalog, LocalCatalog):
        from connector.iceberg.catalogs.local import check_that_it_exists

        check_that_it_exists(config.catalog.warehouse)
    return open_catalog(config)


def open_without_creating(config: EndpointConfig) -> Catalog:
    """Open the catalog to check a config, or to plan. For a Local catalog that does not exist, this is an empty catalog
    in memory."""
    if missing := find_missing_warehouse(config):
        from connector.iceberg.catalogs.local import open_empty

        return open_empty(missing, store_properties.find_file_addresses(config))
    return open_catalog(config)


def find_missing_warehouse(config: EndpointConfig) -> Path | None:
    """Return the directory of a Local catalog that does not exist yet. None of all other catalogs."""
    if not isinstance(config.catalog, LocalCatalog):
        return None
    from connector.iceberg.catalogs import local

    warehouse = find_warehouse(config.catalog)
    return None if local.exists(warehouse) else warehouse


def translate_errors(config: EndpointConfig) -> AbstractContextManager[None]:
    """Translate the errors of using the catalog, but not those of commits."""
    match config.catalog:
        case LocalCatalog() as catalog:
            from connector.iceberg.catalogs import local

            return local.translate_errors(find_warehouse(catalog))
        case RestCatalog() | S3TablesCatalog() as catalog:
            from connector.iceberg.catalogs import rest_error_words, rest_errors

            return rest_errors.translate_errors(catalog.uri, rest_error_words.choose_words(catalog))
        case SqlCatalog() as catalog:
            from connector.iceberg.catalogs import sql

            return sql.translate_errors(catalog.uri)
        case HiveCatalog() as catalog:
            from connector.iceberg.catalogs import metastore

            return metastore.translate_errors(catalog.uri)
        case GlueCatalog():
            from connector.iceberg.catalogs import glue

            return glue.translate_errors(config.region)


def load_opened_table(catalog: Catalog, config: EndpointConfig, path: TableIdentifier) -> Table:
    """Load a table that a session has opened. UserError if it is gone."""
    try:
        with translate_errors(config):
            return catalog.load_table(path)
    except NoSuchTableError:
        raise explain_dropped_table(path) from None


def table_location(config: EndpointConfig, path: TableIdentifier) -> str | None:
    """Return the location of a new table, or None if the catalog chooses it."""
    match config.catalog:
        case LocalCatalog() as catalog:
            root: str | None = "/".join(filter(None, (f"file://{find_warehouse(catalog)}", config.prefix)))
        case RestCatalog(is_biglake=True):
            root = None  # a bucket of the config only has the credentials
        case _:
            root = store_properties.find_root(config)
    namespace, table = path
    return root and f"{root}/{_namespace_directory(namespace)}/{_with_digest(table)}"


def _namespace_directory(namespace: str) -> str:
    # Two namespaces must not share a directory: they may have tables of the same name.
    return namespace if _readable(namespace) == namespace else _with_digest(namespace)


def _with_digest(name: str) -> str:
    return f"{_readable(name)}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _readable(name: str) -> str:
    return re.sub("[^-_0-9a-zA-Z]", "_", name)[:READABLE_CHARACTERS]


def find_warehouse(catalog: LocalCatalog) -> Path:
    """Return the catalog's directory, which may not exist."""
    with _warehouse_lock:  # several threads may be the first to ask
        return catalog.warehouse or _temporary_warehouse()


@cache
def _temporary_warehouse() -> Path:
    """Make one directory for the whole process: later requests must find the tables of earlier ones."""
    parent = temporary_directory()
    with translate_disk_errors(f"directory in {parent}"):
        directory = Path(tempfile.mkdtemp(prefix="iceberg-warehouse-", dir=parent))
    log.warning(
        "the Local catalog has no /catalog/warehouse: its tables go to a temporary directory, %s, in which no other "
        "process looks for them",
        directory,
    )
    return directory
