"""How tasks get their work: a socket on which the driver hands out one spooled block after another.

A task lives as long as its transaction and its files grow across blocks, so what it writes cannot be dealt out before
it starts. Every message is a pickled object, over a connection that both sides authenticate with a secret of the
session's own.
"""

import logging
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NoReturn

from connector.errors import ConnectorError, RetryableError
from connector.invalid_values import Tally
from connector.spark.layout import Layout, TableLayout
from connector.staging import Block, Spool
from protocol.errors import ProtocolError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Next:
    """Asks for a block, of this binding if there is one; what was claimed before is encoded."""

    binding: int | None


@dataclass(frozen=True)
class Claim:
    """A block to write, and the table that its lines go to."""

    block: Block
    layout: TableLayout


@dataclass(frozen=True)
class Strays:
    """Lines of the claimed block that turned out to be of another binding."""

    binding: int
    lines: Sequence[bytes]
    numbers: Sequence[int]


@dataclass(frozen=True)
class TreatedValues:
    """Values of the claimed block that did not come to their column as they were sent."""

    binding: int
    tally: Tally


@dataclass(frozen=True)
class Failed:
    """The task gives up, and with it the transaction."""

    error: ConnectorError | ProtocolError
    traceback: str = ""  # of what nobody has thought of


@dataclass(frozen=True)
class Address:
    """Where a task finds its claims; the secret is for the tasks of one session."""

    path: str
    secret: bytes = field(repr=False)

    @contextmanager
    def connected(self) -> Iterator["Connection[Any, Any]"]:
        with Client(self.path, family="AF_UNIX", authkey=self.secret) as connection:
            yield connection


class ClaimServer:
    """Serves the claims of a session's transactions, one transaction after the other, a thread a task."""

    def __init__(self, socket: Path) -> None:
        self.address = Address(str(socket), secrets.token_bytes(32))
        self._listener = Listener(str(socket), family="AF_UNIX", authkey=self.address.secret, backlog=64)
        self._transaction: _Transaction | None = None
        threading.Thread(target=self._accept, name="claims", daemon=True).start()

    def begin(self, spool: Spool, layouts: Sequence[Layout]) -> None:
        """Tasks that connect from now on claim from this spool."""
        self._transaction = _Transaction(spool, layouts)

    def finish(self) -> dict[int, Tally]:
        """To be called when the tasks are over: hears each to its end, so that no failure is missed, and returns what
        they have done about values that did not fit, by binding."""
        assert self._transaction is not None
        for thread in self._transaction.threads:
            thread.join()
        return self._transaction.treated

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # none of our tasks, or one that was killed at once: its job fails
            except OSError:
                return  # closed
            assert self._transaction is not None
            thread = threading.Thread(target=self._transaction.serve, args=(connection,), name="claim", daemon=True)
            self._transaction.threads.append(thread)
            thread.start()


class _Transaction:
    def __init__(self, spool: Spool, layouts: Sequence[Layout]) -> None:
        self.threads: list[threading.Thread] = []
        self.treated: dict[int, Tally] = {}
        self._counting = threading.Lock()
        self._spool = spool
        self._layouts = layouts

    def serve(self, connection: "Connection[Any, Any]") -> None:
        """Answer one task to its end. Whatever ends it early is told to the spool by `claimed`, and the task sees its
        connection close."""
        with connection, suppress(ConnectorError, ProtocolError):
            request = _receive(connection)
            while isinstance(request, Next):
                with self._spool.claimed(request.binding) as block:
                    _send(connection, None if block is None else Claim(block, self._layout_of(block)))
                    request = self._until_done(connection, block)

    def _until_done(self, connection: "Connection[Any, Any]", block: Block | None) -> Next | None:
        """The task's next request; without a block it ends its last file, which may still fail, and then itself."""
        while True:
            match _receive(connection):
                case Next() as request:
                    return request
                case None if block is None:
                    return None
                case None:
                    raise RetryableError(
                        "A Spark task ended in the middle of a block; its worker may have been killed for want of "
                        "memory."
                    )
                case Strays() as strays:
                    self._spool.add_strays(strays.binding, strays.lines, strays.numbers)
                case TreatedValues(binding, tally):
                    with self._counting:
                        self.treated.setdefault(binding, Tally()).add_all(tally)
                case Failed() as failed:
                    _raise(failed)
                case message:
                    raise AssertionError(message)

    def _layout_of(self, block: Block) -> TableLayout:
        if not 0 <= block.binding < len(self._layouts):
            raise ProtocolError(
                f"line {block.line_of(0)}: store names binding {block.binding}, "
                f"but the session has only {len(self._layouts)}"
            )
        return self._layouts[block.binding]()


def _raise(failed: Failed) -> NoReturn:
    if failed.traceback:
        log.debug("the traceback of what follows:\n%s", failed.traceback)
    raise failed.error


def _send(connection: "Connection[Any, Any]", claim: Claim | None) -> None:
    with suppress(ConnectionError):  # a task that has given up says why before it goes: to be heard next
        connection.send(claim)


def _receive(connection: "Connection[Any, Any]") -> object | None:
    try:
        received: object = connection.recv()
        return received
    except (EOFError, OSError):
        return None  # it has ended
