"""The messages between a task and the driver about blocks.

A task lives as long as its transaction and its files grow across blocks, so its work cannot be assigned before it
starts. Every message is a pickled object on a connection that both sides authenticate with the session's own secret.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection
from typing import Any, TypeAlias

from connector.host.errors import ConnectorError
from connector.model.invalid_values import Tally
from connector.model.state import DataFile
from connector.spark.block_transfer import Source
from connector.spark.blocks import Block
from connector.spark.layout import TableLayout
from protocol.protocol_error import ProtocolError


@dataclass(frozen=True)
class Next:
    """Asks for a block, of this binding if there is one; the block that was claimed before is encoded."""

    binding: int | None


@dataclass(frozen=True)
class Claim:
    """A block to write, where to read it, and the table that its lines go to."""

    block: Block
    source: Source
    layout: TableLayout


@dataclass(frozen=True)
class Strays:
    """Lines of the claimed block that turned out to be of another binding."""

    binding: int
    lines: Sequence[bytes]
    numbers: Sequence[int]


@dataclass(frozen=True)
class TreatedValues:
    """Values of the claimed block that did not reach their column as they were sent."""

    binding: int
    tally: Tally


@dataclass(frozen=True)
class Wrote:
    """Every row of the encoded blocks is durable, in these files and in those that were named before. Answered by
    Noted.

    Files are by table: its binding's index.
    """

    files: Sequence[tuple[int, tuple[DataFile, ...]]]


@dataclass(frozen=True)
class Noted:
    """The files count."""


@dataclass(frozen=True)
class Failed:
    """The task gives up, and with it the transaction."""

    error: ConnectorError | ProtocolError
    traceback: str = ""  # of an unexpected exception


Place: TypeAlias = str | tuple[str, int]  # a socket's path, or host and port


@dataclass(frozen=True)
class Address:
    """Where a task finds its claims; the secret is for the tasks of one session."""

    place: Place
    secret: bytes = field(repr=False)

    @contextmanager
    def connect(self) -> Iterator["Connection[Any, Any]"]:
        with Client(self.place, authkey=self.secret) as connection:
            yield connection
