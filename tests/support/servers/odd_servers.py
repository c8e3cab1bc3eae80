"""Servers that are none: they give one answer to whatever they are asked, or answers of a test, or never answer, or
never end."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from http.server import ThreadingHTTPServer
from socket import create_server
from socketserver import BaseRequestHandler, ThreadingTCPServer

from support.servers.certificate import Certificate
from support.servers.server_thread import NO_HEADERS, QuietHandler, in_thread


class Server:
    """Gives one answer to whatever it is asked, and keeps what it was asked."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.requests: list[tuple[str, str, str]] = []  # path, Authorization, body
        self.headers: list[Mapping[str, str]] = []  # of each


@contextmanager
def answering(status: int, body: str, headers: Mapping[str, str] = NO_HEADERS) -> Iterator[Server]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"  # so that a client which asks before it sends a body is not left waiting

        def do_GET(self) -> None:
            server.requests.append((self.path, self.headers.get("Authorization", ""), self.read_body().decode()))
            server.headers.append(dict(self.headers.items()))
            self.send_response(status)
            for name, value in {"Connection": "close", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_port}")
    with in_thread(http):
        yield server


@contextmanager
def answering_each(answer: Callable[[str], tuple[int, str]]) -> Iterator[str]:
    """A server that asks for the status and the body of its answer to each GET of a path."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with in_thread(http):
        yield f"http://127.0.0.1:{http.server_port}"


@contextmanager
def silent() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with create_server(("127.0.0.1", 0)) as listener:
        # Who waits without a limit is cut off, and hears another reason than the one that the tests expect.
        watchdog = threading.Timer(20, listener.close)
        watchdog.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            watchdog.cancel()


class Dripping(Enum):
    """What of a never-ending answer comes byte by byte: before it, or after nothing, is there all at once."""

    HEADERS = b""
    BODY_OF_KNOWN_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    BODY_UNTIL_IT_CLOSES = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    BODY_OF_A_REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 100000\r\n\r\n"


@contextmanager
def dripping(what: Dripping, certificate: Certificate | None = None) -> Iterator[tuple[str, threading.Event]]:
    """A server whose answer does not end for a minute, although something comes all the time; and whether it has
    ended."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(what.value)
            for _ in range(600):
                if is_over.wait(0.1):
                    return
                with suppress(ConnectionError):
                    self.request.sendall(b"H")
            has_ended.set()

    is_over, has_ended = threading.Event(), threading.Event()
    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    if certificate:
        server.socket = certificate.served(server.socket)
    with in_thread(server):
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}", has_ended
        finally:
            is_over.set()
