"""Claims: how tasks get blocks from the driver, and tell it which files hold their rows.

A task lives as long as its transaction, and its files grow across blocks. So its work cannot be assigned before it
starts. Every message is a pickled object on a connection that both sides authenticate with the session's own secret.
"""

import logging
import secrets
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Final, TypeAlias, assert_never

from connector.host import machine
from connector.host.errors import ConnectorError, RetryableError
from connector.spark.blocks.ledger import Ledger, TaskAccount, TaskOutput
from connector.spark.blocks.spool import Block
from connector.spark.blocks.transaction_files import BlockTransfer, Layouts, TableLayout, TemporaryFile
from protocol.protocol_error import ProtocolError
from protocol.request import Store

log = logging.getLogger(__name__)

BACKLOG: Final = 64  # connections that wait to be accepted
PAUSE: Final = 0.1  # seconds between two attempts to accept a connection
ATTEMPTS: Final = 300  # that fail one after the other, such as while too many files are open
LONGEST_SIGN_IN: Final = 60  # seconds to connect, and that a connection may say nothing before it is authenticated
NO_LIMIT: Final = 0  # seconds, as the system puts it

# A task's connection says so in many ways: it is closed or reset, or its machine does not answer.
_TASK_IS_GONE: Final = (EOFError, OSError)


@dataclass(frozen=True)
class Next:
    """Asks for a block, of this binding if there is one. The block that was claimed before is encoded."""

    binding: int | None


@dataclass(frozen=True)
class Claim:
    """A block to write, where to read it, and the table that its lines go to."""

    block: Block
    source: TemporaryFile
    layout: TableLayout


@dataclass(frozen=True)
class Strays:
    """Lines of the claimed block that turned out to be of another binding."""

    binding: int
    lines: Sequence[bytes]
    numbers: Sequence[int]


@dataclass(frozen=True)
class Wrote:
    """All blocks that the task has encoded since it last said so are written."""

    output: TaskOutput


@dataclass(frozen=True)
class Noted:
    """The files of the last Wrote are counted."""


@dataclass(frozen=True)
class TaskFailed:
    """The task gives up, and with it the transaction."""

    error: ConnectorError | ProtocolError
    traceback: str = ""  # of an unexpected exception


# What a task sends, and what the driver answers: None if no more blocks come.
TaskMessage: TypeAlias = Next | Strays | Wrote | TaskFailed
Answer: TypeAlias = Claim | Noted | None

# The two ends of a connection.
ToDriver: TypeAlias = "Connection[TaskMessage, Answer]"
ToTask: TypeAlias = "Connection[Answer, TaskMessage]"

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
            except (AuthenticationError, *_TASK_IS_GONE):
                return  # not one of our tasks, or one that was killed at once, whose job fails
            assert self._claims is not None
            self._answering.append(threading.current_thread())
            self._claims.answer(connection)


@dataclass(frozen=True)
class TaskClaims:
    """Answers the tasks of one transaction from its ledger."""

    ledger: Ledger
    layouts: Layouts
    transfer: BlockTransfer

    def answer(self, connection: ToTask) -> None:
        """Answer one task until it ends. An error fails the transaction."""
        task = self.ledger.begin_task()
        try:
            while message := _receive(connection):
                self._answer(connection, task, message)
            if task.blocks:
                self.transfer.check_lost(task.blocks)
                self.ledger.give_back(task)
        except (ConnectorError, ProtocolError) as error:
            self.ledger.fail(error)
            self._dismiss(connection, task)
        except BaseException as error:
            self.ledger.fail(error)
            raise

    def _dismiss(self, connection: ToTask, task: TaskAccount) -> None:
        """Answer a task no more, and return when it has ended: it deletes its files first. Those that it reports are
        counted, since it does not delete them."""
        with suppress(OSError), _open_socket(connection) as same:
            same.shutdown(socket.SHUT_WR)
        while message := _receive(connection):
            if isinstance(message, Wrote):
                self.ledger.count(task, message.output)

    def _answer(self, connection: ToTask, task: TaskAccount, message: TaskMessage) -> None:
        match message:
            case Next(binding):
                block = self.ledger.claim(task, binding, connection.poll)  # a waiting task sends only that it gives up
                _send(connection, self._claim_of(block) if block else None)
            case Strays(binding, lines, numbers):
                strays = [Store(binding, number, 1, (line,)) for line, number in zip(lines, numbers, strict=True)]
                self.ledger.note_strays(task, strays)
            case Wrote(output):
                self.ledger.count(task, output)
                _send(connection, Noted())
            case TaskFailed(error, traceback):
                if traceback:
                    log.debug("the traceback of what follows:\n%s", traceback)
                raise error
            case _:
                assert_never(message)

    def _claim_of(self, block: Block) -> Claim:
        if not 0 <= block.binding < self.layouts.bindings:
            raise ProtocolError(
                f"line {block.line_of(0)}: store names binding {block.binding}, "
                f"but the session has only {self.layouts.bindings}"
            )
        layout = self.layouts.make(block.binding)
        return Claim(block, self.transfer.source(block, layout), layout)


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
    with _open_socket(connection) as same:
        if same.family != socket.AF_UNIX:
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            machine.keep_alive(same)


def _limit_silence(connection: ToTask, seconds: int) -> None:
    """Let a read of the connection fail if nothing comes for so many seconds."""
    with _open_socket(connection) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


@contextmanager
def _open_socket(connection: "ToDriver | ToTask") -> Iterator[socket.socket]:
    same = socket.socket(fileno=connection.fileno())
    try:
        yield same
    finally:
        same.detach()  # the connection closes the descriptor


def _send(connection: ToTask, answer: Answer) -> None:
    # If the task is gone, its last message may say why, and is received next.
    with suppress(*_TASK_IS_GONE):
        connection.send(answer)


def _receive(connection: ToTask) -> TaskMessage | None:
    """Return what the task says next. None if it has ended."""
    try:
        return connection.recv()
    except _TASK_IS_GONE:
        return None
