"""How the blocks of a transaction get to the Spark tasks that have claimed them: by a shared disk, or by the store."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, Protocol

from connector.host.errors import RetryableError
from connector.spark.blocks.spool import Block
from connector.spark.blocks.transaction_files import (
    Layouts,
    LocalFile,
    StoredObject,
    TableLayout,
    TemporaryFile,
    remove_objects,
)

log = logging.getLogger(__name__)

COPIED_AT_ONCE: Final = 4 << 20  # bytes


class BlockTransfer(Protocol):
    """How the blocks of one transaction reach their tasks."""

    def source(self, block: Block, layout: TableLayout) -> TemporaryFile:
        """Return the file from which a task reads the block. `layout` is that of the block's table."""

    def check_lost(self, blocks: Sequence[Block]) -> None:
        """Raise RetryableError unless another task can read these blocks. Their task was lost."""

    def remove(self) -> None:
        """Remove all copies of blocks, when the transaction is written or has failed."""


class OnThisMachine:
    """A task reads the spool's own files, which are deleted once they are encoded. So a lost task fails the
    transaction, and the runtime replays it."""

    def __init__(self, explain_lost_task: Callable[[], RetryableError]) -> None:
        """`explain_lost_task` returns the error that says why a task was lost."""
        self._explain_lost_task = explain_lost_task

    def source(self, block: Block, _: TableLayout) -> TemporaryFile:
        """Return the spool's own file."""
        return LocalFile(block.path)

    def check_lost(self, _: Sequence[Block]) -> None:
        """Raise the error that says why the task was lost: its blocks may be deleted already."""
        raise self._explain_lost_task()

    def remove(self) -> None:
        """Do nothing: the spool removes its own files."""


class ThroughTheStore:
    """A block stays in the object store until the transaction is written, so another task can read the block of a lost
    task."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._copies: dict[Block, StoredObject] = {}
        self._changing = Lock()  # of the copies: a failed transaction removes them while tasks may still claim blocks

    def source(self, block: Block, layout: TableLayout) -> TemporaryFile:
        """Return the copy of the block. The first call makes the copy, and deletes the file of the spool."""
        with self._changing:
            copy = self._copies.get(block)
        if copy is None:
            copy = StoredObject(layout.new_block_location())
            with copy.create(layout.io) as stored:
                for piece in block.read(COPIED_AT_ONCE):
                    stored.write(piece)
            with self._changing:
                self._copies[block] = copy
            with suppress(OSError):
                block.path.unlink()
        return copy

    def check_lost(self, blocks: Sequence[Block]) -> None:
        """Only warn: another task reads the same objects."""
        log.warning("a Spark task was lost: its %d block(s) of rows are written by another", len(blocks))

    def remove(self) -> None:
        """Delete all copies. If that fails, only warn: a later session removes them."""
        with self._changing:
            copies = {**self._copies}
        for index in sorted({block.binding for block in copies}):
            locations = [copy.location for block, copy in copies.items() if block.binding == index]
            remove_objects(self._layouts, index, locations, "rows that were spooled")
