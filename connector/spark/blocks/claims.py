"""Claims: how tasks get blocks from the driver, and tell it which files hold their rows.

A task lives as long as its transaction, and its files grow across blocks. So its work cannot be assigned before it
starts. Every message is a pickled object.
"""

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, TypeAlias, assert_never

from connector.host.errors import ConnectorError
from connector.spark.blocks.block_transfer import BlockTransfer
from connector.spark.blocks.ledger import Ledger, TaskAccount, TaskOutput
from connector.spark.blocks.spool import Block
from connector.spark.blocks.transaction_files import Layouts, TableLayout, TemporaryFile
from protocol.protocol_error import ProtocolError
from protocol.request import Store

log = logging.getLogger(__name__)

# A task's connection says so in many ways: it is closed or reset, or its machine does not answer.
TASK_IS_GONE: Final = (EOFError, OSError)


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
        with suppress(OSError), open_socket(connection) as same:
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


@contextmanager
def open_socket(connection: "ToDriver | ToTask") -> Iterator[socket.socket]:
    """Give the socket of a connection, which stays open."""
    same = socket.socket(fileno=connection.fileno())
    try:
        yield same
    finally:
        same.detach()  # the connection closes the descriptor


def _send(connection: ToTask, answer: Answer) -> None:
    # If the task is gone, its last message may say why, and is received next.
    with suppress(*TASK_IS_GONE):
        connection.send(answer)


def _receive(connection: ToTask) -> TaskMessage | None:
    """Return what the task says next. None if it has ended."""
    try:
        return connection.recv()
    except TASK_IS_GONE:
        return None
