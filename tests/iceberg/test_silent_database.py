"""A database that takes requests and does not answer them, such as one whose COMMIT waits for a lost standby."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

import pytest
from psycopg import connect

from connector.config.catalog import SqlCatalog
from connector.host.errors import RetryableError
from connector.iceberg.catalogs import sql_time_limits
from connector.iceberg.catalogs.sql import _url, open_sql, translate_errors
from support.snapshots import check_text

TLS: Final = (80877103, 80877104)  # what a client asks first, for TLS and for Kerberos
DEADLINE: Final = 60.0  # seconds


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


SIGNED_IN: Final = (
    _message(b"R", struct.pack("!I", 0))
    + _message(b"S", b"server_version\x0016.0\0")
    + _message(b"S", b"client_encoding\0UTF8\0")
    + _message(b"S", b"standard_conforming_strings\0on\0")
    + _message(b"K", struct.pack("!II", 1, 1))
    + _message(b"Z", b"I")
)


def _serve(listener: socket.socket) -> None:
    with suppress(OSError):  # the listener is closed
        while True:
            threading.Thread(target=_sign_in, args=(listener.accept()[0],), daemon=True).start()


def _sign_in(client: socket.socket) -> None:
    with client:
        while True:
            (size,) = struct.unpack("!I", client.recv(4))
            (asked,) = struct.unpack("!I", client.recv(size - 4)[:4])
            if asked not in TLS:
                break
            client.sendall(b"N")
        client.sendall(SIGNED_IN)
        while client.recv(1 << 16):
            pass


@pytest.fixture
def address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_idle_connection_is_probed_each_half_minute(address: str) -> None:
    """Otherwise a gateway may forget it between two commits, and the next one waits a minute."""
    catalog = SqlCatalog(uri=f"postgresql://lake@{address}/lake", password=None, name="lake")
    address_and_limits = _url(catalog).set(drivername="postgresql").render_as_string(hide_password=False)
    options = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT
    with (
        closing(connect(address_and_limits)) as connection,
        socket.socket(fileno=os.dup(connection.fileno())) as same,
    ):
        assert [same.getsockopt(socket.IPPROTO_TCP, each) for each in options] == [30, 10, 3, 60_000]


def test_a_database_that_is_silent_is_not_waited_for_without_limit(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_time_limits, "LONGEST_ANSWER", 1)
    catalog = SqlCatalog(uri=f"postgresql://lake@{address}/lake", password=None, name="lake")
    errors: list[Exception] = []

    def use() -> None:
        try:
            with translate_errors(catalog.uri):
                open_sql(catalog, {"warehouse": "s3://lake"}, dict)
        except RetryableError as error:
            errors.append(error)

    using = threading.Thread(target=use, daemon=True)
    using.start()
    using.join(DEADLINE)
    check_text("catalog_errors", "SQL: silent", "\n".join(map(str, errors)), {address.rpartition(":")[2]: "PORT"})
