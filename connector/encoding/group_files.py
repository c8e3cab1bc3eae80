"""The new files of a file group: one file after the other, each with one schema."""

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table.locations import load_location_provider

from connector.encoding.column_types import find_columns
from connector.encoding.compaction import Compaction, FileGroup
from connector.encoding.data_files import ROW_GROUP_SIZE, DataFileWriter, FileOptions, GatheredRowGroup
from connector.encoding.row_order import SUFFIX, RowOrderWriter
from connector.encoding.source_rows import (
    TargetColumn,
    arrow_field,
    columns_with_statistics,
    known_arrow_type,
    order_columns,
)
from connector.host.errors import UserError
from connector.model.binding import Column
from connector.model.state import DataFile

_MARGIN: Final = 1.1  # of a file's size, so that no small file is left in the end


@dataclass(frozen=True)
class GroupSchema:
    """The columns that the new files have for the rows of a source, and where the source has them."""

    columns: tuple[TargetColumn, ...]
    schema: pa.Schema
    places: tuple[int | None, ...]  # for each column, its place in the source; None: its values are null

    @classmethod
    def of(cls, columns: Sequence[TargetColumn], source: pa.Schema, path: str) -> "GroupSchema":
        """Match the columns of the table's schema with those of a source, by field id.

        A column that the source lacks is null, or left out, if only a file can tell its Arrow type.
        """
        found = find_columns(source, path)
        matched, fields, places = [], [], []
        for column in order_columns(columns):
            place = found.get(column.source_id)
            arrow_type = known_arrow_type(column.type) or (None if place is None else source.field(place).type)
            if place is None and column.required:
                raise UserError(
                    f"{path} has no column {column.name}, which the table requires. It cannot be compacted. Have it "
                    "rewritten by the engine that wrote it."
                )
            if arrow_type is not None:
                matched.append(column)
                fields.append(arrow_field(column, arrow_type))
                places.append(place)
        return cls(tuple(matched), pa.schema(fields), tuple(places))

    @property
    def with_statistics(self) -> list[Column]:
        """The columns that have statistics: the first ones of the schema."""
        return columns_with_statistics(self.columns)

    def is_same(self, other: "GroupSchema") -> bool:
        """Whether rows of both go to the same file. Field ids of nested columns count, too."""
        return bool(self.schema.equals(other.schema, check_metadata=True))

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a source's rows with these columns."""
        arrays = []
        for field, place in zip(self.schema, self.places, strict=True):
            if place is None:
                arrays.append(pa.nulls(batch.num_rows, field.type))
            else:
                values = batch.column(place)
                arrays.append(values if values.type == field.type else values.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class GroupFiles:
    """Writes the new files of a group. If the columns change, another file begins."""

    def __init__(self, io: FileIO, compaction: Compaction, group: FileGroup) -> None:
        self._io = io
        self._compaction = compaction
        self._locations = load_location_provider(compaction.location, dict(compaction.properties))
        self._options = _divide(FileOptions.of_table(compaction.properties), sum(each.size for each in group.sources))
        self._schema: GroupSchema | None = None
        self._writer: DataFileWriter | None = None
        self._order: RowOrderWriter | None = None
        self._files: list[DataFile] = []

    def write(self, schema: GroupSchema, batch: pa.RecordBatch) -> None:
        """Add rows with these columns."""
        if self._writer is None or self._schema is None or not self._schema.is_same(schema):
            self._finish_writer()
            self._schema = schema
            self._writer = DataFileWriter(
                self._io,
                lambda: self._locations.new_data_location(self._new_name(".parquet")),
                schema.with_statistics,
                schema.schema,
                self._options,
                GatheredRowGroup(ROW_GROUP_SIZE),
            )
        self._writer.write(batch)

    def end_file(self) -> None:
        """Write further rows to another file."""
        if self._writer:
            self._writer.close_file()

    def write_order(self, sources: pa.Array, positions: pa.Array) -> None:
        """Add where the rows that were written last come from."""
        if self._order is None:
            location = self._locations.new_metadata_location(self._new_name(SUFFIX))
            self._order = RowOrderWriter(self._io, location)
        self._order.write(sources, positions)

    def finish(self) -> tuple[tuple[DataFile, ...], str | None]:
        """Return the files and the location of their order, all durable."""
        self._finish_writer()
        return tuple(self._files), self._order.finish() if self._order else None

    def abort(self) -> None:
        """Delete all files, as far as possible. Nothing refers to them."""
        if self._writer:
            self._writer.abort()
        for location in [*(file.path for file in self._files), *([self._order.location] if self._order else [])]:
            with suppress(OSError):
                self._io.delete(location)

    def _finish_writer(self) -> None:
        if self._writer:
            self._files += self._writer.finish()
            self._writer = None

    def _new_name(self, suffix: str) -> str:
        return f"{self._compaction.file_prefix}-{uuid.uuid4()}{suffix}"


def _divide(options: FileOptions, size: int) -> FileOptions:
    """Return options with which rows of this size in bytes become files of similar sizes near the target."""
    pieces = max(round(size / options.target_size), 1)
    return replace(options, target_size=max(int(size / pieces * _MARGIN), options.target_size))
