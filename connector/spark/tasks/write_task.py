"""A task in a Python worker of Spark: claims blocks, decodes their lines, and writes data files."""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from connector.encoding.lines.decoder import Decoded, RowDecoder, Stray
from connector.encoding.lines.invalid_cells import make_batch
from connector.encoding.lines.row_lines import Lines
from connector.encoding.parquet.data_files import ROW_GROUP_SIZE, DataFileWriter, RowGroupMemory
from connector.encoding.values.arrays import Words
from connector.encoding.values.column_types import arrow_schema
from connector.host import machine
from connector.host.errors import BrokenTaskError, ConnectorError, RetryableError
from connector.host.signals import waiting
from connector.host.threads import StartedCalls
from connector.model.invalid_values import Tally
from connector.model.state import DataFile
from connector.spark.blocks.claim_server import Address
from connector.spark.blocks.claims import Claim, Next, Noted, Strays, TaskFailed, ToDriver, Wrote
from connector.spark.blocks.ledger import TaskOutput
from connector.spark.blocks.spool import Block
from connector.spark.blocks.transaction_files import LocalRuns, TableLayout, TemporaryFile
from connector.storage.file_io import LARGEST_HELD, WriteFile, write_later
from protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from connector.encoding.search.searched_keys import RowIdsOfKeys
    from connector.spark.tasks.arranged_files import RunWriter

DECODING_BATCH: Final = 4 << 20  # bytes: larger batches leave the processor's cache, smaller ones need more calls
REPORTED_TOGETHER: Final = 4 << 20  # bytes of blocks; after so many, the driver is told what was written
UPLOADS_CHECK: Final = 1.0  # seconds between two looks whether an upload has failed, while no block comes

# Beside the file of the other rows: it must not double the memory that is planned for them.
_REJECTED_ROW_GROUP_SIZE: Final = ROW_GROUP_SIZE // 4

_WRITING_FAILED: Final = (
    "A task could not read its rows or write a data file: {}. Nothing of this transaction has become visible. Check "
    "the disk of the temporary directory (TMPDIR), and the storage of the tables."
)

decoder = lru_cache(maxsize=256)(RowDecoder)  # a worker serves the session's transactions one after the other


def write_files(address: Address, partition: Iterable[int]) -> Iterable[None]:
    """Run one task of a transaction's job.

    The task reports to the driver which files it has written. If it cannot go on, it reports the error, and the
    transaction fails.
    """
    for _ in partition:  # Spark replaces the worker of a task that leaves its input unread
        pass
    # A failure is reported before the files are cleaned up: a store that has failed may not answer a deletion either.
    with address.connect() as driver, ExitStack() as unfinished, StartedCalls(LARGEST_HELD) as uploads:
        try:
            _write_claims(driver, unfinished, uploads)
        except (ConnectorError, ProtocolError) as error:
            driver.send(TaskFailed(error))
        except (EOFError, ConnectionError):
            raise  # the transaction or the network has failed: another task may go on
        except Exception as error:  # noqa: BLE001 - the driver gets every failure of a task
            driver.send(TaskFailed(explain_task_failure(error), "".join(traceback.format_exception(error))))
    return ()


def explain_task_failure(error: Exception) -> ConnectorError:
    """Return what the driver is told of an error that a task does not expect."""
    if limit := machine.explain_limit(error):
        return RetryableError(limit)
    if isinstance(error, OSError):
        return RetryableError(_WRITING_FAILED.format(error))
    return BrokenTaskError(type(error).__name__, str(error))


def _write_claims(driver: ToDriver, unfinished: ExitStack, uploads: StartedCalls) -> None:
    """Write consecutive blocks of one binding to the same files, while the credentials are the same.

    One table is encoded at a time: the memory is planned for one. Its small files are uploaded while the next one is
    encoded, and the driver is told of several tables when all of their files are durable. It is told of an upload that
    fails when a block is written, or while none comes: a transaction may be open for hours.
    """
    driver.send(Next(None))
    claim = _receive(driver)
    rows, runs = RowGroupMemory(ROW_GROUP_SIZE), LocalRuns()
    output, size = TaskOutput(), 0
    while claim:
        layout = claim.layout
        files = TableFiles(layout, claim.source, rows, runs, partial(write_later, uploads))
        unfinished.callback(files.abort)
        blocks = _BlockWriter(driver, layout, files)
        while claim and claim.block.binding == layout.binding.index and claim.layout.leases == layout.leases:
            blocks.write(claim)
            size += claim.block.size
            uploads.check()
            driver.send(Next(layout.binding.index))
            claim = _wait_for_block(driver, layout, files, uploads)
        if claim:
            files.leave_room()
        output.add(blocks.finish())
        if claim is None or size >= REPORTED_TOGETHER:
            uploads.finish()
            unfinished.pop_all()  # once this is sent, the files may count, even without an answer
            driver.send(Wrote(output))
            noted = driver.recv()
            assert isinstance(noted, Noted)
            output, size = TaskOutput(), 0


def _wait_for_block(driver: ToDriver, layout: TableLayout, files: "TableFiles", uploads: StartedCalls) -> Claim | None:
    """Return the next block. Until it comes, look for failed uploads, and complete the files before their credentials
    expire."""
    began, left = time.monotonic(), layout.seconds_left
    while not _is_answered(driver):
        uploads.check()
        if left is not None and time.monotonic() - began >= left:
            files.close()
    return _receive(driver)


def _is_answered(driver: ToDriver) -> bool:
    """Wait a little for an answer."""
    with waiting():
        return driver.poll(UPLOADS_CHECK)


def _receive(driver: ToDriver) -> Claim | None:
    with waiting():
        claim = driver.recv()
    assert not isinstance(claim, Noted)
    return claim


class RowWriter(Protocol):
    """Writes the rows of one table."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""

    def close_file(self) -> None:
        """Complete the open file. Further rows go to another one."""

    def finish(self) -> list[DataFile]:
        """Return all data files, complete."""

    def abort(self) -> None:
        """Delete all files, as far as possible. Nothing refers to them."""


class TableFiles:
    """What a task writes from consecutive blocks of one binding, its rejected rows included.

    Rows go to data files, or to sorted runs if their table has partitions or a sort order.
    """

    def __init__(
        self, layout: TableLayout, block: TemporaryFile, rows: RowGroupMemory, runs: LocalRuns, write_file: WriteFile
    ) -> None:
        """Runs go where the block is: to the same disk, or to the object store. `rows` gathers the rows of a file.
        `write_file` writes small files, which may become durable later."""
        self._layout, self._block, self._local_runs, self._write_file = layout, block, runs, write_file
        self._first_line = 0
        self._run_writers: dict[int, RunWriter] = {}  # by table: its binding's index
        self._rows = self._open_writer(layout, rows)
        self._rejected: RowWriter | None = None

    def begin_block(self, first_line: int) -> None:
        """Expect the rows of a block that begins with this line of the input."""
        self._first_line = first_line
        for writer in self._run_writers.values():
            writer.begin_block(first_line)

    def write(self, decoded: Decoded) -> None:
        """Write the rows of one batch, and its rejected rows."""
        self._rows.write(decoded.batch)
        if decoded.rejected:
            rejected = self._layout.rejected
            assert rejected, "rows are rejected only where there is a table for them"
            self._rejected = self._rejected or self._open_writer(rejected, RowGroupMemory(_REJECTED_ROW_GROUP_SIZE))
            self._rejected.write(make_batch(decoded.rejected, datetime.now(UTC), arrow_schema(rejected.binding)))

    def close(self) -> None:
        """Complete the open files, and those for which runs would be merged later. Further rows go to new ones."""
        for writer in filter(None, (self._rows, self._rejected)):
            writer.close_file()
        self.leave_room()

    def leave_room(self) -> None:
        """Merge the runs that are merged in this task, and those that would take the next table's room on the disk."""
        for writer in self._run_writers.values():
            writer.leave_room()

    def finish(self) -> TaskOutput:
        """Return all data files and sorted runs, complete."""
        files = {self._layout.binding.index: tuple(self._rows.finish())}
        if self._rejected and self._layout.rejected:
            files[self._layout.rejected.binding.index] = tuple(self._rejected.finish())
        return TaskOutput(files, {index: tuple(writer.runs) for index, writer in self._run_writers.items()})

    def abort(self) -> None:
        """Delete files and runs, as far as possible. Nothing refers to them."""
        self._rows.abort()
        if self._rejected:
            self._rejected.abort()

    def _open_writer(self, layout: TableLayout, row_group: RowGroupMemory) -> RowWriter:
        if layout.arrangement.is_plain:
            return DataFileWriter(replace(layout.new_files, write_file=self._write_file), row_group)
        from connector.spark.tasks.arranged_files import RunWriter  # only for arranged tables

        writer = RunWriter(layout, row_group, partial(self._block.new_run, layout), self._local_runs)
        writer.begin_block(self._first_line)
        self._run_writers[layout.binding.index] = writer
        return writer


@dataclass
class _BlockWriter:
    """Writes blocks of one binding to the same files, and gives the driver the lines that are of another binding."""

    driver: ToDriver
    layout: TableLayout
    files: TableFiles
    treated: Tally = field(default_factory=Tally)
    existing_keys: list[Words] = field(default_factory=list)  # hashes
    row_ids: "RowIdsOfKeys | None" = None  # of the rows that are replaced, once there are some

    def write(self, claim: Claim) -> None:
        """Write the rows of a block."""
        row = 0
        self.files.begin_block(claim.block.line_of(0))
        with claim.source.open(self.layout.io) as stream:
            for content in _batches(stream, claim.block.size):
                lines = Lines(content, _numbers_from(claim.block, row))
                row += lines.count
                self._write_lines(lines)
                # Before the next batch is read, or their memory would be scattered among its own.
                del content, lines

    def finish(self) -> TaskOutput:
        """Complete the files, and return what was written."""
        index = self.layout.binding.index
        existing_keys = {index: tuple(self.existing_keys)}
        return replace(self.files.finish(), treated={index: self.treated}, existing_keys=existing_keys)

    def _write_lines(self, lines: Lines) -> None:
        decoded = decoder(self.layout.binding).decode(lines)
        self._return_strays(decoded.strays)
        self.treated.add_all(decoded.treated)
        self.existing_keys += decoded.existing_keys
        if self.layout.row_ids:
            from connector.spark.blocks.stored_keys import open_row_ids

            self.row_ids = self.row_ids or open_row_ids(self.layout)
            decoded = replace(decoded, batch=self.row_ids.add_to(decoded.batch))
        self.files.write(decoded)

    def _return_strays(self, strays: Sequence[Stray]) -> None:
        by_binding = attrgetter("binding")
        for binding, stray in groupby(sorted(strays, key=by_binding), key=by_binding):
            lines = list(stray)
            self.driver.send(
                Strays(binding, [stray.line + b"\n" for stray in lines], [stray.number for stray in lines])
            )


def _numbers_from(block: Block, first: int) -> Callable[[int], int]:
    return lambda index: block.line_of(first + index)


def _batches(block: Any, size: int) -> Iterator[bytes]:
    """Yield the lines of a block, about DECODING_BATCH bytes at a time, without splitting a line. `size` is that of the
    block, in bytes."""
    assert size, "a block has lines"
    buffer = bytearray(min(size, DECODING_BATCH))  # to clear more than a small block needs empties the cache
    held = 0
    while read := _read_into(block, buffer, held):
        held += read
        end = buffer.rfind(b"\n", 0, held) + 1
        if end:
            yield bytes(memoryview(buffer)[:end])
            buffer[: held - end] = buffer[end:held]
            held -= end
        elif held == len(buffer):
            buffer += bytes(DECODING_BATCH)  # for a longer line
    assert not held, "a block holds whole lines"


def _read_into(block: Any, buffer: bytearray, held: int) -> int:
    with memoryview(buffer) as view:
        return int(block.readinto(view[held:]))
