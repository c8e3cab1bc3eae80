"""The claim server: tasks connect to the driver, and both sides authenticate with the session's own secret."""

import logging
import secrets
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Final, TypeAlias

from connector.host import machine
from connector.host.errors import RetryableError
from connector.spark.blocks.block_transfer import BlockTransfer
from connector.spark.blocks.claims import TASK_IS_GONE, TaskClaims, ToDriver, ToTask, open_socket
from connector.spark.blocks.ledger import Ledger
from connector.spark.blocks.transaction_files import Layouts

log = logging.getLogger(__name__)

BACKLOG: Final = 64  # connections that wait to be accepted
PAUSE: Final = 0.1  # seconds between two attempts to accept a connection
ATTEMPTS: Final = 300  # that fail one after the other, such as while too many files are open
LONGEST_SIGN_IN: Final = 60  # seconds to connect, and that a connection may say nothing before it is authenticated
NO_LIMIT: Final = 0  # seconds, as the system puts it

SocketAddress: TypeAlias = str | tuple[str, int]  # a path, or host and port


@dataclass(frozen=True)
class Address:
    """Where a task finds its claims. The secret is for the tasks of one session."""

    socket: SocketAddress
    secret: bytes = field(repr=False)

    @contextmanager
    def connect(self) -> Iterator[ToDriver]:
        """Open an authenticated connection to the driver."""
        with self._connect() as connection:
            _keep_alive(connection)  # the task may wait for hours, and the driver's machine may be gone
            yield connection

    def _connect(self) -> ToDriver:
        if isinstance(self.socket, str):
            try:
                return Client(self.socket, authkey=self.secret)
            except FileNotFoundError as error:  # the error of a socket does not name it
                raise FileNotFoundError(error.errno, error.strerror, self.socket) from error
        with socket.create_connection(self.socket, LONGEST_SIGN_IN) as connecting:  # Client has no IPv6
            connecting.settimeout(None)
            connection: ToDriver = Connection(connecting.detach())
        answer_challenge(connection, self.secret)
        deliver_challenge(connection, self.secret)
        return connection


class ClaimServer:
    """Listens for the tasks of a session's transactions, one transaction after the other, with a thread for each
    task."""

    def __init__(self, listening: SocketAddress, host: str = "") -> None:
        """Tasks find the server where it listens; on a network, at its port on `host`."""
        self._listener = Listener(listening, _find_family(listening), BACKLOG)
        bound = self._listener.address
        bound_to = (host, bound[1]) if isinstance(bound, tuple) else listening
        self.address = Address(bound_to, secrets.token_bytes(32))
        self._claims: TaskClaims | None = None  # of the present transaction
        self._closed = threading.Event()
        self._answering: list[threading.Thread] = []  # to tasks of the present transaction
        threading.Thread(target=self._accept, name="claims", daemon=True).start()

    def begin(self, ledger: Ledger, layouts: Layouts, transfer: BlockTransfer) -> None:
        """Let tasks that connect from now on claim blocks of this transaction."""
        self._answering = []
        self._claims = TaskClaims(ledger, layouts, transfer)

    def finish(self) -> None:
        """Wait for the last message of each task, so that no failure and no file is missed."""
        for thread in self._answering:
            thread.join()

    def close(self) -> None:
        """Listen no longer."""
        self._closed.set()
        with suppress(OSError):  # another program has removed the socket, or the disk is read-only now
            self._listener.close()

    def _accept(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                connection = self._listener.accept()
            except OSError as error:
                failures += 1
                log.debug("no Spark task can be accepted now: %s", error)
                if failures >= ATTEMPTS:
                    self._fail(_explain_refusal(error))
                self._closed.wait(PAUSE)
                continue
            failures = 0
            # Each is authenticated in its own thread: a connection that stays silent holds up no other.
            try:
                threading.Thread(target=self._serve, args=(connection,), name="claim", daemon=True).start()
            except RuntimeError as error:
                connection.close()
                self._fail(RetryableError(machine.explain_limit(error) or str(error)))

    def _fail(self, error: RetryableError) -> None:
        """Fail the transaction: its tasks would wait for ever to be served."""
        if self._claims:
            self._claims.ledger.fail(error)

    def _serve(self, connection: ToTask) -> None:
        with connection:
            try:
                _keep_alive(connection)
                _limit_silence(connection, LONGEST_SIGN_IN)
                deliver_challenge(connection, self.address.secret)
                answer_challenge(connection, self.address.secret)
                _limit_silence(connection, NO_LIMIT)
            except (AuthenticationError, *TASK_IS_GONE):
                return  # not one of our tasks, or one that was killed at once, whose job fails
            assert self._claims is not None
            self._answering.append(threading.current_thread())
            self._claims.answer(connection)


def _find_family(listening: SocketAddress) -> str:
    if isinstance(listening, str):
        return "AF_UNIX"
    families = {family for family, *_ in socket.getaddrinfo(*listening)}
    return "AF_INET" if socket.AF_INET in families else "AF_INET6"


def _explain_refusal(error: OSError) -> RetryableError:
    return RetryableError(
        f"Spark's tasks cannot be accepted ({error.strerror or error}). Nothing of this transaction has become "
        "visible. If too many files are open, raise the hard limit of the process (`ulimit -Hn`, or `--ulimit nofile` "
        "of Docker)."
    )


def _keep_alive(connection: "ToDriver | ToTask") -> None:
    with open_socket(connection) as same:
        if same.family != socket.AF_UNIX:
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            machine.keep_alive(same)


def _limit_silence(connection: ToTask, seconds: int) -> None:
    """Let a read of the connection fail if nothing comes for so many seconds."""
    with open_socket(connection) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))
