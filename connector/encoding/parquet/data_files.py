"""Record batches to data files: row groups of bounded memory, files of the table's target size."""

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.parquet.statistics import describe_file, find_nan, worth_a_dictionary
from connector.host.errors import ConnectorError
from connector.model.binding import Column
from connector.model.state import DataFile
from connector.storage.file_io import WriteFile, create_file, delete_if_possible, write_small_file
from connector.storage.storage_errors import translate_errors

# A row group is held in memory until it is written; larger ones compress no better.
ROW_GROUP_SIZE: Final = 32 << 20  # bytes of Arrow data

# They do not hide the error for which a file is aborted. ValueError: closing it has failed before, and it is closed.
ABORT_ERRORS: Final = (ConnectorError, OSError, ValueError, pa.ArrowException)


class GatheredRowGroup:
    """Gathers batches until they are a row group. It keeps the batches themselves."""

    def __init__(self, capacity: int) -> None:
        """`capacity` is in bytes."""
        self._capacity = capacity
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def fill(self, batch: pa.RecordBatch) -> Iterator[list[pa.RecordBatch]]:
        """Add a batch, unless it is empty. Yield what has to be written first for that: the gathered batches, and a
        batch that is larger than a row group. The caller has to use all that is yielded."""
        if not batch.num_rows or self.add(batch):
            return
        if gathered := self.take():
            yield gathered
        if not self.add(batch):
            yield [batch]

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch if there is room for it. Return whether there was."""
        if self._size + batch.nbytes > self._capacity:
            return False
        self._batches.append(batch)
        self._size += batch.nbytes
        return True

    def take(self) -> list[pa.RecordBatch]:
        """Remove and return all batches. They are valid until the next one is added."""
        batches, self._batches, self._size = self._batches, [], 0
        return batches


class RowGroupMemory(GatheredRowGroup):
    """Gathers batches until they are a row group. It copies their rows into one piece of memory that only they use.

    Decoding frees its memory after each batch. If the batches themselves were kept until a row group is full, they
    would lie scattered among freed memory, and a worker would grow by another half of a row group.

    Each page of new memory costs the kernel time when it is first written to. So one table after the other is gathered
    in the same memory.
    """

    def __init__(self, capacity: int) -> None:
        """The bytes of `capacity` take no memory before they are written to."""
        super().__init__(capacity)
        self._memory = _map_memory(capacity)

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch if there is room for it. Return whether there was."""
        end = self._size + _size_of(batch)
        if end > self._capacity:
            return False
        room = pa.py_buffer(self._memory[self._size : end])
        _write(pa.FixedSizeBufferWriter(room), batch)
        self._batches.append(pa.ipc.open_stream(room).read_next_batch())
        self._size = end
        return True

    def release(self) -> None:
        """Give all memory back to the system, when all batches are taken and written."""
        assert not self._batches, "the batches are in this memory"
        self._memory = _map_memory(self._capacity)


@dataclass(frozen=True)
class NewFiles:
    """How new data files of one table are made."""

    io: FileIO
    new_location: Callable[[], str]
    columns: Sequence[Column]  # those with statistics: the first ones of the schema
    schema: pa.Schema
    options: FileOptions
    write_file: WriteFile = write_small_file  # of small files, which may become durable later

    def create(self, location: str) -> Any:
        """Return a stream that writes a file; see `create_file`."""
        return create_file(self.io, location, self.write_file)


class OpenFile(Protocol):
    """A data file that is being written."""

    location: str

    @property
    def size(self) -> int:
        """Bytes written so far."""

    def close(self) -> DataFile:
        """Complete the file."""

    def abort(self) -> None:
        """End writing."""


File = TypeVar("File", bound=OpenFile)


class FileWriter(ABC, Generic[File]):
    """Writes files of the target size, of which one at a time is open."""

    def __init__(self, files: NewFiles) -> None:
        self._files = files
        self._open: File | None = None
        self._complete: list[DataFile] = []

    def finish(self) -> list[DataFile]:
        """Return all files, complete. They are durable when those that `write_file` got are."""
        self.close_file()
        return self._complete

    def close_file(self) -> None:
        """Complete the open file. Further rows go to another one."""
        self._write_gathered()
        self._end()

    def abort(self) -> None:
        """Delete all files, as far as possible. Nothing refers to them."""
        locations = [file.path for file in self._complete]
        if self._open:
            locations.append(self._open.location)
            with suppress(*ABORT_ERRORS):
                self._open.abort()
        delete_if_possible(self._files.io, locations)

    @abstractmethod
    def _write_gathered(self) -> None:
        """Write the rows that are gathered."""

    def _get_file(self, open_file: Callable[[], File]) -> File:
        """Return the open file. `open_file` makes it if there is none."""
        if self._open is None:
            self._open = open_file()
        return self._open

    def _end_if_full(self) -> None:
        if self._open and self._open.size >= self._files.options.target_size:
            self._end()

    def _end(self) -> None:
        if self._open:
            self._complete.append(self._open.close())
            self._open = None


class _Abortable(Protocol):
    def abort(self) -> None:
        """Delete all files, as far as possible."""


@contextmanager
def abort_on_failure(writer: _Abortable) -> Iterator[None]:
    """Abort the writer if the block fails."""
    try:
        yield
    except BaseException:
        writer.abort()
        raise


@contextmanager
def open_new_file(io: FileIO, location: str, write_file: WriteFile) -> Iterator[Any]:
    """Yield a stream of `create_file`, and complete the file. If the block fails, the file is aborted instead."""
    stream = create_file(io, location, write_file)
    try:
        yield stream
    except BaseException:
        with suppress(*ABORT_ERRORS):
            stream.abort()
        raise
    stream.close()


class DataFileWriter(FileWriter["_OpenParquetFile"]):
    """Writes record batches of one schema to files of the target size."""

    def __init__(self, files: NewFiles, row_group: GatheredRowGroup | None = None) -> None:
        """`row_group` gathers rows, until they are a row group of the file."""
        super().__init__(files)
        self._row_group = row_group or RowGroupMemory(ROW_GROUP_SIZE)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch. A full row group is written to the open file."""
        for batches in self._row_group.fill(batch):
            self._write_row_group(batches)

    def _write_gathered(self) -> None:
        self._write_row_group(self._row_group.take())

    def _write_row_group(self, batches: Sequence[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches(batches, self._files.schema)
        if not rows.num_rows:
            return
        self._get_file(lambda: _OpenParquetFile(self._files, rows)).write(rows)
        self._end_if_full()


class _OpenParquetFile:
    """A Parquet file that is being written."""

    def __init__(self, files: NewFiles, first_rows: pa.Table) -> None:
        """The first rows decide which columns get dictionaries."""
        self.location = files.new_location()
        self._columns = files.columns
        self._with_nan: set[int] = set()
        with translate_errors(self.location):
            self._stream = files.create(self.location)
        # Without `metadata_collector`: then closing it after an error would be another error.
        self._writer = pq.ParquetWriter(
            self._stream,
            files.schema,
            **files.options.of_writer(worth_a_dictionary(first_rows)),
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        """Write the rows as one row group."""
        with translate_errors(self.location):
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._with_nan.update(find_nan(rows))

    def close(self) -> DataFile:
        """Complete the file. Returns its location, its counts and its column statistics."""
        with translate_errors(self.location):
            self._writer.close()
            size = self.size
            self._stream.close()
        return describe_file(self.location, size, self._writer.writer.metadata, self._columns, self._with_nan)

    def abort(self) -> None:
        """End writing."""
        with translate_errors(self.location):
            self._writer.close()
            self._stream.abort()


def _map_memory(size: int) -> memoryview:
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _size_of(batch: pa.RecordBatch) -> int:
    """Return the bytes that a copy of the batch takes."""
    counted = pa.MockOutputStream()
    _write(counted, batch)
    return int(counted.size())


def _write(sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
