"""Parquet files that are assembled from column chunks: some are copied from other files, some are encoded.

To decode a column and to encode it again costs ten times as much as to copy its chunk. A row group is first written to
memory by PyArrow, with empty texts in place of the columns that are copied. Then its chunks go to the file, and the
metadata of the row group is changed to say where they are. The footer is that of the first row group, with the metadata
of all of them. So PyArrow makes the whole file, but for the places, the sizes and the statistics of copied chunks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from connector.encoding.parquet import thrift_structs as thrift
from connector.encoding.parquet.data_files import NewFiles
from connector.encoding.parquet.data_pages import PLAIN, RLE
from connector.encoding.parquet.encoded_row_groups import EncodedRowGroup
from connector.encoding.parquet.statistics import describe_file, find_nan, worth_a_dictionary
from connector.encoding.parquet.thrift_structs import Struct, read_struct, write_struct
from connector.model.state import DataFile
from connector.storage.storage_errors import translate_errors

_MAGIC: Final = b"PAR1"

# The fields of Parquet's metadata, by their ids in parquet.thrift.
_FILE_ROWS, _FILE_ROW_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_SIZE, _GROUP_OFFSET, _GROUP_COMPRESSED, _GROUP_ORDINAL = 1, 2, 5, 6, 7
_CHUNK_OFFSET, _CHUNK_METADATA = 2, 3
_ENCODINGS, _VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 2, 5, 6, 7, 9, 11
_STATISTICS, _ENCODING_STATISTICS, _SIZE_STATISTICS = 12, 13, 16
_NULLS, _UPPER, _LOWER = 3, 5, 6


@dataclass(frozen=True)
class ColumnChunk:
    """The pages of a column of texts or bytes in one row group, all of them in plain encoding."""

    pages: bytes
    values: int  # nulls included
    nulls: int
    size: int  # bytes, uncompressed
    bounds: tuple[bytes, bytes] | None  # None: unknown, unless all values are null


class AssembledFile:
    """A Parquet file that is being assembled."""

    def __init__(self, files: NewFiles) -> None:
        self.location = files.new_location()
        self._columns, self._options = files.columns, files.options
        self._dictionaries: dict[int, bool] = {}  # by the column's index: whether it is worth one
        self._with_nan: set[int] = set()
        self._metadata: Struct | None = None
        self._groups: list[Struct] = []
        self._rows = 0
        with translate_errors(self.location):
            self._stream = files.create(self.location)
            self._stream.write(_MAGIC)
        self.size = len(_MAGIC)  # bytes written so far

    def write(self, rows: pa.Table, copied: Mapping[int, Sequence[ColumnChunk]]) -> None:
        """Write a row group. `copied` are chunks by the index of their column; the values of these columns in `rows`
        are not written, and may be anything."""
        memory, metadata = self._encode(rows, copied)
        begin = self.size
        for index, chunk in enumerate(_chunks(metadata)):
            described = chunk[_CHUNK_METADATA][1]
            chunk[_CHUNK_OFFSET] = (thrift.I64, self.size)
            if index in copied:
                self._copy(described, copied[index])
            else:
                first = _move(described, self.size)
                self._write(memory[first : first + described[_COMPRESSED][1]])
        self._add(metadata, begin)

    def append(self, encoded: EncodedRowGroup, content: Iterable[bytearray]) -> None:
        """Write a row group that is encoded already, given its bytes."""
        metadata = read_struct(BytesIO(encoded.metadata))
        begin = index = self.size
        for chunk in _chunks(metadata):
            described = chunk[_CHUNK_METADATA][1]
            chunk[_CHUNK_OFFSET] = (thrift.I64, index)
            _move(described, index)
            index += described[_COMPRESSED][1]
        for piece in content:
            self._write(piece)
        self._with_nan.update(encoded.with_nan)
        self._add(metadata, begin)

    def close(self) -> DataFile:
        """Complete the file. Returns its location, its counts and its column statistics."""
        assert self._metadata is not None, "a file has rows"
        self._metadata[_FILE_ROWS] = (thrift.I64, self._rows)
        self._metadata[_FILE_ROW_GROUPS] = (thrift.LIST, (thrift.STRUCT, self._groups))
        footer = write_struct(self._metadata)
        footer += len(footer).to_bytes(4, "little") + _MAGIC
        self._write(footer)
        with translate_errors(self.location):
            self._stream.close()
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
        return describe_file(self.location, self.size, metadata, self._columns, self._with_nan)

    def abort(self) -> None:
        """End writing."""
        self._stream.abort()

    def _encode(self, rows: pa.Table, copied: Mapping[int, Any]) -> tuple[memoryview, Struct]:
        """Return the bytes and the metadata of a Parquet file with these rows."""
        names = rows.column_names  # Arrow makes the list anew each time
        encoded = [index for index in range(len(names)) if index not in copied]
        unknown = [index for index in encoded if index not in self._dictionaries]
        repeating = worth_a_dictionary(rows.select(unknown))
        self._dictionaries |= {index: names[index] in repeating for index in unknown}
        sink = BytesIO()  # Arrow's own copies all that it has each time it grows
        with_dictionary = [names[index] for index in encoded if self._dictionaries[index]]
        pq.write_table(rows, sink, row_group_size=rows.num_rows, **self._options.of_writer(with_dictionary))
        self._with_nan.update(find_nan(rows))
        content = sink.getbuffer()
        size = int.from_bytes(content[-8:-4], "little")
        return content, read_struct(BytesIO(content[-8 - size : -8]))

    def _copy(self, described: Struct, chunks: Sequence[ColumnChunk]) -> None:
        """Write copied chunks, and describe them as one."""
        begin = self.size
        for chunk in chunks:
            self._write(chunk.pages)
        for field in (_DICTIONARY_PAGE, _ENCODING_STATISTICS, _SIZE_STATISTICS):
            described.pop(field, None)
        described[_ENCODINGS] = (thrift.LIST, (thrift.I32, [PLAIN, RLE]))
        described[_VALUES] = (thrift.I64, sum(chunk.values for chunk in chunks))
        described[_UNCOMPRESSED] = (thrift.I64, sum(chunk.size for chunk in chunks))
        described[_COMPRESSED] = (thrift.I64, self.size - begin)
        described[_DATA_PAGE] = (thrift.I64, begin)
        statistics: Struct = {_NULLS: (thrift.I64, sum(chunk.nulls for chunk in chunks))}
        bounds = [chunk.bounds for chunk in chunks if chunk.values > chunk.nulls]
        known = [each for each in bounds if each]
        # The extremes of some chunks do not bound the others.
        if known and len(known) == len(bounds):
            statistics[_LOWER] = (thrift.BINARY, min(lower for lower, _ in known))
            statistics[_UPPER] = (thrift.BINARY, max(upper for _, upper in known))
        described[_STATISTICS] = (thrift.STRUCT, statistics)

    def _add(self, metadata: Struct, begin: int) -> None:
        """Add a row group to the footer, given the metadata of a file with this row group only."""
        if self._metadata is None:
            self._metadata = metadata
        [group] = metadata[_FILE_ROW_GROUPS][1][1]
        uncompressed = sum(chunk[_CHUNK_METADATA][1][_UNCOMPRESSED][1] for chunk in _chunks(metadata))
        group[_GROUP_OFFSET] = (thrift.I64, begin)
        group[_GROUP_COMPRESSED] = (thrift.I64, self.size - begin)
        group[_GROUP_SIZE] = (thrift.I64, uncompressed)
        group[_GROUP_ORDINAL] = (thrift.I16, len(self._groups))
        self._groups.append(group)
        self._rows += metadata[_FILE_ROWS][1]

    def _write(self, content: bytes | bytearray | memoryview) -> None:
        with translate_errors(self.location):
            self._stream.write(content)
        self.size += len(content)


def _chunks(metadata: Struct) -> list[Struct]:
    """Return the column chunks of a file with one row group."""
    [group] = metadata[_FILE_ROW_GROUPS][1][1]
    chunks: list[Struct] = group[_GROUP_COLUMNS][1][1]
    return chunks


def _move(described: Struct, begin: int) -> int:
    """Describe an encoded chunk as one that begins here. Return where it began."""
    pages = [field for field in (_DATA_PAGE, _DICTIONARY_PAGE) if field in described]
    first: int = min(described[field][1] for field in pages)
    for field in pages:
        described[field] = (thrift.I64, described[field][1] + begin - first)
    return first
