"""Row groups of which some columns can be copied without decoding them: long texts, which take most of the time."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from connector.encoding.live_rows.source_rows import OpenSource, cast_values
from connector.encoding.parquet.assembled_files import ColumnChunk
from connector.encoding.parquet.assembled_writer import CopiedRowGroup
from connector.encoding.parquet.damaged_files import explain_damage
from connector.encoding.parquet.data_pages import CODECS, has_plain_pages
from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.rewriting.rewritten_schemas import RewrittenSchema

# Smaller row groups are decoded, so that no file gets many small ones.
LEAST_SIZE: Final = 1 << 20  # bytes of the file
MOST_SIZE: Final = 64 << 20  # bytes, uncompressed: what is held in memory

_TYPES: Final = (pa.string(), pa.binary())


def copy_row_group(
    source: OpenSource, schema: RewrittenSchema, group: int, options: FileOptions
) -> CopiedRowGroup | None:
    """Read a row group, with the columns that can be copied as they are. None if it has to be decoded as a whole."""
    metadata = source.file.metadata.row_group(group)
    compressed = sum(metadata.column(index).total_compressed_size for index in range(metadata.num_columns))
    if not compressed >= LEAST_SIZE or metadata.total_byte_size > MOST_SIZE:
        return None
    fields = [*source.file.schema_arrow]  # Arrow makes the schema anew each time
    if not _is_flat(source.file, fields):
        return None
    copied = {
        index: source_index
        for index, source_index in enumerate(schema.indexes)
        if source_index is not None
        and fields[source_index].type == schema.schema.field(index).type
        and _has_form(source.file, source_index, schema.schema.field(index))
        and _is_plain(metadata.column(source_index), options)
    }
    if not copied:
        return None
    rows = _read_others(source.file, fields, group, schema, copied)
    chunks = {index: _read_chunk(source, metadata.column(source_index)) for index, source_index in copied.items()}
    return CopiedRowGroup(rows, chunks, metadata.total_byte_size)


def _is_flat(file: pq.ParquetFile, fields: Sequence[pa.Field]) -> bool:
    """Return whether each column has one chunk in a row group, and is found by its name."""
    names = [field.name for field in fields]
    return len(file.schema) == len(names) == len({*names}) and not any("." in name for name in names)


def _has_form(file: pq.ParquetFile, index: int, field: pa.Field) -> bool:
    """Return whether a column has texts or bytes, and may be null in both files or in neither."""
    return field.type in _TYPES and file.schema.column(index).max_definition_level == int(field.nullable)


def _is_plain(chunk: pq.ColumnChunkMetaData, options: FileOptions) -> bool:
    """Return whether a chunk has pages only that need no dictionary, compressed as in the new file."""
    has_counts = chunk.is_stats_set and chunk.statistics.has_null_count
    return has_counts and has_plain_pages(chunk) and CODECS[chunk.compression] == options.codec


def _read_others(
    file: pq.ParquetFile, fields: Sequence[pa.Field], group: int, schema: RewrittenSchema, copied: Mapping[int, int]
) -> pa.Table:
    """Return the rows with all columns of the new file. Those that are copied have empty values."""
    others = {
        index: fields[source_index].name
        for index, source_index in enumerate(schema.indexes)
        if source_index is not None and index not in copied
    }
    with explain_damage(schema.source.path):
        found = file.read_row_group(group, columns=[*others.values()], use_threads=False)
    count = file.metadata.row_group(group).num_rows
    arrays = []
    for index, field in enumerate(schema.schema):
        if index in others:
            arrays.append(cast_values(found[others[index]], field, schema.source.path))
        elif index in copied:
            arrays.append(pa.repeat(pa.scalar(b"", pa.binary()).cast(field.type), count))
        else:
            arrays.append(schema.columns[index].make_defaults(count, field.type))
    return pa.table(arrays, schema=schema.schema)


def _read_chunk(source: OpenSource, chunk: pq.ColumnChunkMetaData) -> ColumnChunk:
    statistics = chunk.statistics
    return ColumnChunk(
        pages=_read(source, chunk.data_page_offset, chunk.total_compressed_size),
        values=chunk.num_values,
        nulls=statistics.null_count,
        size=chunk.total_uncompressed_size,
        bounds=(statistics.min_raw, statistics.max_raw) if statistics.has_min_max else None,
    )


def _read(source: OpenSource, offset: int, size: int) -> bytes:
    source.stream.seek(offset)
    content = bytes(source.stream.read(size))
    if len(content) < size:
        raise OSError(f"{source.path} ends after {offset + len(content)} bytes")
    return content
