"""`plan`: prints what an apply request would do, without doing it."""

from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import Final

from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.tables import find_all
from connector.rpc.plan import list_actions, plan_tables
from protocol import request
from protocol.request import Request

NOTHING: Final = "nothing to do: every table fits its binding"


def plan(requests: Iterable[Request]) -> str:
    """Return the actions of the first apply request, one on each line. Other requests are ignored."""
    for message in requests:
        if isinstance(message, request.Apply):
            return "\n".join(_plan_actions(message)) or NOTHING
    raise UserError('stdin has no apply request. Add one: a line that begins with {"apply": …}.')


def _plan_actions(message: request.Apply) -> list[str]:
    task = message.materialization
    endpoint, resources = parse(task.config, [binding.resource_config for binding in task.bindings])
    with closing(open_catalog(endpoint)) as catalog:
        return list_actions(
            plan_tables(message, resources, endpoint.advanced.feature_flags, partial(find_all, catalog, endpoint))
        )
