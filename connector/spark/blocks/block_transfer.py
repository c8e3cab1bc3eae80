"""How a claimed block reaches its task: on a disk that driver and task share, or through the object store."""

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from connector.host.errors import RetryableError
from connector.host.signals import map_in_threads
from connector.spark.blocks.spool import Block
from connector.spark.blocks.table_layout import NewLayout, TableLayout
from connector.spark.blocks.temporary_files import LocalFile, StoredObject, TemporaryFile, warn_if_left

if TYPE_CHECKING:
    from connector.encoding.runs.sorted_runs import SortedRun  # only for arranged tables

log = logging.getLogger(__name__)

COPIED_AT_ONCE: Final = 4 << 20  # bytes


@dataclass(frozen=True)
class StoredRun:
    """A sorted run, and its file."""

    file: TemporaryFile
    run: "SortedRun"


def remove_objects(new_layout: NewLayout, locations: Sequence[str], contents: str) -> None:
    """Delete objects of one table, if there are some. If that fails, only warn: a later session removes them.

    `contents` says what the objects have, in the plural.
    """
    if locations:
        with warn_if_left(contents, locations[0]):
            map_in_threads(new_layout().io.delete, locations, "removal")


class BlockTransfer(Protocol):
    """How the blocks of one transaction reach their tasks."""

    def source(self, block: Block, layout: TableLayout) -> TemporaryFile:
        """Return the file from which the task that writes to this table reads the block."""

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
    task.

    The objects are named like the transaction's data files: if this process is killed, they are removed with those.
    """

    def __init__(self, new_layouts: Sequence[NewLayout]) -> None:
        self._new_layouts = new_layouts  # the bindings'
        self._copies: dict[Block, StoredObject] = {}

    def source(self, block: Block, layout: TableLayout) -> TemporaryFile:
        """Return the copy of the block. The first call makes the copy, and deletes the file of the spool."""
        if block not in self._copies:
            copy = StoredObject(layout.new_block_location())
            with block.path.open("rb") as spooled, copy.create(layout.io) as stored:
                shutil.copyfileobj(spooled, stored, COPIED_AT_ONCE)
            self._copies[block] = copy
            block.path.unlink()
        return self._copies[block]

    def check_lost(self, blocks: Sequence[Block]) -> None:
        """Only warn: another task reads the same objects."""
        log.warning("a Spark task was lost: its %d block(s) of rows are written by another", len(blocks))

    def remove(self) -> None:
        """Delete all copies. If that fails, only warn: a later session removes them."""
        for index in sorted({block.binding for block in self._copies}):
            locations = [copy.location for block, copy in self._copies.items() if block.binding == index]
            remove_objects(self._new_layouts[index], locations, "rows that were spooled")
