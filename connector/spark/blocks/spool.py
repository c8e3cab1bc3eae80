"""The spool: Store lines on the local disk, in blocks.

Lines are appended, as they came, to one growing block for each binding. A full block is sealed, and does not
change again. The spool is bounded: while it has no room, stdin is not read, and the runtime waits too.
"""

import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO, Final

from connector.host import facts
from connector.host.errors import RetryableError
from connector.host.facts import SpoolSize
from connector.host.tempdirs import advise
from connector.spark.limits import SPOOL_LIMIT
from protocol.request import Store

BLOCK_SIZE: Final = 32 << 20  # bytes: large enough to pay for its claim, small enough to spread over the cores
PIECES_PER_WRITE: Final = 512  # writev(2) takes at most 1024


@dataclass(frozen=True)
class LineRange:
    """Consecutive lines of the input."""

    first_line: int
    count: int


@dataclass(frozen=True)
class Block:
    """A file of whole Store lines of one binding."""

    binding: int
    path: Path
    size: int  # bytes
    ranges: tuple[LineRange, ...]

    def line_of(self, row: int) -> int:
        """Return the number of the input line that the block's row (from 0) came from, for errors."""
        for lines in self.ranges:
            if row < lines.count:
                return lines.first_line + row
            row -= lines.count
        raise IndexError(row)

    def read(self, size: int) -> Iterator[bytes]:
        """Yield the content, so many bytes at a time. Raises RetryableError if the disk cannot be read."""
        try:
            with self.path.open("rb") as file:
                while piece := file.read(size):
                    yield piece
        except OSError as error:
            raise RetryableError(
                f"rows cannot be read from {self.path} ({error.strerror}), where they wait for their data file. "
                f"Nothing of this transaction has become visible. {advise(error)}"
            ) from error


@dataclass
class OpenBlock:
    """A block that still grows."""

    binding: int
    path: Path
    file: BinaryIO
    size: int = 0  # bytes
    ranges: list[LineRange] = field(default_factory=list)

    def append(self, store: Store) -> None:
        """Write a run of lines to the end of the file. Raises OSError if the disk is full."""
        pieces = iter(store.pieces)
        while written_together := list(islice(pieces, PIECES_PER_WRITE)):
            _write_fully(self.file, written_together)
        self.size += store.size
        last = self.ranges[-1] if self.ranges else None
        if last and last.first_line + last.count == store.first_line:
            self.ranges[-1] = LineRange(last.first_line, last.count + store.count)
        else:
            self.ranges.append(LineRange(store.first_line, store.count))

    def seal(self) -> Block:
        """Close the file and return the block. Raises OSError if the disk is full: some say it only then."""
        self.file.close()
        return Block(self.binding, self.path, self.size, tuple(self.ranges))


class Spool:
    """The bytes of one transaction's Store lines. One thread adds; any thread may write strays and free blocks.

    It does not know which task has a block, or whether its rows are in a file: the ledger knows.
    """

    def __init__(self, directory: Path, block_size: int = BLOCK_SIZE, limit: int = SPOOL_LIMIT) -> None:
        """Make the directory. `block_size` and `limit` are in bytes."""
        self._directory = directory
        self._block_size = block_size
        self._limit = limit
        with self._on_disk():
            directory.mkdir()
        self._open: dict[int, OpenBlock] = {}
        self._numbers = count(1)
        self._size = 0
        self._sizing = threading.Lock()

    @property
    def has_room(self) -> bool:
        """Whether more lines may be added: the blocks that are not freed have at most `limit` bytes."""
        return self._size <= self._limit

    @property
    def open_bindings(self) -> list[int]:
        """The bindings of the blocks that still grow."""
        return [*self._open]

    def add(self, store: Store) -> list[Block]:
        """Append a run of lines. Return its block if that is full now. Raises RetryableError if the disk is full."""
        with self._on_disk():
            block = self._open.get(store.binding)
            if block is None:
                block = self._open[store.binding] = self._new_block(store.binding)
            block.append(store)
        self._take(store.size)
        return [self._seal(block)] if block.size >= self._block_size else []

    def seal_all(self) -> list[Block]:
        """Seal and return every block that still grows."""
        return [self._seal(block) for block in [*self._open.values()]]

    def write_strays(self, strays: Iterable[Store]) -> Block:
        """Return a block of these lines, which are of one binding. Raises RetryableError if the disk is full."""
        first, *rest = strays
        with self._on_disk():
            block = self._new_block(first.binding)
            for store in (first, *rest):
                block.append(store)
            sealed = block.seal()
        self._take(block.size)
        return sealed

    def free(self, block: Block) -> None:
        """Delete a block's file, if that is possible, and make room."""
        with suppress(OSError):
            block.path.unlink()
        self._take(-block.size)
        self._report()

    def take_back(self, block: Block) -> None:
        """Count a freed block again. Its file is not made again: the object store has a copy."""
        self._take(block.size)

    def remove(self) -> None:
        """Remove the spool's directory and all files in it, as far as possible: the session removes the rest."""
        for block in self._open.values():
            with suppress(OSError):
                block.file.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _take(self, size: int) -> None:
        with self._sizing:
            self._size += size

    def _new_block(self, binding: int) -> OpenBlock:
        path = self._directory / f"{next(self._numbers)}-{binding}.jsonl"
        return OpenBlock(binding, path, path.open("xb", buffering=0))

    def _seal(self, block: OpenBlock) -> Block:
        del self._open[block.binding]
        self._report()
        with self._on_disk():
            return block.seal()

    def _report(self) -> None:
        """Report the size to the metrics, once for each block that is sealed or freed."""
        facts.report(SpoolSize(self._size, self._limit))

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        """End the transaction if a write fails: a line that is only partly on disk must never be claimed."""
        try:
            yield
        except OSError as error:
            raise RetryableError(
                f"rows cannot be written to {self._directory} ({error.strerror}), where they wait for their data "
                f"files, up to {self._limit >> 20} MiB. Nothing of this transaction has become visible. {advise(error)}"
            ) from error


def _write_fully(file: BinaryIO, pieces: list[bytes | memoryview]) -> None:
    written = os.writev(file.fileno(), pieces)
    for piece in pieces:  # a short write is rare: only then write the rest piece by piece
        if written < len(piece):
            rest = memoryview(piece)[written:]
            while rest:
                rest = rest[os.write(file.fileno(), rest) :]
            written = 0
        else:
            written -= len(piece)
