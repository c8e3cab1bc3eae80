"""An apply in a process of its own that can be killed: forked from one that has imported what it needs, and without
Spark, whose tasks do what is done here."""

import multiprocessing
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

from connector.checks.endpoint import open_endpoint
from connector.config.settings import parse
from connector.iceberg.catalog_entries import find_all
from connector.rpc.apply import perform
from connector.rpc.plan import plan_tables
from protocol import request, response
from protocol.codec import decode_request
from support.tables.local_tables import rewrite_here

_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])


def apply_here(line: bytes) -> response.Applied:
    message = decode_request(line)
    assert isinstance(message, request.Apply)
    task = message.materialization
    endpoint, resources = parse(task.config, [binding.resource_config for binding in task.bindings])
    opened = open_endpoint(endpoint)
    planned = plan_tables(message, resources, endpoint, partial(find_all, opened.catalog, endpoint))
    return perform(planned, opened, rewrite_here)


class ForkedApply:
    """One that waits for its request."""

    def __init__(self) -> None:
        requests, self._requests = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=_answer, args=(requests,))
        self._process.start()

    def run(self, line: bytes) -> int:
        """Returns when it has ended: its exit status, which is negative where a signal has ended it."""
        self._requests.send_bytes(line)
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


def _answer(requests: Connection) -> None:
    apply_here(requests.recv_bytes())
