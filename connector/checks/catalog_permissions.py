"""Whether a catalog would accept changes, tried as far as that leaves nothing behind."""

import uuid
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.checks.steps import Skipped
from connector.config.catalog import GlueCatalog, HiveCatalog, LocalCatalog, RestCatalog, S3TablesCatalog, SqlCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.iceberg.catalogs.opening import table_location, translate_errors
from connector.model.table_identifier import TableIdentifier

SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True))


def try_to_create(config: EndpointConfig, catalog: Catalog, namespace: str, *, exists: bool) -> Skipped | None:
    """Begin to create a table, and never finish. `exists` says whether its namespace does."""
    match config.catalog:
        case LocalCatalog() | SqlCatalog():
            from connector.iceberg.catalogs.sql import try_to_write

            with translate_errors(config):
                try_to_write(catalog)
            return None
        case RestCatalog() if not exists:
            return Skipped("the namespace does not exist yet")
        case RestCatalog():
            path = TableIdentifier(namespace, f"materialize_iceberg_probe_{uuid.uuid4().hex}")
            with translate_errors(config):
                # A staged creation: the table exists for nobody until it is committed, which it never is.
                catalog.create_table_transaction(path, SCHEMA, table_location(config, path))
            return None
        case GlueCatalog() | S3TablesCatalog() | HiveCatalog():
            return Skipped("this catalog cannot be asked without doing it")
