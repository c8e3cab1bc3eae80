"""The rows of data files that are written again: those that no position delete deletes, a few megabytes at a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from connector.encoding.live_rows.deletion_vectors import FileId
from connector.encoding.parquet.damaged_files import explain_damage, quote_error, read_batches
from connector.encoding.parquet.file_columns import open_data_file
from connector.encoding.values.arrays import Mask, Positions
from connector.encoding.values.column_types import LIST_TYPES
from connector.encoding.values.name_mapping import NameMapping, identify_columns
from connector.host.errors import UnreadableFileError
from connector.host.groups import divide

_BATCH_SIZE: Final = 4 << 20  # bytes
# Rows that are read at once. How large they are becomes known only then: in a large row group, large rows may stand
# together, and where texts have a dictionary, each row may repeat a large one.
_MOST_ROWS: Final = 1 << 16
_MOST_ROWS_OF_DICTIONARY: Final = 1 << 13
_MOST_ROWS_OF_LARGE_GROUP: Final = 1 << 10
_LARGE_GROUP: Final = 32 << 20  # bytes
_NO_PARQUET: Final = (
    "{path} is in the table's metadata as a data file, but is no Parquet file that can be read ({answer}). Restore it, "
    "or remove it from the table."
)
_READ_BUFFERS: Final = 16 << 20  # bytes, of all columns of a row group together


@dataclass(frozen=True)
class RowLineage:
    """What the rows of a data file inherit from the table's metadata, as far as the file does not say it."""

    first_row_id: int | None  # the others follow by their positions; None: the rows have no ids
    sequence_number: int  # of the commit that last changed them


@dataclass(frozen=True)
class SourceFile:
    """A data file of a table, and the position delete files and deletion vectors that apply to it."""

    path: str
    size: int  # bytes
    position_deletes: tuple[FileId, ...] = ()
    lineage: RowLineage | None = None  # None: the file waits for its commit


@dataclass(frozen=True)
class OpenSource:
    """A data file that is being read."""

    path: str
    file: pq.ParquetFile
    schema: pa.Schema  # with the field ids
    stream: Any  # of the file's bytes


@contextmanager
def open_source(io: FileIO, source: SourceFile, columns: int, mapping: NameMapping) -> Iterator[OpenSource]:
    """Open a file of which this number of columns is read. Its row groups are not read as a whole.
    UnreadableFileError if it is no Parquet file, or if its columns have no field ids and the mapping has none either.

    Other engines' row groups may be large. Without `pre_buffer`, or what was read would stay in memory until the file
    ends. Errors of the storage within the block are translated.
    """
    with open_data_file(io, source.path, source.size) as reader:
        stream = reader.stream
        buffer = _READ_BUFFERS // max(columns, 1)
        with explain_damage(source.path, _NO_PARQUET):
            file = pq.ParquetFile(stream, buffer_size=buffer, pre_buffer=False, coerce_int96_timestamp_unit="us")
        yield OpenSource(source.path, file, identify_columns(file.schema_arrow, source.path, mapping), stream)


@dataclass(frozen=True)
class LiveRows:
    """Consecutive rows of a file without those that are deleted."""

    batch: pa.RecordBatch
    first: int  # the position of the first row, also if it is deleted
    kept: Mask | None  # for each row before the deletion, whether it is kept; None: all are

    @property
    def positions(self) -> Positions:
        """The positions of the rows in the file."""
        return self.first + (np.arange(self.batch.num_rows) if self.kept is None else np.flatnonzero(self.kept))


def read_live_rows(source: OpenSource, deleted: Positions) -> Iterator[LiveRows]:
    """Yield the rows that are not deleted, a few megabytes at a time."""
    first = 0
    for group in range(source.file.num_row_groups):
        yield from read_live_rows_of(source, group, first, deleted)
        first += source.file.metadata.row_group(group).num_rows


def read_live_rows_of(source: OpenSource, group: int, first: int, deleted: Positions) -> Iterator[LiveRows]:
    """Yield the rows of a row group that are not deleted. `first` is the position of its first row.

    Raises UnreadableFileError if the file is damaged.
    """
    at_once = _rows_at_once(source.file.metadata.row_group(group))
    batches = source.file.iter_batches(batch_size=at_once, row_groups=[group], use_threads=False)
    for batch in _join(read_batches(source.path, batches)):
        yield _filter(batch, first, deleted)
        first += batch.num_rows


def _rows_at_once(group: pq.RowGroupMetaData) -> int:
    chunks = map(group.column, range(group.num_columns))
    size: int = group.total_byte_size // max(group.num_rows, 1)
    if group.total_byte_size > _LARGE_GROUP:
        most = _MOST_ROWS_OF_LARGE_GROUP
    elif any(chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY" for chunk in chunks):
        most = _MOST_ROWS_OF_DICTIONARY
    else:
        most = _MOST_ROWS
    return max(1, min(most, _BATCH_SIZE // max(size, 1)))


def _join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of a few megabytes, because each batch costs the same."""
    plain = map(_with_plain_types, batches)
    for joined in divide(plain, _BATCH_SIZE, attrgetter("nbytes")):
        yield joined[0] if len(joined) == 1 else pa.concat_batches(joined)


def plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type without views, such as `string_view`, and with one type of lists. Few of Arrow's functions take
    the others, which files of other engines may ask for."""
    if pa.types.is_string_view(arrow_type):
        return pa.string()
    if pa.types.is_binary_view(arrow_type):
        return pa.binary()
    if pa.types.is_struct(arrow_type):
        return pa.struct([_plain_field(field) for field in arrow_type])
    if isinstance(arrow_type, LIST_TYPES):
        return pa.list_(_plain_field(arrow_type.value_field))
    if pa.types.is_map(arrow_type):
        return pa.map_(_plain_field(arrow_type.key_field), _plain_field(arrow_type.item_field))
    return arrow_type


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def _with_plain_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    for index, field in enumerate(batch.schema):
        plain = _plain_field(field)
        if plain.type != field.type:
            batch = batch.set_column(index, plain, batch.column(index).cast(plain.type))
    return batch


def _filter(batch: pa.RecordBatch, first: int, deleted: Positions) -> LiveRows:
    begin, end = np.searchsorted(deleted, (first, first + batch.num_rows))
    if begin == end:
        return LiveRows(batch, first, None)
    kept = np.ones(batch.num_rows, np.bool_)
    kept[deleted[begin:end] - first] = False
    return LiveRows(batch.filter(pa.array(kept)), first, kept)


def cast_values(values: pa.Array | pa.ChunkedArray, field: pa.Field, path: str) -> pa.Array | pa.ChunkedArray:
    """Return values of a source with the type of their column. Raises UnreadableFileError if it cannot hold them."""
    if values.type == field.type:
        return values
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnreadableFileError(
            path,
            f"{path} has values that the column {field.name} cannot hold "
            f"({quote_error(error)}). Have it rewritten by the engine that wrote it.",
        ) from error
