"""How tasks get their work: a socket on which the driver hands out one spooled block after another, and hears of the
files that their rows have become.

Only what the driver hears here counts. A task's files are counted in the same moment as the blocks that they hold, so
that a row is in one counted file however its task ends.
"""

import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, Final, NoReturn

from connector.blocks import Block
from connector.errors import ConnectorError, UserError
from connector.invalid_values import Tally
from connector.spark.claims import Address, Claim, Failed, Next, Noted, Place, Strays, TreatedValues, Wrote
from connector.spark.cluster import BIND_ADDRESS, DRIVER_HOST, claims_address, driver_host, is_local
from connector.spark.handover import Handover
from connector.spark.keep_alive import keep_alive
from connector.spark.layout import Layout, TableLayout
from connector.staging import Spool
from connector.state import DataFile
from protocol.errors import ProtocolError

log = logging.getLogger(__name__)

BACKLOG: Final = 64


@dataclass(frozen=True)
class Counted:
    """What a transaction's tasks have made of its blocks."""

    files: dict[int, tuple[DataFile, ...]] = field(default_factory=dict)  # by table: its binding's index
    treated: dict[int, Tally] = field(default_factory=dict)  # by binding


def claim_server(settings: Mapping[str, str], socket: Path) -> "ClaimServer":
    """Where the tasks of this Spark can reach it: at the socket, or on the network."""
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
    """Serves the claims of a session's transactions, one transaction after the other, a thread a task."""

    def __init__(self, listening: Place, host: str = "") -> None:
        """Tasks find it where it listens; on a network, at the port of this host."""
        self._listener = Listener(listening, backlog=BACKLOG)
        bound = self._listener.address
        place = (host, bound[1]) if isinstance(bound, tuple) else listening
        self.address = Address(place, secrets.token_bytes(32))
        self._transaction: _Transaction | None = None
        threading.Thread(target=self._accept, name="claims", daemon=True).start()

    def begin(self, spool: Spool, layouts: Sequence[Layout], handover: Handover) -> None:
        """Tasks that connect from now on claim from this spool."""
        self._transaction = _Transaction(spool, layouts, handover)

    def finish(self) -> Counted:
        """To be called when the tasks are over: hears each to its end, so that no failure is missed."""
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
            # Each is authenticated in a thread of its own: who connects and says nothing holds up nobody.
            threading.Thread(target=self._serve, args=(connection,), name="claim", daemon=True).start()

    def _serve(self, connection: "Connection[Any, Any]") -> None:
        with connection:
            try:
                keep_alive(connection)
                deliver_challenge(connection, self.address.secret)
                answer_challenge(connection, self.address.secret)
            except (AuthenticationError, EOFError, OSError):
                return  # none of our tasks, or one that was killed at once: its job fails
            assert self._transaction is not None
            self._transaction.serve(connection)


@dataclass
class _Task:
    """What one task has done since it last named its files: it is counted with them, or not at all."""

    block: Block | None = None  # which it is encoding
    encoded: list[Block] = field(default_factory=list)
    strays: list[Strays] = field(default_factory=list)  # of the block
    treated: list[TreatedValues] = field(default_factory=list)


class _Transaction:
    def __init__(self, spool: Spool, layouts: Sequence[Layout], handover: Handover) -> None:
        self.threads: list[threading.Thread] = []
        self.counted = Counted()
        self._counting = threading.Lock()
        self._spool = spool
        self._layouts = layouts
        self._handover = handover
        self._sorted: set[Block] = set()  # whose strays are in blocks of their own by now

    def serve(self, connection: "Connection[Any, Any]") -> None:
        """Answer one task to its end. What ends it early is told to the spool."""
        self.threads.append(threading.current_thread())
        task = _Task()
        try:
            while message := _receive(connection):
                self._answer(connection, task, message)
            self._ended(task)
        except (ConnectorError, ProtocolError) as error:
            self._spool.fail(error)
        except BaseException as error:
            self._spool.fail(error)
            raise

    def _answer(self, connection: "Connection[Any, Any]", task: _Task, message: object) -> None:
        match message:
            case Next(binding):
                self._end_block(task)
                task.block = self._spool.claim(binding, connection.poll)  # who waits says nothing but farewell
                _send(connection, self._claim_of(task.block) if task.block else None)
            case Strays():
                task.strays.append(message)
            case TreatedValues():
                task.treated.append(message)
            case Wrote(files):
                self._count(task, files)
                _send(connection, Noted())
            case Failed():
                _raise(message)
            case _:
                raise AssertionError(message)

    def _end_block(self, task: _Task) -> None:
        if task.block:
            for strays in task.strays if task.block not in self._sorted else ():
                self._spool.add_strays(strays.binding, strays.lines, strays.numbers)
            self._spool.encoded(task.block)
            task.encoded.append(task.block)
            task.block, task.strays = None, []

    def _count(self, task: _Task, files: Sequence[tuple[int, tuple[DataFile, ...]]]) -> None:
        with self._counting:
            for table, written in files:
                self.counted.files[table] = self.counted.files.get(table, ()) + written
            for treated in task.treated:
                self.counted.treated.setdefault(treated.binding, Tally()).add_all(treated.tally)
            self._spool.written(task.encoded)
        task.encoded, task.treated = [], []

    def _ended(self, task: _Task) -> None:
        """It has ended, in good order or not."""
        unwritten = task.encoded if task.block is None else [*task.encoded, task.block]
        if unwritten:
            self._sorted.update(task.encoded)
            self._handover.lost(self._spool, unwritten)

    def _claim_of(self, block: Block) -> Claim:
        layout = self._layout_of(block)
        return Claim(block, self._handover.source(block, layout), layout)

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


def _send(connection: "Connection[Any, Any]", answer: Claim | Noted | None) -> None:
    with suppress(ConnectionError):  # a task that has given up says why before it goes: to be heard next
        connection.send(answer)


def _receive(connection: "Connection[Any, Any]") -> object | None:
    try:
        received: object = connection.recv()
        return received
    except (EOFError, OSError):
        return None  # it has ended
