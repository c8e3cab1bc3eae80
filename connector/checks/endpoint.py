"""Whether an endpoint can be used: its catalog is asked, its storage is tried."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from pyiceberg.catalog import Catalog

from connector.checks import catalog_permissions, storage_probe
from connector.checks.steps import Skipped, Step, attempt
from connector.config.endpoint_config import EndpointConfig
from connector.evolution.table_change import Found
from connector.host.errors import ConnectorError, UserError
from connector.host.threads import map_in_threads
from connector.iceberg.catalogs.opening import open_catalog, translate_errors
from connector.iceberg.tables import find_all
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import file_properties
from connector.storage.file_stores import data_file_properties


@dataclass(frozen=True)
class OpenedEndpoint:
    """An endpoint whose catalog was opened."""

    config: EndpointConfig
    catalog: Catalog


@dataclass(frozen=True)
class Namespace:
    """What a catalog answers about a namespace."""

    endpoint: OpenedEndpoint
    name: str
    exists: bool


Tables: TypeAlias = list[Found | UserError]

NOT_SEEN: Final = Found(namespace_exists=True, table=None)


def open_endpoint(config: EndpointConfig) -> OpenedEndpoint:
    return OpenedEndpoint(config, open_catalog(config))


def look_up_namespace(endpoint: OpenedEndpoint, name: str) -> Namespace:
    with translate_errors(endpoint.config):
        return Namespace(endpoint, name, endpoint.catalog.namespace_exists(name))


def try_to_create(namespace: Namespace) -> Skipped | None:
    endpoint = namespace.endpoint
    return catalog_permissions.try_to_create(endpoint.config, endpoint.catalog, namespace.name, exists=namespace.exists)


def try_storage(config: EndpointConfig, opened: OpenedEndpoint | None) -> str | Skipped:
    """Needs no catalog; an opened one may add properties from its server."""
    added = opened.catalog.properties if opened else {}
    return storage_probe.probe(config, file_properties(data_file_properties(config), added))


def survey(config: EndpointConfig, paths: Sequence[TableIdentifier]) -> tuple[Tables, list[ConnectorError]]:
    """What there is at each of these paths, and the errors that make the endpoint unusable."""
    opened = attempt("catalog", partial(open_endpoint, config))

    def ask_catalog() -> tuple[Step[Any], ...]:
        # One question first: a catalog that refuses every question should say so once.
        name = paths[0][0] if paths else config.namespace.lower()
        namespace = opened.then("namespace", partial(look_up_namespace, name=name))
        tables = namespace.then("tables", lambda found: find_all(found.endpoint.catalog, config, paths))
        return namespace, tables

    def ask_storage() -> tuple[Step[Any], ...]:
        return (attempt("storage", partial(try_storage, config, opened.found)),)

    with closing(opened.found.catalog) if opened.found else nullcontext():
        of_storage, of_catalog = map_in_threads(lambda ask: ask(), (ask_storage, ask_catalog), 2, "survey")
    errors = [step.error for step in (*of_storage, opened, *of_catalog) if step.error]
    return of_catalog[-1].found or [NOT_SEEN] * len(paths), errors
