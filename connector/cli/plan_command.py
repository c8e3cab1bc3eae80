"""`plan`: a person reads what an apply request would do before it is done."""

from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import Final

from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.tables import find_all
from connector.rpc.plan import actions, plans
from protocol import request
from protocol.request import Request

NOTHING: Final = "nothing to do: every table fits its binding"


def plan(requests: Iterable[Request]) -> str:
    """The actions of the first apply request, a line each; the requests around it are not looked at."""
    for message in requests:
        if isinstance(message, request.Apply):
            return "\n".join(_actions(message)) or NOTHING
    raise UserError('there is no apply request: give one on stdin, a line that begins with {"apply": …}.')


def _actions(message: request.Apply) -> list[str]:
    task = message.materialization
    endpoint, resources = parse(task.config, [binding.resource_config for binding in task.bindings])
    with closing(open_catalog(endpoint)) as catalog:
        return actions(plans(message, resources, endpoint.advanced.feature_flags, partial(find_all, catalog, endpoint)))
