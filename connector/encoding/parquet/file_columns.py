"""The columns of a Parquet file by their field ids, and their values at some positions of the file."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from io import BytesIO
from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache, cached
from pyiceberg.io import FileIO

from connector.encoding.parquet import data_pages
from connector.encoding.parquet.damaged_files import explain_damage, quote_error, read_batches
from connector.encoding.values.arrays import Positions
from connector.encoding.values.column_types import column_id
from connector.encoding.values.name_mapping import NO_MAPPING, NameMapping, find_columns, identify_columns
from connector.host.errors import UnreadableFileError
from connector.storage.storage_errors import REFUSED_PATH, translate_errors

_TEXTS: Final = 1 << 20  # bytes of texts that are decoded at once: more would leave the processor's cache
_ROWS: Final = 1 << 16  # that are decoded at once, at most
_SMALL: Final = 1 << 20  # bytes of a file that are read in about the time of another request
_FOOTERS: Final = 32 << 20  # bytes of footers that a process remembers


class DataFileReader:
    """Reads a Parquet file. It is opened when something of it is needed. A small file is read whole, with one request,
    and of others the parts that are needed."""

    def __init__(self, io: FileIO, path: str, size: int) -> None:
        """`size` is in bytes."""
        self.path = path
        self._io, self._size = io, size
        self._opened = ExitStack()
        self._stream: Any = None

    @property
    def stream(self) -> Any:
        """The bytes of the file."""
        # Python 3.11 computes one `cached_property` of a class at a time, and here this would be a request to a store.
        if self._stream is None:
            self._stream = self._open()
        return self._stream

    def _open(self) -> Any:
        file = self._io.new_input(self.path)
        try:
            if self._size > _SMALL:
                return self._opened.enter_context(file.open(seekable=True))
            with file.open() as stream:
                return pa.BufferReader(stream.read())
        except pa.ArrowInvalid as error:  # of the path
            sentence = REFUSED_PATH.format(location=self.path, answer=quote_error(error))
            raise UnreadableFileError(self.path, sentence) from error

    @property
    def footer(self) -> pq.FileMetaData:
        """The footer of the file. A process remembers some of them. UnreadableFileError if the file is damaged."""
        return pq.read_metadata(pa.BufferReader(_read_footer(self)))

    def close(self) -> None:
        """Close the file."""
        self._opened.close()


@cached(LRUCache(_FOOTERS, getsizeof=len), key=lambda file: file.path, lock=Lock())
def _read_footer(file: DataFileReader) -> bytes:
    """Return a Parquet file that has only the footer: it takes an eighth of the memory of a footer that is read."""
    stream, footer = file.stream, BytesIO()
    with explain_damage(file.path):
        pq.read_metadata(stream).write_metadata_file(footer)
    return footer.getvalue()


@contextmanager
def open_data_file(io: FileIO, path: str, size: int) -> Iterator[DataFileReader]:
    """Yield what reads a Parquet file of so many bytes. Errors of the storage within the block are translated."""
    with translate_errors(path), closing(DataFileReader(io, path, size)) as file:
        yield file


class FileColumns:
    """The columns of a Parquet file, as its footer describes them."""

    def __init__(self, file: DataFileReader, mapping: NameMapping = NO_MAPPING) -> None:
        """`mapping` is that of the table. Raises UnreadableFileError if the file is damaged, or if its columns have no
        field ids and the mapping has none either."""
        footer = file.footer
        self._file, self._footer, self._mapping = file, footer, mapping
        own = footer.schema.to_arrow_schema()
        schema = identify_columns(own, file.path, mapping)
        self.has_own_ids = schema is own  # or else the mapping's
        self.names = {number: str(schema.field(index).name) for number, index in find_columns(schema).items()}
        self.row_groups = footer.num_row_groups
        rows = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        self._begins = np.cumsum([0, *rows])  # of the row groups

    def find_row_groups(self, positions: Positions) -> Positions:
        """Return the row group of each position."""
        groups: Positions = np.searchsorted(self._begins, positions, side="right") - 1
        return groups

    def positions_in(self, groups: Sequence[int]) -> Positions:
        """Return the positions of all rows of these row groups."""
        return np.concatenate([np.arange(*self._begins[group : group + 2]) for group in groups])

    def size_of(self, ids: Sequence[int], group: int) -> int:
        """Return the bytes of some columns in a row group, uncompressed."""
        size: int = sum(chunk.total_uncompressed_size for chunk in self._chunks(ids, group))
        return size

    def statistics_of(self, number: int, group: int) -> pq.Statistics | None:
        """Return what a row group says of a column. None if it says nothing, or if the file lacks the column."""
        chunks = self._chunks([number], group)
        # Names are only for people, and two columns may have one.
        return chunks[0].statistics if len(chunks) == 1 else None

    def read_batches(self, ids: Sequence[int], groups: Sequence[int], at_once: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these row groups, so many at once, with the columns of these ids that the file has."""
        batches = self._open().iter_batches(at_once, groups, columns=self._select(ids), use_threads=False)
        return map(self._identify, read_batches(self._file.path, batches))

    def read_values(self, number: int, group: int, positions: Positions) -> pa.Array:
        """Return the values of a column at these positions, which are in one row group and in order."""
        first, found = self._begins[group], []
        for batch in self.read_batches([number], [group], _ROWS):
            begin, end = np.searchsorted(positions, (first, first + batch.num_rows))
            found.append(column_of(batch, number).take(pa.array(positions[begin:end] - first)))
            first += batch.num_rows
        return pa.concat_arrays(found)

    def read_texts(self, number: int, group: int, positions: Positions) -> Iterator[tuple[int, int, pa.StringArray]]:
        """Yield the texts of a column at these positions, which are in one row group and in order, some at a time: from
        the first to before the second.

        Texts that are decoded one after the other are gathered: each part costs the same, however few it has.
        """
        rows, indices = self._footer.row_group(group).num_rows, positions - self._begins[group]
        begin = 0
        for few in self._read_few(number, group, indices):
            yield begin, begin + len(few), few
            begin += len(few)
        if begin == len(positions):
            return
        at_once = max(1, min(_ROWS, _TEXTS * rows // max(self.size_of([number], group), 1)))
        wanted: list[int] = indices.tolist()
        gathered: list[pa.Array] = []
        end, decoded = begin, 0
        # What is read stays in memory until the file is closed, so each row group has its own.
        for batch in self.read_batches([number], [group], at_once):
            batch_begin, end = end, bisect_left(wanted, decoded + batch.num_rows, end)
            if batch_begin < end:
                texts = column_of(batch, number).cast(pa.string())
                gathered.append(texts.take(pa.array(indices[batch_begin:end] - decoded)))
            if gathered and (end - begin >= at_once or end == len(wanted)):
                yield begin, end, pa.concat_arrays(gathered)
                gathered, begin = [], end
            if end == len(wanted):
                return
            decoded += batch.num_rows

    def _read_few(self, number: int, group: int, rows: Positions) -> Iterator[pa.StringArray]:
        """Yield the texts of a few rows of a row group. Nothing if there are many; Arrow has to read what is not
        yielded."""
        row_group, name = self._footer.row_group(group), self.names[number]
        indices = [index for index in range(row_group.num_columns) if row_group.column(index).path_in_schema == name]
        if len(indices) != 1:
            return
        chunk = row_group.column(indices[0])
        if data_pages.are_few(rows, chunk):
            column = self._footer.schema.column(indices[0])
            yield from data_pages.read_texts(self._file.stream, chunk, column, rows, _TEXTS)

    def _open(self) -> pq.ParquetFile:
        return pq.ParquetFile(
            self._file.stream, metadata=self._footer, pre_buffer=True, coerce_int96_timestamp_unit="us"
        )

    def _identify(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        schema = rows.schema
        identified = identify_columns(schema, self._file.path, self._mapping)
        return rows if identified is schema else pa.RecordBatch.from_arrays(rows.columns, schema=identified)

    def _select(self, ids: Sequence[int]) -> list[str]:
        return list(dict.fromkeys(self.names[number] for number in ids if number in self.names))

    def _chunks(self, ids: Sequence[int], group: int) -> list[pq.ColumnChunkMetaData]:
        names, row_group = self._select(ids), self._footer.row_group(group)
        chunks = map(row_group.column, range(row_group.num_columns))
        return [chunk for chunk in chunks if chunk.path_in_schema in names]


def column_of(rows: pa.RecordBatch, number: int) -> pa.Array:
    """Return the column with this field id, which was read by its name. Several columns may have the name."""
    if rows.num_columns == 1:
        return rows.column(0)
    [index] = [index for index, field in enumerate(rows.schema) if column_id(field) == number]
    return rows.column(index)
