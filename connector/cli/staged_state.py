"""The arguments --table and --state: a table, and the commits that a task's connector state names."""

from connector.cli.config_files import read_file
from connector.config.endpoint_config import EndpointConfig
from connector.host.errors import ArgumentError
from connector.model.state import StagedCommit
from connector.model.state_reader import read_state
from connector.model.table_identifier import TableIdentifier


def parse_table(name: str, endpoint: EndpointConfig) -> TableIdentifier:
    """Parse the argument --table. Raises ArgumentError if it is no namespace and table."""
    namespace, _, table = endpoint.name_in_catalog(name).partition(".")
    if not (namespace.strip() and table.strip()):
        raise ArgumentError(f"--table {name}: give the namespace and the table, with a dot between them.")
    return TableIdentifier(namespace, table)


def read_staged(state: str, materialization: str) -> list[StagedCommit]:
    """Read the staged commits of a task from a file. Raises UserError if the state cannot be read, and ArgumentError if
    its task is not known."""
    if not materialization:
        raise ArgumentError("--state needs --materialization: the state does not name its task.")
    return read_state(materialization, read_file(state))
