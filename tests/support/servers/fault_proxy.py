"""A proxy in front of a catalog or an object store that takes requests on, or answers, wrongly: on purpose, one fault a
request."""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from support.plans import plan
from support.servers.server_thread import QuietHandler, in_thread

# What the two connections settle each for itself; and answers are cut where they can be read. The host is passed on: an
# object store's client has signed it.
OF_THE_CONNECTION: Final = {"accept-encoding", "connection", "content-length", "expect", "transfer-encoding"}
# Of servers that may have done what they were asked for.
STATUSES: Final = (
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
)


class Answer(Enum):
    """What a client hears, other than a status of the proxy's own."""

    GENUINE = auto()
    NONE = auto()  # the connection is closed
    SILENCE = auto()  # the connection stays open until the client closes it
    TRUNCATED = auto()  # the connection is closed in the middle
    SHORTENED = auto()  # half of it, declared to be all
    REDIRECT = auto()  # to the server itself


@dataclass(frozen=True)
class Fault:
    """How often the server gets a request, and what the client hears of it."""

    forwarded: int
    answer: Answer | HTTPStatus


GENUINE: Final = Fault(1, Answer.GENUINE)


@dataclass(frozen=True)
class Request:
    """One request, as it can be told from others."""

    method: str
    path: str
    target: str = ""  # AWS's name of the operation
    body: bytes = field(default=b"", repr=False)  # of such an operation
    authorization: str = field(default="", repr=False)


Matches: TypeAlias = Callable[[Request], bool]
Choose: TypeAlias = Callable[[Request], Fault]


def always(fault: Fault, matches: Callable[[Any], bool] = lambda _: True) -> Callable[[Any], Fault]:
    """For `choose`: each request that matches meets this fault, at least one before the test ends."""
    met = list[Fault]()

    def meet(request: Any) -> Fault:
        if not matches(request):
            return GENUINE
        met.append(fault)
        return fault

    plan(f"{fault} at a proxy", lambda: met)
    return meet


def is_commit(request: Request) -> bool:
    """A commit to a table, or a change of it, of a REST catalog."""
    return request.method == "POST" and _names_a_table(request)


def is_load(request: Request) -> bool:
    """A look at a table of a REST catalog."""
    return request.method == "GET" and _names_a_table(request)


def _names_a_table(request: Request) -> bool:
    return re.fullmatch("/(.+/)?v1/.*namespaces/[^/]+/tables/[^/?]+([?].*)?", request.path) is not None


@dataclass(frozen=True, eq=False)
class _Injected:
    matches: Matches
    fault: Fault
    before: Callable[[], object] | None


class FaultProxy:
    """A running proxy. `choose` has a say where nothing is injected; while it takes its time, other requests go on."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.seen: list[Request] = []
        self.clients: list[tuple[str, int]] = []  # the other end of every connection
        self.fired: list[Fault] = []
        self.choose: Choose = lambda _: GENUINE
        self._injected: deque[_Injected] = deque()
        self._lock = threading.Lock()

    def inject(self, matches: Matches, fault: Fault, before: Callable[[], object] | None = None) -> None:
        """Do this to the first request that matches, after everything that was injected earlier; `before` is called
        when it has come and has not been forwarded yet. The test fails if none comes."""
        injected = _Injected(matches, fault, before)
        self._injected.append(injected)
        plan(f"{fault} at a proxy", lambda: injected not in self._injected)

    def fault_of(self, request: Request) -> Fault:
        injected = None
        with self._lock:
            self.seen.append(request)
            if self._injected and self._injected[0].matches(request):
                injected = self._injected.popleft()
        fault = injected.fault if injected else self.choose(request)
        if fault != GENUINE:
            self.fired.append(fault)
        if injected and injected.before:
            injected.before()
        return fault


@contextmanager
def fault_proxy(upstream: str, port: int = 0) -> Iterator[FaultProxy]:
    """A proxy on a loopback port, any that is free if none is named, in front of the server at this address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), QuietHandler)
    proxy = FaultProxy(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = partial(_Handler, urlsplit(upstream).netloc, proxy)
    with in_thread(server):
        yield proxy


@dataclass(frozen=True)
class _Response:
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    described_length: str | None = None  # of the body that a HEAD is answered without


class _Handler(QuietHandler):
    """One client's connection."""

    protocol_version = "HTTP/1.1"

    def __init__(self, upstream: str, proxy: FaultProxy, *connection: Any) -> None:
        self._upstream, self._proxy = upstream, proxy
        super().__init__(*connection)

    def setup(self) -> None:
        self._proxy.clients.append(self.client_address)
        super().setup()

    def do_GET(self) -> None:
        body = self._body()
        target = self.headers.get("X-Amz-Target", "")
        authorization = self.headers.get("Authorization", "")
        fault = self._proxy.fault_of(Request(self.command, self.path, target, body if target else b"", authorization))
        response = _Response(HTTPStatus.BAD_GATEWAY, (), b"")
        for _ in range(fault.forwarded):
            response = self._forward(body)
        with suppress(ConnectionError):  # the client has stopped waiting
            self._answer(fault.answer, response)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.read_body()
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _forward(self, body: bytes) -> _Response:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in OF_THE_CONNECTION}
        with closing(HTTPConnection(self._upstream)) as connection:
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            kept = [header for header in response.getheaders() if header[0].lower() not in OF_THE_CONNECTION]
            length = response.getheader("Content-Length", "0") if self.command == "HEAD" else None
            return _Response(response.status, kept, response.read(), length)

    def _answer(self, answer: Answer | HTTPStatus, response: _Response) -> None:
        body = response.body
        match answer:
            case HTTPStatus():
                page = b"<html>\n<h1>%d</h1>\n</html>\n" % answer
                self._send(_Response(answer, (("Content-Type", "text/html"),), page), len(page))
            case Answer.REDIRECT:
                target = f"http://{self._upstream}{self.path}"
                self._send(_Response(HTTPStatus.FOUND, (("Location", target),), b""), 0)
            case Answer.GENUINE:
                self._send(response, len(body))
            case Answer.SHORTENED:
                self._send(replace(response, body=body[: len(body) // 2]), len(body) // 2)
            case Answer.TRUNCATED:
                self._send(replace(response, body=body[: len(body) // 2]), len(body))
                self.close_connection = True
            case Answer.NONE:
                self.close_connection = True
            case Answer.SILENCE:
                self.rfile.read(1)
                self.close_connection = True

    def _send(self, response: _Response, length: int) -> None:
        self.send_response(response.status)
        for name, value in response.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", response.described_length or str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
