"""`inspect`: shows the status of a task's tables."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from connector.cli.flow_files import ConfigFile, FlowFile
from connector.cli.staged_state import parse_table, read_staged
from connector.cli.table_texts import describe_status, encode_status
from connector.config.settings import parse, resource_path
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog, translate_errors
from connector.iceberg.table_status import FoundTables, TableStatus, find_own_tables, load_tables, read_status
from connector.model.state import StagedCommit
from connector.model.table_identifier import TableIdentifier


@dataclass(frozen=True)
class InspectArguments:
    """The arguments of the command. Without tables, all of the task's tables."""

    source: ConfigFile | FlowFile
    tables: Sequence[str] = ()
    materialization: str | None = None
    state: str | None = None


@dataclass(frozen=True)
class InspectedTables:
    """The status of each table, and the errors of those that cannot be read."""

    found: Sequence[TableStatus]
    errors: Sequence[tuple[TableIdentifier, str]]


def inspect_tables(inspection: InspectArguments) -> InspectedTables:
    """Read the status of the tables. Raises UserError if the catalog or the state cannot be read."""
    task = inspection.source.read()
    endpoint, resources = parse(task.config, [binding.resource for binding in task.bindings])
    name = inspection.materialization or task.name
    staged = read_staged(inspection.state, name) if inspection.state else None
    namespaces = {resource_path(endpoint, each).namespace for each in resources} or {endpoint.namespace.lower()}
    with closing(open_catalog(endpoint)) as catalog, translate_errors(endpoint):
        if inspection.tables:
            found = load_tables(catalog, [*map(parse_table, inspection.tables)])
        else:
            found = (each for namespace in sorted(namespaces) for each in find_own_tables(catalog, namespace, name))
        return _read(found, staged, has_chosen=bool(inspection.tables))


def _read(
    found: FoundTables,
    staged: Sequence[StagedCommit] | None,
    *,
    has_chosen: bool,
) -> InspectedTables:
    statuses, errors = [], []
    for path, table in found:
        if isinstance(table, UserError):
            errors.append((path, str(table)))
        else:
            of_table = None if staged is None else [commit for commit in staged if commit.path == path]
            statuses.append(read_status(path, table, of_table))
    seen = {status.path for status in statuses} | {path for path, _ in errors}
    if not has_chosen:
        for path in sorted({commit.path for commit in staged or ()} - seen):
            errors.append((path, "the state names staged commits for it, but the task has no such table."))
    return InspectedTables(statuses, errors)


def describe_tables(inspected: InspectedTables) -> str:
    """Describe the tables for a person."""
    lines = [line for status in inspected.found for line in (*describe_status(status), "")]
    lines += (f"table {path}: {error}" for path, error in inspected.errors)
    return "\n".join(lines).strip() or "The connector has created no table here."


def encode_tables(inspected: InspectedTables) -> str:
    """Return the tables as JSON."""
    return json.dumps(
        {
            "tables": [*map(encode_status, inspected.found)],
            "errors": [{"table": str(path), "message": error} for path, error in inspected.errors],
        },
        indent=2,
    )
