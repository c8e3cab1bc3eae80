"""Who has which block, and which files count.

Only what tasks report to the driver counts. A task's files are counted in the same moment as the blocks that they hold,
so that every row is in exactly one counted file, however its task ends.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from connector.host.errors import ConnectorError
from connector.model.invalid_values import Tally
from connector.model.state import DataFile
from connector.spark.block_transfer import BlockTransfer
from connector.spark.blocks import Block
from connector.spark.claims import Claim, Failed, Next, Noted, Strays, TreatedValues, Wrote
from connector.spark.layout import Layout, TableLayout
from connector.spark.spool import Spool
from protocol.protocol_error import ProtocolError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Counted:
    """What a transaction's tasks have made of its blocks."""

    files: dict[int, tuple[DataFile, ...]] = field(default_factory=dict)  # by table: its binding's index
    treated: dict[int, Tally] = field(default_factory=dict)  # by binding


@dataclass
class _Task:
    """What one task has done since it last named its files: it is counted with the next ones, or not at all."""

    block: Block | None = None  # the one that it is encoding
    encoded: list[Block] = field(default_factory=list)
    strays: list[Strays] = field(default_factory=list)  # of that block
    treated: list[TreatedValues] = field(default_factory=list)


class Ledger:
    """One transaction's claims: which blocks its tasks have, and which files they have written."""

    def __init__(self, spool: Spool, layouts: Sequence[Layout], transfer: BlockTransfer) -> None:
        self.threads: list[threading.Thread] = []
        self.counted = Counted()
        self._counting = threading.Lock()
        self._spool = spool
        self._layouts = layouts
        self._transfer = transfer
        self._sorted: set[Block] = set()  # blocks whose strays have been spooled under their own bindings

    def serve(self, connection: "Connection[Any, Any]") -> None:
        """Answer one task until it ends. An error fails the spool, and with it the transaction."""
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
                task.block = self._spool.claim(binding, connection.poll)  # a waiting task sends nothing unless it ends
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
        """The task has ended, in good order or not."""
        unwritten = task.encoded if task.block is None else [*task.encoded, task.block]
        if unwritten:
            self._sorted.update(task.encoded)
            self._transfer.lost(self._spool, unwritten)

    def _claim_of(self, block: Block) -> Claim:
        layout = self._layout_of(block)
        return Claim(block, self._transfer.source(block, layout), layout)

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
    with suppress(ConnectionError):  # the task has given up, and its last message says why: it is received next
        connection.send(answer)


def _receive(connection: "Connection[Any, Any]") -> object | None:
    try:
        received: object = connection.recv()
        return received
    except (EOFError, OSError):
        return None  # the task has ended
