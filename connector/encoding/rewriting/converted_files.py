"""Rewrites data files with the values of some columns converted."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import PrimitiveType

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.lineage_columns import fill_lineage, lineage_columns
from connector.encoding.live_rows.source_rows import (
    OpenSource,
    SourceFile,
    cast_values,
    open_source,
    plain_type,
    read_live_rows,
)
from connector.encoding.live_rows.target_columns import (
    TargetColumn,
    arrow_field,
    columns_with_statistics,
    known_arrow_type,
    order_columns,
)
from connector.encoding.parquet.data_files import DataFileWriter, NewFiles, abort_on_failure
from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.values.column_types import find_columns
from connector.encoding.values.conversions import NoEquivalentError, convert
from connector.host.refresh import Refreshed
from connector.model.properties import Properties
from connector.model.state import DataFile


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

    def rewrite(self, io: FileIO, source: SourceFile) -> tuple[DataFile, ...] | None:
        """Write the files that take the place of a source, and return them: no files if all of its rows are deleted.

        Return None if nothing in it is to be converted, and it stays. Raises UnconvertibleError if a value has no
        equivalent.
        """
        with open_source(io, source, len(self.columns)) as opened:
            places = find_columns(opened.file.schema_arrow, source.path)
            columns = [column for column in self.columns if column.source_id in places or _needs_default(column)]
            if not any(column.is_converted for column in columns):
                return None
            return self._write(io, opened, source, columns, places)

    def _write(
        self,
        io: FileIO,
        opened: OpenSource,
        source: SourceFile,
        columns: Sequence[TargetColumn],
        places: dict[int, int],
    ) -> tuple[DataFile, ...]:
        primitive = columns_with_statistics(order_columns(columns))
        columns = [*order_columns(columns), *lineage_columns(source.lineage, places)]
        fields = [_field(column, opened.file.schema_arrow, places.get(column.source_id)) for column in columns]
        options = FileOptions.of_table(self.properties)
        writer = DataFileWriter(NewFiles(io, self._new_location, primitive, pa.schema(fields), options))
        with abort_on_failure(writer):
            for rows in read_live_rows(opened, find_deleted_rows(io, source.path, source.position_deletes)):
                arrays = [
                    _array(rows.batch, places.get(column.source_id), column, field, source.path)
                    for column, field in zip(columns, fields, strict=True)
                ]
                batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
                writer.write(fill_lineage(batch, source.lineage, rows.positions))
            return tuple(writer.finish())

    def _new_location(self) -> str:
        provider = load_location_provider(self.location, dict(self.properties))
        return provider.new_data_location(f"{self.file_prefix}-{uuid.uuid4()}.parquet")


# Rewrites many files; for each, what `Rewriting.rewrite` returns.
Rewrite: TypeAlias = Callable[
    [Rewriting, Sequence[SourceFile], Refreshed[Properties]], Sequence[tuple[DataFile, ...] | None]
]


def _needs_default(column: TargetColumn) -> bool:
    """Whether rows of a file without the source have a value in the new column. Other columns keep their default."""
    return column.is_converted and column.default is not None


def _field(column: TargetColumn, source: pa.Schema, place: int | None) -> pa.Field:
    known = known_arrow_type(column.type)
    assert known or place is not None, "a missing column is converted, or one of row lineage"
    return arrow_field(column, known or plain_type(source.field(place).type))


def _array(rows: pa.RecordBatch, place: int | None, column: TargetColumn, field: pa.Field, path: str) -> pa.Array:
    source_type = known_arrow_type(column.source_type)
    values = column.make_defaults(rows.num_rows, source_type or field.type) if place is None else rows.column(place)
    if not column.is_converted:
        return cast_values(values, field, path)
    assert isinstance(column.type, PrimitiveType)
    try:
        return convert(values.cast(source_type) if source_type else values, column.source_type, column.type)
    except (NoEquivalentError, pa.ArrowInvalid) as error:  # a file of another engine may have another type
        raise UnconvertibleError(column.source_id) from error
