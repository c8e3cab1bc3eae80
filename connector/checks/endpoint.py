"""Checks an endpoint: whether its catalog answers and accepts changes, and whether its storage can be used."""

import uuid
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.checks import storage_probe
from connector.checks.steps import Skipped, Step, attempt
from connector.config.catalog import GlueCatalog, HiveCatalog, LocalCatalog, RestCatalog, S3TablesCatalog, SqlCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.evolution.existing_table import CatalogEntry
from connector.host.errors import ConnectorError, UserError
from connector.host.threads import map_in_threads
from connector.iceberg.catalog_entries import find_all
from connector.iceberg.catalogs.opening import open_without_creating, table_location, translate_errors
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import file_properties, keep_addresses
from connector.storage.store_properties import data_file_properties


@dataclass(frozen=True)
class OpenedEndpoint:
    """An endpoint whose catalog was opened."""

    config: EndpointConfig
    catalog: Catalog


@dataclass(frozen=True)
class Namespace:
    """A namespace of an endpoint, and whether the catalog has it."""

    endpoint: OpenedEndpoint
    name: str
    exists: bool


Tables: TypeAlias = list[CatalogEntry | UserError]

SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True))
NOT_SEEN: Final = CatalogEntry(namespace_exists=True, table=None)
PROBE_TABLE_PREFIX: Final = "materialize_iceberg_probe_"


def open_endpoint(config: EndpointConfig) -> OpenedEndpoint:
    """Open the endpoint's catalog, but do not create one. The caller closes it."""
    return OpenedEndpoint(config, open_without_creating(config))


def look_up_namespace(endpoint: OpenedEndpoint, name: str) -> Namespace:
    """Ask the catalog whether a namespace exists."""
    with translate_errors(endpoint.config):
        return Namespace(endpoint, name, endpoint.catalog.namespace_exists(name))


def try_to_create(namespace: Namespace) -> Skipped | None:
    """Check whether the catalog lets us create a table, if that is possible without leaving one behind."""
    config, catalog = namespace.endpoint.config, namespace.endpoint.catalog
    match config.catalog:
        case LocalCatalog() | SqlCatalog():
            from connector.iceberg.catalogs.sql import try_to_write

            with translate_errors(config):
                try_to_write(catalog)
            return None
        case RestCatalog() if not namespace.exists:
            return Skipped("the namespace does not exist yet")
        case RestCatalog():
            path = TableIdentifier(namespace.name, new_table_name())
            with translate_errors(config):
                # A staged creation: without a commit, which never comes, no table exists.
                catalog.create_table_transaction(path, SCHEMA, table_location(config, path))
            return None
        case GlueCatalog() | S3TablesCatalog() | HiveCatalog():
            return Skipped("this catalog cannot be asked without creating a table")


def new_table_name() -> str:
    """Return the name of a new probe table."""
    return f"{PROBE_TABLE_PREFIX}{uuid.uuid4().hex}"


def try_storage(config: EndpointConfig, opened: OpenedEndpoint | None) -> str | Skipped:
    """Try the storage and return the place of the probe file. A catalog is not needed; an opened one may add properties
    from its server."""
    added = opened.catalog.properties if opened else {}
    own = data_file_properties(config)
    return storage_probe.probe(config, keep_addresses(file_properties(own, added), own))


def survey(config: EndpointConfig, task: str, paths: Sequence[TableIdentifier]) -> tuple[Tables, list[ConnectorError]]:
    """Return the table at each path for a task, or none, and the errors that keep the endpoint from being used."""
    opened = attempt("catalog", partial(open_endpoint, config))

    def ask_catalog() -> tuple[Step[Any], ...]:
        # Ask once before asking for all tables: a catalog that refuses every request should appear as one error.
        name = paths[0][0] if paths else config.own_namespace
        namespace = opened.then("namespace", partial(look_up_namespace, name=name))
        tables = namespace.then(
            "tables", lambda found: find_all(found.endpoint.catalog, config, task, paths, {found.name: found.exists})
        )
        return namespace, tables

    def ask_storage() -> tuple[Step[Any], ...]:
        return (attempt("storage", partial(try_storage, config, opened.found)),)

    with closing(opened.found.catalog) if opened.found else nullcontext():
        of_storage, of_catalog = map_in_threads(lambda ask: ask(), (ask_storage, ask_catalog), "survey")
    errors = [step.error for step in (*of_storage, opened, *of_catalog) if step.error]
    return of_catalog[-1].found or [NOT_SEEN] * len(paths), errors
