"""Servers that repeat, in what they refuse, all that they were sent: headers, address and body."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from xml.sax.saxutils import escape

from support.servers.catalog_gateway import Sent, refusal, serving
from support.servers.server_process import free_address
from support.servers.server_thread import QuietHandler, in_thread

Json: TypeAlias = Any
Refuses: TypeAlias = Callable[[Sent], bool]

ISSUED: Final = "planted-token/that+was=issued"
TOKENS: Final = "/v1/oauth/tokens"
TOLD_FIRST: Final = ("authorization", "x-api-key", "x-amz-security-token")


def echo(sent: Sent) -> str:
    """With what is secret at the beginning, and once more at the end, for whoever quotes only a part."""
    headers = {name.lower(): value for name, value in sent.headers.items()}
    told = " ".join(headers[name] for name in TOLD_FIRST if name in headers)
    return f"{told} {sent.path} {sent.body.decode()} {dict(sent.headers)!r} {told}"


@dataclass
class EchoingCatalog:
    """A REST catalog that issues tokens and has one table. What `refuses` picks is refused with an echo."""

    uri: str
    refuses: Refuses
    status: HTTPStatus
    table: Json
    repeated: list[str] = field(default_factory=list)

    def answer(self, sent: Sent) -> tuple[HTTPStatus, Json]:
        if self.refuses(sent):
            self.repeated.append(echo(sent))
            if sent.path == TOKENS:
                return self.status, {"error": "invalid_client", "error_description": self.repeated[-1]}
            return self.status, refusal(self.status, self.repeated[-1])
        if sent.path == TOKENS:
            return HTTPStatus.OK, {"access_token": ISSUED, "token_type": "bearer"}
        if sent.path.startswith("/v1/config"):
            return HTTPStatus.OK, {"defaults": {}, "overrides": {}}
        return HTTPStatus.OK, self.table

    def amended(self, _: Sent, answer: Json) -> Json:
        return answer


@contextmanager
def echoing_catalog(refuses: Refuses, status: HTTPStatus, table: Json = None) -> Iterator[EchoingCatalog]:
    address = free_address()
    catalog = EchoingCatalog(f"http://{address}", refuses, status, table)
    with serving(catalog, address, upstream="http://nowhere"):
        yield catalog


@contextmanager
def echoing_service(form: Callable[[str], str]) -> Iterator[str]:
    """A service of Amazon's that refuses everything, in errors of this form."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = Sent(self.command, self.path, dict(self.headers.items()), self.read_body())
            self.respond(HTTPStatus.FORBIDDEN, form(echo(sent)).encode())

        do_PUT = do_POST

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with in_thread(server):
        yield f"http://127.0.0.1:{server.server_port}"


def glue_error(message: str) -> str:
    return json.dumps({"__type": "AccessDeniedException", "message": message})


def s3_error(message: str) -> str:
    return f"<Error><Code>AccessDenied</Code><Message>{escape(message)}</Message></Error>"
