"""`plan`: prints what an apply request would do, without doing it."""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from connector.cli.config_files import read_file
from connector.cli.flow.flow_files import FlowFile
from connector.cli.flow.task_requests import find_last, make_apply, make_validate
from connector.config.settings import parse
from connector.evolution.existing_table import CatalogEntry
from connector.evolution.field_config import fold_case
from connector.evolution.table_change import AddColumn
from connector.host.errors import UserError
from connector.iceberg.catalog_entries import find_all
from connector.iceberg.catalogs.opening import find_missing_warehouse, open_without_creating
from connector.model.table_identifier import TableIdentifier
from connector.rpc.plan import Plan, list_actions, plan_tables
from connector.rpc.validate import validate
from protocol import request
from protocol.request import Request

log = logging.getLogger(__name__)

NOTHING: Final = "nothing to do: every table fits its binding"


def plan_recorded(requests: Iterable[Request]) -> list[str]:
    """Return the actions of the first apply request. Other requests are ignored."""
    for message in requests:
        if isinstance(message, request.Apply):
            return _plan_actions(message)
    raise UserError(
        'stdin has no apply request. Add one: a line that begins with {"apply": …}. Or name a Flow specification with '
        "--flow."
    )


def plan_task(source: FlowFile, state_file: str | None = None) -> list[str]:
    """Return the actions of the apply request that Flow would send for a task of a Flow specification."""
    state = read_file(state_file) if state_file else None
    task = source.read()
    last = find_last(task, *parse(task.config, [binding.resource for binding in task.bindings]))
    return _plan_actions(make_apply(task, validate(make_validate(task, last)), last, state), knows_columns=False)


def describe_plan(actions: list[str], *, as_json: bool) -> str:
    """Describe the actions, one on each line, or as JSON."""
    return json.dumps({"actions": actions}, indent=2) if as_json else "\n".join(actions) or NOTHING


def _plan_actions(message: request.Apply, *, knows_columns: bool = True) -> list[str]:
    """Plan the actions. If not `knows_columns`, the request does not say which columns the fields have had."""
    task = message.materialization
    endpoint, resources = parse(task.config, [binding.resource_config for binding in task.bindings])
    tables: dict[TableIdentifier, CatalogEntry | UserError] = {}

    def look_up(name: str, paths: Sequence[TableIdentifier]) -> list[CatalogEntry | UserError]:
        found = find_all(catalog, endpoint, name, paths)
        tables.update(zip(paths, found, strict=True))
        return found

    if missing := find_missing_warehouse(endpoint):
        log.info("there is no Local catalog in %s yet: apply creates it", missing)
    with closing(open_without_creating(endpoint)) as catalog:
        planned = plan_tables(message, resources, endpoint, look_up)
    if knows_columns:
        return list_actions(planned)
    notes = dict(note for plan in planned for note in _note_renames(plan, tables[plan.target.path]))
    return [f"{action}{notes.get(action, '')}" for action in list_actions(planned)]


def _note_renames(plan: Plan, found: CatalogEntry | UserError) -> Iterator[tuple[str, str]]:
    """Yield the actions that add a column, each with what apply does instead if its field had another one before."""
    columns = found.table.schema.fields if isinstance(found, CatalogEntry) and found.table else ()
    written = {fold_case(column.name) for column in plan.target.columns}
    others = ", ".join(repr(column.name) for column in columns if fold_case(column.name) not in written)
    for change in plan.changes:
        if isinstance(change, AddColumn) and others:
            yield (
                plan.describe(change),
                f"; or, if its field had another column before, rename that one (the table has {others})",
            )
