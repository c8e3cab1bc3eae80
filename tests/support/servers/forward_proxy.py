"""A proxy through which clients ask for connections to any host, as in a company's network. One server answers them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from socket import SHUT_RDWR, create_connection, socket
from urllib.parse import urlsplit

from support.servers.certificate import Certificate
from support.servers.server_thread import QuietHandler, in_thread


@dataclass
class ForwardProxy:
    """A running proxy, and for which host and port each connection was asked."""

    uri: str
    hosts: list[str] = field(default_factory=list)


@contextmanager
def forward_proxy(server: str, certificate: Certificate) -> Iterator[ForwardProxy]:
    """Each connection is one to `server`, the address of a server without TLS. The proxy speaks TLS with its own
    certificate, as one that inspects what passes."""

    class Handler(QuietHandler):
        def do_CONNECT(self) -> None:
            proxy.hosts.append(self.path)
            self.send_response(HTTPStatus.OK)
            self.end_headers()
            address = urlsplit(server)
            with (
                suppress(OSError),
                certificate.served(self.connection) as inner,
                create_connection((address.hostname, address.port)) as outer,
            ):
                back = threading.Thread(target=_copy, args=(outer, inner))
                back.start()
                _copy(inner, outer)
                back.join()
            self.close_connection = True

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy = ForwardProxy(f"http://127.0.0.1:{http.server_port}")
    with in_thread(http):
        yield proxy


def _copy(source: socket, target: socket) -> None:
    with suppress(OSError):
        while content := source.recv(1 << 16):
            target.sendall(content)
    with suppress(OSError):
        target.shutdown(SHUT_RDWR)
