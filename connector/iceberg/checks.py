"""Whether an endpoint can be used: its storage is tried, its catalog is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from pyiceberg.catalog import Catalog

from connector.config import EndpointConfig
from connector.errors import ConnectorError, UserError
from connector.iceberg import storage
from connector.iceberg.catalogs import data_file_properties, explained, open_catalog
from connector.iceberg.file_access import file_properties
from connector.iceberg.lookups import find_all
from connector.parallel import side_by_side
from connector.steps import Step, attempt
from connector.table_change import Found, Path


@dataclass(frozen=True)
class Namespace:
    """A catalog that answers, and whether it has a namespace."""

    catalog: Catalog
    name: str
    exists: bool


Tables: TypeAlias = list[Found | UserError]

NOT_SEEN: Final = Found(namespace_exists=True, table=None)


def catalog_step(endpoint: EndpointConfig) -> Step[Catalog]:
    return attempt("catalog", partial(open_catalog, endpoint))


def storage_step(endpoint: EndpointConfig, opened: Step[Catalog]) -> Step[bool]:
    """Needs no catalog, but is done with what its server may have added to the config."""
    added = opened.outcome.properties if isinstance(opened.outcome, Catalog) else {}
    return attempt("storage", lambda: storage.probe(endpoint, file_properties(data_file_properties(endpoint), added)))


def namespace_step(endpoint: EndpointConfig, opened: Step[Catalog], name: str) -> Step[Namespace]:
    def look_up(catalog: Catalog) -> Namespace:
        with explained(endpoint):
            return Namespace(catalog, name, catalog.namespace_exists(name))

    return opened.then("namespace", look_up)


def survey(endpoint: EndpointConfig, paths: Sequence[Path]) -> tuple[Tables, list[ConnectorError]]:
    """What is at each of these paths, and what makes the endpoint unusable."""

    opened = catalog_step(endpoint)

    def ask_catalog() -> tuple[Step[Any], ...]:
        # One question before there are many: a catalog that refuses every one is to say so once.
        namespace = namespace_step(endpoint, opened, paths[0][0] if paths else endpoint.namespace.lower())
        return namespace, namespace.then("tables", lambda found: find_all(found.catalog, endpoint, paths))

    def try_storage() -> tuple[Step[Any], ...]:
        return (storage_step(endpoint, opened),)

    of_storage, of_catalog = side_by_side(lambda line: line(), (try_storage, ask_catalog), 2, "survey")
    errors = [step.error for step in (*of_storage, opened, *of_catalog) if step.error]
    tables = of_catalog[-1].outcome
    return (tables if isinstance(tables, list) else [NOT_SEEN] * len(paths)), errors
