"""How a claimed block reaches its task: on a disk that driver and task share, or through the object store."""

import logging
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pyiceberg.io import FileIO

from connector.host.errors import ConnectorError, RetryableError
from connector.host.signals import map_in_threads
from connector.spark.blocks.spool import Block
from connector.spark.blocks.table_layout import NewLayout, TableLayout
from connector.storage import storage_errors

if TYPE_CHECKING:
    from connector.encoding.runs.sorted_runs import SortedRun  # only for arranged tables

log = logging.getLogger(__name__)

COPIED_AT_ONCE: Final = 4 << 20  # bytes
DELETIONS_AT_ONCE: Final = 8


@dataclass(frozen=True)
class SpooledFile:
    """A block on a disk that driver and task share."""

    path: Path

    @contextmanager
    def open(self, _: FileIO) -> Iterator[Any]:
        """Open the file of the spool. It is read without a buffer."""
        with self.path.open("rb", buffering=0) as file:
            yield file

    def new_run(self, _: TableLayout) -> "SpooledFile":
        """Return a new place for a sorted run: in the spool's directory, and removed with it."""
        return SpooledFile(self.path.parent / f"{uuid.uuid4()}.run")


@dataclass(frozen=True)
class StoredObject:
    """A block beside its table's data files, opened with the credentials for these."""

    location: str

    @contextmanager
    def open(self, io: FileIO) -> Iterator[Any]:
        """Open the object, and translate the store's errors."""
        with storage_errors.translate_errors(self.location), io.new_input(self.location).open(seekable=False) as stream:
            yield stream

    def new_run(self, layout: TableLayout) -> "StoredObject":
        """Return a new place for a sorted run: beside the table's data files, too."""
        return StoredObject(layout.new_run_location())


Source: TypeAlias = SpooledFile | StoredObject


@dataclass(frozen=True)
class StoredRun:
    """A sorted run, and where it is."""

    source: Source
    run: "SortedRun"


@contextmanager
def warn_if_left(objects: str, location: str) -> Iterator[None]:
    """Only warn if objects that have served their purpose cannot be deleted: a later session removes them."""
    try:
        with storage_errors.translate_errors(location):
            yield
    except (ConnectorError, OSError) as error:
        log.warning("%s stay in the object store until a later session: %s", objects, error)


class BlockTransfer(Protocol):
    """How the blocks of one transaction reach their tasks."""

    def source(self, block: Block, layout: TableLayout) -> Source:
        """Return where the task that writes to this table reads the block."""

    def check_lost(self, blocks: Sequence[Block]) -> None:
        """Raise RetryableError unless another task can read these blocks. Their task was lost."""

    def remove(self) -> None:
        """Remove all copies of blocks, when the transaction is written or has failed."""


class OnThisMachine:
    """A task reads the spool's own files, which are deleted once they are encoded. So a lost task fails the
    transaction, and the runtime replays it."""

    def __init__(self, end_of_task: Callable[[], RetryableError]) -> None:
        """`end_of_task` returns the error that says why a task was lost."""
        self._end_of_task = end_of_task

    def source(self, block: Block, _: TableLayout) -> Source:
        """Return the spool's own file."""
        return SpooledFile(block.path)

    def check_lost(self, _: Sequence[Block]) -> None:
        """Raise the error that says why the task was lost: its blocks may be deleted already."""
        raise self._end_of_task()

    def remove(self) -> None:
        """Do nothing: the spool removes its own files."""


class ThroughTheStore:
    """A block stays in the object store until the transaction is written, so another task can read the block of a lost
    task.

    The objects are named like the transaction's data files: if this process is killed, they are removed with those.
    """

    def __init__(self, new_layouts: Sequence[NewLayout]) -> None:
        self._new_layouts = new_layouts  # the bindings'
        self._locations: dict[Block, str] = {}

    def source(self, block: Block, layout: TableLayout) -> Source:
        """Return the copy of the block. The first call makes the copy, and deletes the file of the spool."""
        if block not in self._locations:
            location = layout.new_block_location()
            output = layout.io.new_output(location)
            with (
                block.path.open("rb") as spooled,
                storage_errors.translate_errors(location),
                output.create(overwrite=True) as stored,
            ):
                shutil.copyfileobj(spooled, stored, COPIED_AT_ONCE)
            self._locations[block] = location
            block.path.unlink()
        return StoredObject(self._locations[block])

    def check_lost(self, blocks: Sequence[Block]) -> None:
        """Only warn: another task reads the same objects."""
        log.warning("a Spark task was lost: its %d block(s) of rows are written by another", len(blocks))

    def remove(self) -> None:
        """Delete all copies. If that fails, only warn: a later session removes them."""
        for index in sorted({block.binding for block in self._locations}):
            locations = [location for block, location in self._locations.items() if block.binding == index]
            with warn_if_left("rows that were spooled", locations[0]):
                map_in_threads(self._new_layouts[index]().io.delete, locations, DELETIONS_AT_ONCE, "spool")
