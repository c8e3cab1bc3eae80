"""The tables of a task that a command works on, and the commits that the task's connector state names."""

import re
from collections.abc import Sequence
from itertools import chain

from connector.cli.config_files import read_file
from connector.config.endpoint_config import EndpointConfig
from connector.config.resource_config import ResourceConfig
from connector.config.settings import resource_path
from connector.host.errors import ArgumentError, ConnectorError
from connector.iceberg.catalogs.opening import OpenedCatalog
from connector.iceberg.loaded_tables import FoundTables, find_own_tables, load_tables
from connector.model.state import FinishedCommit, StagedCommit
from connector.model.state_reader import read_finished, read_state
from connector.model.table_identifier import TableIdentifier


def parse_table(name: str, endpoint: EndpointConfig) -> TableIdentifier:
    """Parse the argument --table. Raises ArgumentError if it is no namespace and table."""
    namespace, _, table = endpoint.name_in_catalog(name).partition(".")
    if not (namespace.strip() and table.strip()):
        raise ArgumentError(f"--table {name}: give the namespace and the table, with a dot between them.")
    return TableIdentifier(namespace, table)


def parse_tables(names: Sequence[str], endpoint: EndpointConfig) -> list[TableIdentifier]:
    """Parse the arguments --table, each table once. Raises ArgumentError if one is no namespace and table."""
    return [*dict.fromkeys(parse_table(each, endpoint) for each in names)]


def find_tables(
    catalog: OpenedCatalog,
    endpoint: EndpointConfig,
    resources: Sequence[ResourceConfig],
    chosen: Sequence[TableIdentifier],
    materialization: str,
) -> FoundTables:
    """Yield the chosen tables, or else those of the task in the namespaces of its bindings."""
    if chosen:
        return load_tables(catalog, endpoint, chosen)
    namespaces = {resource_path(endpoint, each).namespace for each in resources} or {endpoint.own_namespace}
    return chain.from_iterable(find_own_tables(catalog, endpoint, each, materialization) for each in sorted(namespaces))


def describe_error(path: TableIdentifier, error: ConnectorError) -> str:
    """Return the text of an error without the name of its table, with which the line that shows it begins."""
    return re.sub(f"^table {re.escape(str(path))}: ", "", str(error), flags=re.IGNORECASE)


def read_commits(state: str, materialization: str) -> tuple[list[StagedCommit], list[FinishedCommit]]:
    """Read the staged and the finished commits of a task from a file. Raises UserError if the state cannot be read, and
    ArgumentError if its task is not known."""
    if not materialization:
        raise ArgumentError("--state needs --materialization: the state does not name its task.")
    kept = read_file(state)
    return read_state(materialization, kept), read_finished(materialization, kept)
