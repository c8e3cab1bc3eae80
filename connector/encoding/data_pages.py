"""Reads a few values of a Parquet column chunk: it decompresses only the pages that have them.

Arrow's reader decompresses and decodes every page of a column chunk. For a few rows of a large table, that is nearly
all of the work. This reader knows the pages that the connector and most other engines write for documents: texts in
plain encoding, without nulls. For other column chunks it returns None, and Arrow has to read them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType

from connector.encoding.position_deletes import Positions

_PAGE_SIZE: Final = 1 << 20  # bytes of a page before compression: the default of Arrow and of Parquet's Java library
_CODECS: Final = {"ZSTD": "zstd", "SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "UNCOMPRESSED": None}
_ENCODINGS: Final = {"PLAIN", "RLE"}  # of values, and of definition levels

# Parquet's numbers of fields and values in page headers.
_KIND, _SIZE, _COMPRESSED_SIZE, _DATA_HEADER = 1, 2, 3, 5
_VALUES, _ENCODING, _LEVEL_ENCODING = 1, 2, 3
_DATA_PAGE: Final = 0
_PLAIN, _RLE = 0, 3


@dataclass(frozen=True)
class _Page:
    """A data page: where its content is in the column chunk, and how many values it has."""

    begin: int
    end: int
    size: int  # bytes, decompressed
    values: int


class _UnknownPageError(Exception):
    """A page is of another kind than this reader knows."""


def are_few(positions: Positions, chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether so few values of a column chunk are wanted that most of its pages have none of them."""
    return bool(len(positions) * 2 * _PAGE_SIZE <= chunk.total_uncompressed_size)


def read_texts(
    stream: Any, chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema, rows: Positions
) -> pa.StringArray | None:
    """Return the values of these rows of a column chunk, which are in order. None if Arrow has to read the chunk.

    `stream` is the open file.
    """
    if not _is_known(chunk, column):
        return None
    stream.seek(chunk.data_page_offset)
    content = memoryview(stream.read(chunk.total_compressed_size))
    try:
        texts = list(_read(content, _CODECS[chunk.compression], column.max_definition_level == 1, rows))
    except _UnknownPageError:
        return None
    return pa.array(texts, pa.binary()).cast(pa.string())


def _is_known(chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema) -> bool:
    return (
        chunk.compression in _CODECS
        and set(chunk.encodings) <= _ENCODINGS
        and column.physical_type == "BYTE_ARRAY"
        and column.max_repetition_level == 0
        and column.max_definition_level <= 1
    )


def _read(content: memoryview, codec: str | None, is_optional: bool, rows: Positions) -> Iterator[bytes]:
    decompress = None if codec is None else pa.Codec(codec).decompress
    wanted = rows.tolist()
    first = place = 0
    for page in _pages(content):
        begin = place
        while place < len(wanted) and wanted[place] < first + page.values:
            place += 1
        if place > begin:
            compressed = content[page.begin : page.end]
            data = memoryview(decompress(compressed, page.size)).cast("B") if decompress else compressed
            yield from _values(data, page.values, is_optional, [row - first for row in wanted[begin:place]])
        if place == len(wanted):
            return
        first += page.values
    raise _UnknownPageError  # the column chunk has fewer values than its row group has rows


def _pages(content: memoryview) -> Iterator[_Page]:
    source = _Bytes(content)
    while source.place < len(content):
        header = _read_struct(TCompactProtocol(source))
        data = header[_DATA_HEADER] if header[_KIND] == _DATA_PAGE else {}
        if data.get(_ENCODING) != _PLAIN or data[_LEVEL_ENCODING] != _RLE:
            raise _UnknownPageError
        begin, source.place = source.place, source.place + header[_COMPRESSED_SIZE]
        yield _Page(begin, source.place, header[_SIZE], data[_VALUES])


class _Bytes:
    """A transport of Thrift that reads from memory."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self.place = 0

    def readAll(self, size: int) -> bytes:  # noqa: N802 - Thrift's name
        begin, self.place = self.place, self.place + size
        return bytes(self._content[begin : self.place])


def _read_struct(protocol: Any) -> dict[int, Any]:
    """Read the numbers of a struct and of the structs in it, by field. Other fields are skipped."""
    fields: dict[int, Any] = {}
    protocol.readStructBegin()
    while True:
        _, kind, number = protocol.readFieldBegin()
        if kind == TType.STOP:
            protocol.readStructEnd()
            return fields
        if kind == TType.I32:
            fields[number] = protocol.readI32()
        elif kind == TType.STRUCT:
            fields[number] = _read_struct(protocol)
        else:
            protocol.skip(kind)
        protocol.readFieldEnd()


def _values(data: memoryview, count: int, is_optional: bool, rows: list[int]) -> Iterator[bytes]:
    """Yield the values of these rows of a page, which are in order."""
    place = _after_levels(data, count) if is_optional else 0
    row = 0
    for wanted in rows:
        for _ in range(wanted - row):
            place += 4 + int.from_bytes(data[place : place + 4], "little")
        begin = place + 4
        place = begin + int.from_bytes(data[place:begin], "little")
        row = wanted + 1
        yield bytes(data[begin:place])


def _after_levels(data: memoryview, count: int) -> int:
    """Return where the values begin, if the definition levels say in one run that no value is null."""
    size = int.from_bytes(data[:4], "little")
    run = shift = 0
    place = 4
    while True:
        byte = data[place]
        run |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            break
    if run != count << 1 or data[place] != 1 or place + 1 != 4 + size:
        raise _UnknownPageError
    return place + 1
