"""Record batches to data files: row groups of bounded memory, files of the table's target size."""

import mmap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from connector.encoding.statistics import column_statistics, split_offsets
from connector.host.errors import ConnectorError
from connector.model.binding import Column
from connector.model.state import DataFile
from connector.storage.storage_errors import translate_errors

CODEC: Final = "write.parquet.compression-codec"
LEVEL: Final = "write.parquet.compression-level"
TARGET_SIZE: Final = "write.target-file-size-bytes"

# Iceberg's names of codecs, and PyArrow's.
CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
}
WITH_LEVELS: Final = ("zstd", "gzip", "brotli")  # a level has no meaning for others, in Iceberg's own writers too

# A row group is held in memory until it is written; larger ones compress no better.
ROW_GROUP_SIZE: Final = 32 << 20  # bytes of Arrow data
_SAMPLE: Final = 10_000  # rows
_FIRST_SAMPLE: Final = 1_000  # rows
_NEARLY_ALL: Final = 950  # of the first sample


@dataclass(frozen=True)
class FileOptions:
    """How large data files become, and how they are compressed."""

    target_size: int  # bytes
    codec: str
    level: int | None

    @classmethod
    def of_table(cls, properties: Mapping[str, str]) -> "FileOptions":
        """Return the options that a table's properties ask for. Raises ValueError if a property is invalid."""
        codec = properties.get(CODEC, "zstd").lower()
        if codec not in CODECS:
            raise ValueError(f"{CODEC} is {codec!r}; it may be {', '.join(CODECS)}")
        return cls(
            target_size=_number(properties, TARGET_SIZE, 1) or 512 << 20,
            codec=CODECS[codec],
            level=_level(properties, codec) if codec in WITH_LEVELS else None,
        )


class RowGroup:
    """The rows of a row group while they are gathered: copied into one piece of memory that only they use.

    Decoding frees its memory after each batch. If the batches themselves were kept until a row group is full, they
    would lie scattered among freed memory, and a worker would grow by another half of a row group.
    """

    def __init__(self, capacity: int) -> None:
        """`capacity` is in bytes. They take no memory before they are written to."""
        self._memory = memoryview(mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch if there is room for it. Return whether there was."""
        end = self._size + _size_of(batch)
        if end > len(self._memory):
            return False
        place = pa.py_buffer(self._memory[self._size : end])
        _write(pa.FixedSizeBufferWriter(place), batch)
        self._batches.append(pa.ipc.open_stream(place).read_next_batch())
        self._size = end
        return True

    def take(self) -> list[pa.RecordBatch]:
        """Remove and return all batches. They are valid until the next one is added."""
        batches, self._batches, self._size = self._batches, [], 0
        return batches


class GatheredRowGroup:
    """The rows of a row group while they are gathered, in batches that have their memory for themselves."""

    def __init__(self, capacity: int) -> None:
        """`capacity` is in bytes."""
        self._capacity = capacity
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch if there is room for it. Return whether there was."""
        if self._size + batch.nbytes > self._capacity:
            return False
        self._batches.append(batch)
        self._size += batch.nbytes
        return True

    def take(self) -> list[pa.RecordBatch]:
        """Remove and return all batches."""
        batches, self._batches, self._size = self._batches, [], 0
        return batches


class DataFileWriter:
    """Writes record batches of one schema to files of the target size."""

    def __init__(
        self,
        io: FileIO,
        new_location: Callable[[], str],
        columns: Sequence[Column],
        schema: pa.Schema,
        options: FileOptions,
        row_group: RowGroup | GatheredRowGroup | None = None,
    ) -> None:
        """`row_group` gathers rows, until they are a row group of the file."""
        self._io, self._new_location = io, new_location
        self._columns, self._schema, self._options = columns, schema, options
        self._row_group = row_group or RowGroup(ROW_GROUP_SIZE)
        self._open_file: _OpenFile | None = None
        self._files: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch. A full row group is written to the open file."""
        if self._row_group.add(batch):
            return
        self._write_row_group(self._row_group.take())
        if not self._row_group.add(batch):
            self._write_row_group([batch])  # larger than a row group: written as it is

    def finish(self) -> list[DataFile]:
        """Return all files, complete and durable."""
        self.close_file()
        return self._files

    def close_file(self) -> None:
        """End the open file, so that its rows are durable. Further rows go to another file."""
        self._write_row_group(self._row_group.take())
        self._end_file()

    def abort(self) -> None:
        """Delete all files, as far as possible. Nothing refers to them."""
        locations = [file.path for file in self._files]
        if self._open_file:
            locations.append(self._open_file.location)
            # ValueError: closing it has failed before, and it is closed.
            with suppress(ConnectorError, OSError, ValueError, pa.ArrowException):
                self._open_file.close()
        for location in locations:
            with suppress(OSError):
                self._io.delete(location)

    def _write_row_group(self, batches: Sequence[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches(batches, self._schema)
        if not rows.num_rows:
            return
        if not self._open_file:
            self._open_file = _OpenFile(self._io, self._new_location(), self._columns, rows, self._options)
        self._open_file.write(rows)
        if self._open_file.size >= self._options.target_size:
            self._end_file()

    def _end_file(self) -> None:
        if self._open_file:
            self._files.append(self._open_file.close())
            self._open_file = None


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(
        self, io: FileIO, location: str, columns: Sequence[Column], first_rows: pa.Table, options: FileOptions
    ) -> None:
        self.location = location
        self._columns = columns
        self._with_nan: set[int] = set()
        self._metadata: list[pq.FileMetaData] = []
        with translate_errors(location):
            self._stream: Any = io.new_output(location).create(overwrite=True)
        self._writer = pq.ParquetWriter(
            self._stream,
            first_rows.schema,
            compression=options.codec,
            compression_level=options.level,
            use_dictionary=worth_a_dictionary(first_rows),
            metadata_collector=self._metadata,
            store_decimal_as_integer=True,  # where they have 18 digits at most, as Iceberg demands
            store_schema=False,
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        """Write the rows as one row group."""
        with translate_errors(self.location):
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        for place, column in enumerate(rows.columns):
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                self._with_nan.add(place)

    def close(self) -> DataFile:
        """Complete the file. Returns its location, its counts and its column statistics."""
        with translate_errors(self.location):
            self._writer.close()
            size = self.size
            self._stream.close()
        (metadata,) = self._metadata
        return DataFile(
            path=self.location,
            rows=metadata.num_rows,
            size=size,
            splits=split_offsets(metadata),
            columns=column_statistics(metadata, self._columns, self._with_nan),
        )


def worth_a_dictionary(rows: pa.Table) -> list[str]:
    """Return the names of columns whose values repeat often enough for a dictionary."""
    sample = rows.slice(0, _SAMPLE)
    return [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if not _never_worth_a_dictionary(column.type) and _repeats(column)
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    """Return whether every value occurs twice or more on average."""
    # Counting takes memory for every distinct value: a column whose first values nearly all differ is not counted
    # further.
    if pc.count_distinct(column.slice(0, _FIRST_SAMPLE)).as_py() > _NEARLY_ALL:
        return False
    return bool(2 * pc.count_distinct(column).as_py() <= len(column))


def _never_worth_a_dictionary(arrow_type: pa.DataType) -> bool:
    """Return True for booleans, which are bits already, and for types of other engines whose values Arrow cannot
    count."""
    of_others = pa.types.is_nested(arrow_type) or isinstance(arrow_type, pa.BaseExtensionType)
    return bool(pa.types.is_boolean(arrow_type) or of_others)


def _size_of(batch: pa.RecordBatch) -> int:
    """Return the bytes that a copy of the batch takes."""
    counted = pa.MockOutputStream()
    _write(counted, batch)
    return int(counted.size())


def _write(sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)


def _level(properties: Mapping[str, str], codec: str) -> int | None:
    least, most = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    level = _number(properties, LEVEL, least)
    if level is not None and level > most:
        raise ValueError(f"{LEVEL} is {level}; with {codec} {most} is the most")
    return level


def _number(properties: Mapping[str, str], name: str, least: int) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} is {text!r}; it must be a whole number from {least} upwards")
    return number
