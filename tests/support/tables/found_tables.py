"""What the catalog has under one name."""

from typing import Final

from pyiceberg.catalog import Catalog

from connector.config.settings import parse
from connector.evolution.existing_table import CatalogEntry
from connector.host.errors import UserError
from connector.iceberg.catalog_entries import find_all
from connector.model.table_identifier import TableIdentifier
from support.bindings import MATERIALIZATION

ENDPOINT: Final = parse({"namespace": "shop", "catalog": {"catalog_type": "Local", "warehouse": "/unused"}}, [])[0]


def find(catalog: Catalog, path: TableIdentifier) -> CatalogEntry:
    """Return it. UserError if it can be neither used nor replaced."""
    [found] = find_all(catalog, ENDPOINT, MATERIALIZATION, [path])
    if isinstance(found, UserError):
        raise found
    return found
