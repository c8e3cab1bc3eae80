"""`inspect`: shows the status of a task's tables."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from pyiceberg.exceptions import ValidationError as InvalidMetadataError

from connector.cli.flow.flow_files import ConfigFile, FlowFile
from connector.cli.task_tables import describe_error, find_tables, parse_tables, read_commits
from connector.cli.texts.health_texts import encode_health
from connector.cli.texts.table_texts import describe_status, encode_status
from connector.config.settings import parse
from connector.host.errors import BACKFILL, ConnectorError
from connector.host.redaction import redact
from connector.iceberg.catalogs.opening import open_existing_catalog, translate_errors
from connector.iceberg.loaded_tables import FoundTables
from connector.iceberg.maintenance.table_health import TableHealth, read_health
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.table_status import TableStatus, list_files, read_status
from connector.model.state import StagedCommit
from connector.model.table_identifier import TableIdentifier

NO_SUCH_TABLE: Final = (
    "the state names staged commits for it, but the task has no such table. To keep their rows, bring the table back "
    "under its name. To give them up, backfill its binding."
)


@dataclass(frozen=True)
class InspectArguments:
    """The arguments of the command. Without tables, all of the task's tables."""

    source: ConfigFile | FlowFile
    tables: Sequence[str] = ()
    materialization: str | None = None
    state: str | None = None


@dataclass(frozen=True)
class InspectedTable:
    """The status and the health of a table. Its health is None if its files cannot be listed."""

    status: TableStatus
    health: TableHealth | None


@dataclass(frozen=True)
class InspectedTables:
    """What is known of each table, and the errors of those that cannot be read."""

    found: Sequence[InspectedTable]
    errors: Sequence[tuple[TableIdentifier, str]]


def inspect_tables(inspection: InspectArguments) -> InspectedTables:
    """Read the status of the tables. Raises UserError if the catalog or the state cannot be read."""
    task = inspection.source.read()
    endpoint, resources = parse(task.config, [binding.resource for binding in task.bindings])
    name = inspection.materialization or task.name
    staged = read_commits(inspection.state, name)[0] if inspection.state else None
    chosen = parse_tables(inspection.tables, endpoint)
    with closing(open_existing_catalog(endpoint)) as catalog, translate_errors(endpoint):
        found = find_tables(catalog, endpoint, resources, chosen, name)
        return _read(found, staged, has_chosen=bool(chosen))


def _read(found: FoundTables, staged: Sequence[StagedCommit] | None, *, has_chosen: bool) -> InspectedTables:
    inspected, errors = list[InspectedTable](), list[tuple[TableIdentifier, str]]()
    for path, table in found:
        if isinstance(table, ConnectorError):
            errors.append((path, describe_error(path, table)))
            continue
        try:
            listed: Sequence[ListedFile] | None = list_files(table)
            health: TableHealth | None = read_health(table, listed or ())
        except (ConnectorError, InvalidMetadataError) as error:
            listed = health = None
            errors.append((path, f"its health is not known: {_explain(path, error)}"))
        table_commits = None if staged is None else [commit for commit in staged if commit.path == path]
        inspected.append(InspectedTable(read_status(path, table, listed, table_commits), health))
    seen = {each.status.path for each in inspected} | {path for path, _ in errors}
    if not has_chosen:
        for path in sorted({commit.path for commit in staged or ()} - seen):
            errors.append((path, NO_SUCH_TABLE))
    return InspectedTables(inspected, errors)


def _explain(path: TableIdentifier, error: Exception) -> str:
    if isinstance(error, ConnectorError):
        return describe_error(path, error)
    broken = f"a metadata file is broken ({type(error).__name__}: {redact(str(error))})"
    return f"{broken}. Repair the table, or {BACKFILL}."


def describe_tables(inspected: InspectedTables) -> str:
    """Describe for a person the tables that can be read."""
    lines = [line for each in inspected.found for line in (*describe_status(each.status, each.health), "")]
    nothing = "" if inspected.errors else "The connector has created no table here. Name others with --table."
    return "\n".join(lines).strip() or nothing


def encode_tables(inspected: InspectedTables) -> str:
    """Return the tables as JSON."""
    return json.dumps(
        {
            "tables": [
                {**encode_status(each.status), "health": each.health and encode_health(each.health)}
                for each in inspected.found
            ],
            "errors": [{"table": str(path), "message": error} for path, error in inspected.errors],
        },
        indent=2,
    )
