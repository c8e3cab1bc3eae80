"""A pooler of connections in front of PostgreSQL, such as PgBouncer: it knows few parameters of a connection, and no
prepared statements, because each transaction may get another connection."""

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, create_connection, socket
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Final

from support.servers.server_thread import in_thread

KNOWN: Final = {"application_name", "client_encoding", "database", "user"}
TLS: Final = (80877103, 80877104)  # what a client asks first, for TLS and for Kerberos
PARSE: Final = b"P"  # the message that prepares a statement, and the name in front of it, which may be empty


class Pooler:
    """A running one: the parameters of its clients, and the names of the statements that they have prepared."""

    def __init__(self) -> None:
        self.address = ""
        self.startups: list[set[str]] = []
        self.prepared: list[str] = []

    def serve(self, client: socket, server: socket) -> None:
        """Pass on the messages of a client until it goes."""
        startup = _read_startup(client)
        names = {name.decode() for name in startup[4:].split(b"\0")[::2] if name}
        if unknown := sorted(names - KNOWN):
            text = f"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: {unknown[0]}\0\0".encode()
            client.sendall(b"E" + struct.pack("!I", len(text) + 4) + text)
            return
        self.startups.append(names)
        server.sendall(struct.pack("!I", len(startup) + 4) + startup)
        threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()
        while kind := client.recv(1):
            body = _read_body(client)
            if kind == PARSE and (name := body.partition(b"\0")[0]):
                self.prepared.append(name.decode())
            server.sendall(kind + struct.pack("!I", len(body) + 4) + body)


def _read_startup(client: socket) -> bytes:
    while struct.unpack("!I", (body := _read_body(client))[:4])[0] in TLS:
        client.sendall(b"N")
    return body


def _read_body(client: socket) -> bytes:
    (size,) = struct.unpack("!I", _read(client, 4))
    return _read(client, size - 4)


def _read(client: socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        if not (more := client.recv(size - len(content))):
            raise ConnectionError
        content += more
    return content


def _pass_on(server: socket, client: socket) -> None:
    with suppress(OSError):  # one of them is closed
        while content := server.recv(1 << 16):
            client.sendall(content)
        client.shutdown(SHUT_RDWR)


@contextmanager
def pooler(address: str) -> Iterator[Pooler]:
    """Run one in front of the server at this address."""
    pool = Pooler()
    host, port = address.split(":")

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with create_connection((host, int(port))) as server, suppress(ConnectionError):
                pool.serve(self.request, server)

    front = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    front.daemon_threads = True
    pool.address = f"127.0.0.1:{front.server_address[1]}"
    with in_thread(front):
        yield pool
