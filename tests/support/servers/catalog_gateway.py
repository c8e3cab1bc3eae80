"""A gateway in front of a REST catalog server that demands what the server itself does not: OAuth2 with tokens that
expire, and a prefix. It can hand out keys for the object store with every table, as catalogs do that vend
credentials."""

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qs, urlsplit

from support.servers.server_process import free_address
from support.servers.server_thread import QuietHandler, in_thread

Json: TypeAlias = Any
Vend: TypeAlias = Callable[[], Mapping[str, str]]

PREFIX: Final = "lakes/main"
CLIENT_ID: Final = "robot"
SCOPE: Final = "PRINCIPAL_ROLE:ALL"
TOKEN_PATH: Final = "/idp/token"
OF_THE_CONNECTION: Final = {"accept-encoding", "connection", "content-length", "host", "transfer-encoding"}


@dataclass(frozen=True)
class Sent:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Gateway(Protocol):
    """What stands before a server: it answers itself, or says what the server is to be asked."""

    def answer(self, sent: Sent) -> tuple[HTTPStatus, Json] | Sent: ...

    def amended(self, sent: Sent, answer: Json) -> Json:
        """The server's answer as the client is to see it."""


@dataclass
class CatalogGateway:
    """Demands tokens, and counts what has passed through it."""

    uri: str
    lifetime: float  # seconds, of a token
    vend: Vend | None = None
    secret: str = field(default_factory=lambda: f"secret:{secrets.token_hex(8)}", repr=False)
    token_requests: list[Mapping[str, str]] = field(default_factory=list)
    refusals: int = 0
    _tokens: dict[str, float] = field(default_factory=dict, repr=False)

    @property
    def token_uri(self) -> str:
        return f"{self.uri}{TOKEN_PATH}"

    @property
    def credential(self) -> str:
        return f"{CLIENT_ID}:{self.secret}"

    @property
    def tokens(self) -> Collection[str]:
        """All that were issued and not revoked, expired or not."""
        return self._tokens.keys()

    def revoke_tokens(self) -> None:
        self._tokens.clear()

    def answer(self, sent: Sent) -> tuple[HTTPStatus, Json] | Sent:
        if sent.path == TOKEN_PATH:
            return self._issue({name: values[0] for name, values in parse_qs(sent.body.decode()).items()})
        token = sent.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._tokens.get(token, 0) < time.monotonic():
            self.refusals += 1
            return HTTPStatus.UNAUTHORIZED, refusal(HTTPStatus.UNAUTHORIZED, "the token has expired")
        if sent.path.startswith("/v1/config"):
            return HTTPStatus.OK, {"defaults": {}, "overrides": {"prefix": PREFIX}}
        return replace(sent, path=sent.path.replace(f"/v1/{PREFIX}/", "/v1/", 1))

    def amended(self, sent: Sent, answer: Json) -> Json:
        is_asked = sent.headers.get("X-Iceberg-Access-Delegation") == "vended-credentials"
        if self.vend and is_asked and "metadata" in (answer or {}):
            return {**answer, "config": {**answer.get("config", {}), **self.vend()}}
        return answer

    def _issue(self, form: Mapping[str, str]) -> tuple[HTTPStatus, Json]:
        self.token_requests.append(form)
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, self.secret):
            return HTTPStatus.UNAUTHORIZED, {"error": "invalid_client", "error_description": "who is that?"}
        if form.get("scope") != SCOPE:
            return HTTPStatus.BAD_REQUEST, {"error": "invalid_scope"}
        token = secrets.token_hex(16)
        self._tokens[token] = time.monotonic() + self.lifetime
        return HTTPStatus.OK, {"access_token": token, "token_type": "bearer", "expires_in": self.lifetime}


def refusal(status: HTTPStatus, message: str) -> Json:
    """As the REST catalog's specification has it."""
    return {"error": {"message": message, "type": f"{status.phrase.title().replace(' ', '')}Exception", "code": status}}


@contextmanager
def catalog_gateway(upstream: str, lifetime: float, vend: Vend | None = None) -> Iterator[CatalogGateway]:
    """A gateway on a free loopback port in front of the server at this address."""
    address = free_address()
    gateway = CatalogGateway(f"http://{address}", lifetime, vend)
    with serving(gateway, address, upstream):
        yield gateway


@contextmanager
def serving(gateway: Gateway, address: str, upstream: str) -> Iterator[None]:
    host, port = address.split(":")
    handler = partial(_Handler, urlsplit(upstream).netloc, gateway)
    with in_thread(ThreadingHTTPServer((host, int(port)), handler)):
        yield


class _Handler(QuietHandler):
    """One client's connection."""

    protocol_version = "HTTP/1.1"

    def __init__(self, upstream: str, gateway: Gateway, *connection: Any) -> None:
        self._upstream, self._gateway = upstream, gateway
        super().__init__(*connection)

    def do_GET(self) -> None:
        sent = Sent(self.command, self.path, dict(self.headers.items()), self.read_body())
        answer = self._gateway.answer(sent)
        self._answer(*(self._forward(answer) if isinstance(answer, Sent) else answer))

    do_HEAD = do_POST = do_DELETE = do_GET

    def _forward(self, sent: Sent) -> tuple[HTTPStatus, Json]:
        headers = {name: value for name, value in sent.headers.items() if name.lower() not in OF_THE_CONNECTION}
        with closing(HTTPConnection(self._upstream)) as connection:
            connection.request(sent.method, sent.path, sent.body, headers)
            response = connection.getresponse()
            text = response.read()
        answer: Json = json.loads(text) if text else None
        return HTTPStatus(response.status), self._gateway.amended(sent, answer)

    def _answer(self, status: HTTPStatus, answer: Json) -> None:
        body = b"" if answer is None else json.dumps(answer).encode()
        with suppress(ConnectionError):  # the client has stopped waiting
            self.respond(status, body, {"Content-Type": "application/json"})
