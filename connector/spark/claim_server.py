"""Where tasks get their work: a socket on which the driver hands out spooled blocks, one after another, and learns
which files their rows are in."""

import os
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, Final

from connector.host.errors import UserError
from connector.spark.block_transfer import BlockTransfer
from connector.spark.claims import Address, Place
from connector.spark.cluster import BIND_ADDRESS, DRIVER_HOST, claims_address, driver_host, is_local
from connector.spark.layout import Layout
from connector.spark.ledger import Counted, Ledger
from connector.spark.spool import Spool

BACKLOG: Final = 64

# Three probes after half a minute of silence; Spark itself gives a lost executor two minutes.
_KEEP_ALIVE_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),  # milliseconds that sent data may be unacknowledged
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


def claim_server(settings: Mapping[str, str], socket: Path) -> "ClaimServer":
    """A server where this Spark's tasks can reach it: at the socket, or on the network."""
    if is_local(settings):
        return ClaimServer(str(socket))
    address = claims_address(settings)
    try:
        return ClaimServer(address, driver_host(settings))
    except OSError as error:
        raise UserError(
            f"Spark's tasks cannot be listened for at {address[0]}:{address[1]} ({error}). Set {DRIVER_HOST} in "
            f"/advanced/spark to an address of this machine that the cluster reaches, or {BIND_ADDRESS} where it has "
            "another name here."
        ) from error


class ClaimServer:
    """Serves the claims of a session's transactions, one transaction after the other, with a thread for each task."""

    def __init__(self, listening: Place, host: str = "") -> None:
        """Tasks find it where it listens; on a network, at its port on `host`."""
        self._listener = Listener(listening, backlog=BACKLOG)
        bound = self._listener.address
        place = (host, bound[1]) if isinstance(bound, tuple) else listening
        self.address = Address(place, secrets.token_bytes(32))
        self._transaction: Ledger | None = None
        threading.Thread(target=self._accept, name="claims", daemon=True).start()

    def begin(self, spool: Spool, layouts: Sequence[Layout], transfer: BlockTransfer) -> None:
        """Tasks that connect from now on claim from this spool."""
        self._transaction = Ledger(spool, layouts, transfer)

    def finish(self) -> Counted:
        """To be called when the tasks are over: waits for the last message of each, so that no failure is missed."""
        assert self._transaction is not None
        for thread in self._transaction.threads:
            thread.join()
        return self._transaction.counted

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except ConnectionError:
                continue
            except OSError:
                return  # closed
            # Each is authenticated in its own thread: a connection that stays silent holds up no other.
            threading.Thread(target=self._serve, args=(connection,), name="claim", daemon=True).start()

    def _serve(self, connection: "Connection[Any, Any]") -> None:
        with connection:
            try:
                keep_alive(connection)
                deliver_challenge(connection, self.address.secret)
                answer_challenge(connection, self.address.secret)
            except (AuthenticationError, EOFError, OSError):
                return  # not one of our tasks, or one that was killed at once, whose job fails
            assert self._transaction is not None
            self._transaction.serve(connection)


def keep_alive(connection: "Connection[Any, Any]") -> None:
    """Make reading from the connection end within about a minute when the other machine is gone."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        if same.family != socket.AF_UNIX:
            for option in _KEEP_ALIVE_OPTIONS:
                same.setsockopt(*option)
