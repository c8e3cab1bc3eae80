"""Blocks of Store lines: files that grow by whole runs of lines until they are sealed."""

import os
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from protocol.request import Store

PIECES_PER_WRITE: Final = 512  # writev(2) takes at most 1024


@dataclass(frozen=True)
class Run:
    """Consecutive lines of the input."""

    first_line: int
    count: int


@dataclass(frozen=True)
class Block:
    """A file of whole Store lines of one binding."""

    binding: int
    path: Path
    size: int  # bytes
    runs: tuple[Run, ...]

    def line_of(self, row: int) -> int:
        """The number of the input line that the block's row (from 0) came from, for errors."""
        for run in self.runs:
            if row < run.count:
                return run.first_line + row
            row -= run.count
        raise IndexError(row)


@dataclass
class OpenBlock:
    """A block that still grows."""

    binding: int
    path: Path
    file: BinaryIO
    size: int = 0
    runs: list[Run] = field(default_factory=list)

    def append(self, store: Store) -> None:
        pieces = iter(store.pieces)
        while some := list(islice(pieces, PIECES_PER_WRITE)):
            _write_fully(self.file, some)
        self.size += store.size
        last = self.runs[-1] if self.runs else None
        if last and last.first_line + last.count == store.first_line:
            self.runs[-1] = Run(last.first_line, last.count + store.count)
        else:
            self.runs.append(Run(store.first_line, store.count))

    def seal(self) -> Block:
        self.file.close()
        return Block(self.binding, self.path, self.size, tuple(self.runs))


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
