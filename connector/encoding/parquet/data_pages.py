"""Reads a few values of a Parquet column chunk: it decompresses only the pages that have them.

Arrow's reader decompresses and decodes every page of a column chunk. For a few rows of a large table, that is nearly
all of the work. This reader knows the pages that the connector and most other engines write for documents: texts in
plain encoding, without nulls. Arrow has to read other column chunks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from connector.encoding.parquet import thrift_structs as thrift
from connector.encoding.parquet.thrift_structs import Struct, read_struct, read_varint
from connector.encoding.values.arrays import Positions

_PAGE_SIZE: Final = 1 << 20  # bytes of a page before compression: the default of Arrow and of Parquet's Java library
# Parquet's names of codecs, and PyArrow's. Parquet has two kinds of LZ4.
CODECS: Final = {"ZSTD": "zstd", "SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "UNCOMPRESSED": "none"}

# Parquet's numbers of fields and values in page headers.
_SIZE, _COMPRESSED_SIZE, _DATA_HEADER = 2, 3, 5
_VALUES, _ENCODING, _LEVEL_ENCODING = 1, 2, 3
PLAIN, RLE = 0, 3  # Parquet's numbers of encodings: of values, and of definition levels


@dataclass(frozen=True)
class _Page:
    """A data page: where its content is in the column chunk, and how many values it has."""

    begin: int
    end: int
    size: int  # bytes, decompressed
    values: int


class _UnknownPageError(Exception):
    """A page is of another kind than this reader knows."""


def has_plain_pages(chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether all values of a column chunk are in plain encoding, in pages of a codec that is known here."""
    is_plain = not chunk.has_dictionary_page and {"PLAIN", "RLE"}.issuperset(chunk.encodings)
    return is_plain and chunk.compression in CODECS


def are_few(positions: Positions, chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether so few values of a column chunk are wanted that most of its pages have none of them."""
    return bool(len(positions) * 2 * _PAGE_SIZE <= chunk.total_uncompressed_size)


def read_texts(
    stream: Any, chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema, rows: Positions, at_once: int
) -> Iterator[pa.StringArray]:
    """Yield the values of these rows of a column chunk, which are in order: about `at_once` bytes, or one value, at a
    time. Where this ends before the last row, Arrow has to read the rest.

    `stream` is the open file.
    """
    if not _is_known(chunk, column):
        return
    stream.seek(chunk.data_page_offset)
    content = stream.read(chunk.total_compressed_size)
    texts = _read(content, CODECS[chunk.compression], column.max_definition_level == 1, rows)
    try:
        for part in _gather(texts, at_once):
            yield pa.array(part, pa.binary()).cast(pa.string())
    except (_UnknownPageError, LookupError, ValueError, OSError, OverflowError):
        return  # Arrow says what is wrong with pages


def _gather(texts: Iterator[bytes], at_once: int) -> Iterator[list[bytes]]:
    gathered, size = [], 0
    for text in texts:
        gathered.append(text)
        size += len(text)
        if size >= at_once:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def _is_known(chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema) -> bool:
    return (
        has_plain_pages(chunk)
        and column.physical_type == "BYTE_ARRAY"
        and column.max_repetition_level == 0
        and column.max_definition_level <= 1
    )


def _read(content: bytes, codec: str, is_optional: bool, rows: Positions) -> Iterator[bytes]:
    pages, wanted = memoryview(content), rows.tolist()
    first = index = 0
    for page in _pages(content):
        begin = index
        while index < len(wanted) and wanted[index] < first + page.values:
            index += 1
        if index > begin:
            data = _decompress(pages[page.begin : page.end], page.size, codec)
            yield from _values(data, page.values, is_optional, [row - first for row in wanted[begin:index]])
        if index == len(wanted):
            return
        first += page.values
    raise _UnknownPageError  # the column chunk has fewer values than its row group has rows


def _decompress(content: memoryview, size: int, codec: str) -> memoryview:
    return content if codec == "none" else memoryview(pa.Codec(codec).decompress(content, size)).cast("B")


def _pages(content: bytes) -> Iterator[_Page]:
    source = BytesIO(content)
    while source.tell() < len(content):
        struct = read_struct(source)
        header, data = _numbers(struct), _data_header(struct)
        if data.get(_ENCODING) != PLAIN or data[_LEVEL_ENCODING] != RLE or header[_COMPRESSED_SIZE] < 0:
            raise _UnknownPageError
        begin = source.tell()
        end = source.seek(begin + header[_COMPRESSED_SIZE])
        yield _Page(begin, end, header[_SIZE], data[_VALUES])


def _data_header(page_header: Struct) -> dict[int, int]:
    """Return the numbers of the header that only data pages have."""
    kind, header = page_header.get(_DATA_HEADER, (thrift.STRUCT, {}))
    return _numbers(header) if kind == thrift.STRUCT else {}


def _numbers(struct: Struct) -> dict[int, int]:
    return {field: value for field, (kind, value) in struct.items() if kind == thrift.I32}


def _values(data: memoryview, count: int, is_optional: bool, rows: list[int]) -> Iterator[bytes]:
    """Yield the values of these rows of a page, which are in order."""
    index = _after_levels(data, count) if is_optional else 0
    row = 0
    for wanted in rows:
        for _ in range(wanted - row):
            index += 4 + int.from_bytes(data[index : index + 4], "little")
        begin = index + 4
        index = begin + int.from_bytes(data[index:begin], "little")
        if index > len(data):
            raise _UnknownPageError
        row = wanted + 1
        yield bytes(data[begin:index])


def _after_levels(data: memoryview, count: int) -> int:
    """Return where the values begin, if the definition levels say in one run that no value is null."""
    end = 4 + int.from_bytes(data[:4], "little")
    levels = BytesIO(data[4:end])
    if read_varint(levels) != count << 1 or levels.read() != b"\1":
        raise _UnknownPageError
    return end
