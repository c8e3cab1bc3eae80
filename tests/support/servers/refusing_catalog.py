"""A gateway in front of a REST catalog server that refuses what other servers refuse, in their words."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeAlias

from support.servers.catalog_gateway import Json, Sent, refusal, serving
from support.servers.server_process import free_address

# Returns the status and the words of the answer to a request with this body. None: the server answers it.
Refuse: TypeAlias = Callable[[Sent, Json], tuple[HTTPStatus, str] | None]


class Refusing:
    """Passes all requests on, except for those that it refuses."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self.sent: list[Sent] = []
        self.refused: list[Sent] = []

    def answer(self, sent: Sent) -> tuple[HTTPStatus, Json] | Sent:
        self.sent.append(sent)
        reason = self._refuse(sent, json.loads(sent.body) if sent.body.startswith(b"{") else {})
        if reason is None:
            return sent
        self.refused.append(sent)
        return reason[0], refusal(*reason)

    def amended(self, _: Sent, answer: Json) -> Json:
        return answer


@contextmanager
def refusing(upstream: str, refuse: Refuse) -> Iterator[tuple[str, Refusing]]:
    """The address of a server that refuses these requests, and what it has refused."""
    address, gateway = free_address(), Refusing(refuse)
    with serving(gateway, address, upstream):
        yield f"http://{address}", gateway
