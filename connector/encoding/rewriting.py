"""Rewrites data files with the values of some columns converted."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import make_compatible_name
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import FloatType, IcebergType, NestedField, PrimitiveType, TimestampType, TimeType

from connector.encoding.column_types import FIELD_ID, arrow_type_of, find_columns, is_written
from connector.encoding.conversions import NoEquivalentError, convert
from connector.encoding.data_files import DataFileWriter, FileOptions
from connector.encoding.deleted_rows import find_deleted_rows
from connector.encoding.position_deletes import Positions
from connector.host.refresh import Refreshed
from connector.model.binding import Column
from connector.model.properties import Properties
from connector.model.state import DataFile
from connector.storage.storage_errors import translate_errors

_BATCH_SIZE: Final = 4 << 20  # bytes
_LARGEST_BATCH: Final = 1 << 16  # rows
_READ_BUFFERS: Final = 16 << 20  # bytes, of all columns of a row group together

# Of columns that only other engines' tables have.
_OTHER_ARROW_TYPES: Final[dict[PrimitiveType, pa.DataType]] = {
    FloatType(): pa.float32(),
    TimeType(): pa.time64("us"),
    TimestampType(): pa.timestamp("us"),
}


@dataclass(frozen=True)
class SourceFile:
    """A data file of a table, and the position delete files that apply to it."""

    path: str
    size: int  # bytes
    position_deletes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TargetColumn:
    """A column of the new files with the values of its source, which is the column itself unless it is converted."""

    id: int
    name: str
    type: IcebergType
    required: bool
    source_id: int
    source_type: IcebergType

    @classmethod
    def of(cls, column: NestedField, source: NestedField) -> "TargetColumn":
        """Return the column with the values of `source`, which has the same id if it is not converted."""
        return cls(column.field_id, column.name, column.field_type, column.required, source.field_id, source.field_type)

    @property
    def is_converted(self) -> bool:
        """Whether its values are those of another column, converted."""
        return self.id != self.source_id


class UnconvertibleError(Exception):
    """Some columns have values without an equivalent of the new type."""

    def __init__(self, *column_ids: int) -> None:
        super().__init__(*column_ids)
        self.column_ids = frozenset(column_ids)


@dataclass(frozen=True)
class Rewriting:
    """How the files of one table are rewritten, and where to."""

    columns: tuple[TargetColumn, ...]
    location: str  # the table's
    properties: Properties  # those of the table that say how it is written
    file_prefix: str

    @classmethod
    def of_table(cls, table: Table, columns: tuple[TargetColumn, ...], file_prefix: str) -> "Rewriting":
        """Return a rewriting to these columns. `file_prefix` begins the new files' names."""
        writing = Properties({name: value for name, value in table.properties.items() if name.startswith("write.")})
        return cls(columns, table.location(), writing, file_prefix)

    def rewritten(self, io: FileIO, source: SourceFile) -> tuple[DataFile, ...] | None:
        """The files that take its place: none if all its rows are deleted. None if nothing in it is to be converted,
        and it stays. UnconvertibleError where a value has no equivalent.
        """
        with translate_errors(source.path), io.new_input(source.path).open() as stream:
            # Never a whole row group at once, since other engines' may be large. Without pre_buffer, or what was read
            # would stay in memory until the file ends.
            buffer = _READ_BUFFERS // len(self.columns)
            file = pq.ParquetFile(stream, buffer_size=buffer, pre_buffer=False, coerce_int96_timestamp_unit="us")
            places = find_columns(file.schema_arrow, source.path)
            columns = [column for column in self.columns if column.source_id in places]
            if not any(column.is_converted for column in columns):
                return None
            return self._write(io, file, source, columns, places)

    def _write(
        self,
        io: FileIO,
        file: pq.ParquetFile,
        source: SourceFile,
        columns: Sequence[TargetColumn],
        places: dict[int, int],
    ) -> tuple[DataFile, ...]:
        # Statistics go by a column's place: nested columns, which have none, come last.
        columns = sorted(columns, key=lambda column: not isinstance(column.type, PrimitiveType))
        fields = [_field(column, file.schema_arrow.field(places[column.source_id]).type) for column in columns]
        primitive = [
            Column(column.name, column.name, column.id, column.type, column.required)
            for column in columns
            if isinstance(column.type, PrimitiveType)
        ]
        options = FileOptions.of_table(self.properties)
        writer = DataFileWriter(io, self._new_location, primitive, pa.schema(fields), options)
        try:
            for batch in _batches(file, find_deleted_rows(io, source.path, source.position_deletes)):
                arrays = [
                    _array(batch.column(places[column.source_id]), column, field.type)
                    for column, field in zip(columns, fields, strict=True)
                ]
                writer.write(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
            return tuple(writer.finish())
        except BaseException:
            writer.abort()
            raise

    def _new_location(self) -> str:
        provider = load_location_provider(self.location, dict(self.properties))
        return provider.new_data_location(f"{self.file_prefix}-{uuid.uuid4()}.parquet")


# Rewrites many files; for each, what `Rewriting.rewritten` gives.
Rewrite: TypeAlias = Callable[
    [Rewriting, Sequence[SourceFile], Refreshed[Properties]], Sequence[tuple[DataFile, ...] | None]
]


def _field(column: TargetColumn, file_type: pa.DataType) -> pa.Field:
    return pa.field(
        make_compatible_name(column.name),
        _arrow_type(column.type) or file_type,
        nullable=not column.required,
        metadata={FIELD_ID: str(column.id)},
    )


def _arrow_type(type_: IcebergType) -> pa.DataType | None:
    """None for types that only the file itself can tell."""
    if not isinstance(type_, PrimitiveType):
        return None
    return arrow_type_of(type_) if is_written(type_) else _OTHER_ARROW_TYPES.get(type_)


def _array(values: pa.Array, column: TargetColumn, arrow_type: pa.DataType) -> pa.Array:
    if not column.is_converted:
        return values if values.type == arrow_type else values.cast(arrow_type)
    source_type = _arrow_type(column.source_type)
    assert isinstance(column.type, PrimitiveType)
    try:
        return convert(values.cast(source_type) if source_type else values, column.source_type, column.type)
    except NoEquivalentError as error:
        raise UnconvertibleError(column.source_id) from error


def _batches(file: pq.ParquetFile, deleted: Positions) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are not deleted, a few megabytes at a time."""
    groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
    size = sum(group.total_byte_size for group in groups) // max(file.metadata.num_rows, 1)
    first = 0
    for batch in file.iter_batches(batch_size=max(1, min(_LARGEST_BATCH, _BATCH_SIZE // max(size, 1)))):
        kept = np.ones(batch.num_rows, np.bool_)
        begin, end = np.searchsorted(deleted, (first, first + batch.num_rows))
        kept[deleted[begin:end] - first] = False
        yield batch if kept.all() else batch.filter(pa.array(kept))
        first += batch.num_rows
