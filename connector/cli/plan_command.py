"""`plan`: prints what an apply request would do, without doing it."""

import json
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import Final

from connector.cli.config_files import read_file
from connector.cli.flow_files import FlowFile
from connector.cli.task_requests import find_last, make_apply, make_validate
from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.tables import find_all
from connector.rpc.plan import list_actions, plan_tables
from connector.rpc.validate import validate
from protocol import request
from protocol.request import Request

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
    return _plan_actions(make_apply(task, validate(make_validate(task, last)), last, state))


def describe_plan(actions: list[str], *, as_json: bool) -> str:
    """Describe the actions, one on each line, or as JSON."""
    return json.dumps({"actions": actions}, indent=2) if as_json else "\n".join(actions) or NOTHING


def _plan_actions(message: request.Apply) -> list[str]:
    task = message.materialization
    endpoint, resources = parse(task.config, [binding.resource_config for binding in task.bindings])
    with closing(open_catalog(endpoint)) as catalog:
        return list_actions(plan_tables(message, resources, endpoint.advanced, partial(find_all, catalog, endpoint)))
