"""The columns of a group's new files, matched with those of a source by field id."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from connector.encoding.live_rows.source_rows import cast_values, plain_type
from connector.encoding.live_rows.target_columns import (
    TargetColumn,
    arrow_field,
    columns_with_statistics,
    known_arrow_type,
    order_columns,
)
from connector.encoding.values.column_types import find_columns
from connector.host.errors import UnreadableFileError
from connector.model.binding import Column


@dataclass(frozen=True)
class GroupSchema:
    """The columns that the new files have for the rows of a source, and where the source has them."""

    columns: tuple[TargetColumn, ...]
    schema: pa.Schema
    places: tuple[int | None, ...]  # for each column, its place in the source; None: its values are the default
    path: str  # of the source

    @classmethod
    def of(cls, columns: Sequence[TargetColumn], source: pa.Schema, path: str) -> "GroupSchema":
        """Match the columns of the table's schema with those of a source, by field id.

        A column that the source lacks has its default value, or is left out, if only a file can tell its Arrow type.
        """
        found = find_columns(source, path)
        matched, fields, places = [], [], []
        for column in order_columns(columns):
            place = found.get(column.source_id)
            arrow_type = known_arrow_type(column.type) or (
                None if place is None else plain_type(source.field(place).type)
            )
            if place is None and column.required and column.default is None:
                raise UnreadableFileError(
                    path,
                    f"{path} has no column {column.name}, which the table requires. It cannot be compacted. Have it "
                    "rewritten by the engine that wrote it.",
                )
            if arrow_type is not None:
                matched.append(column)
                fields.append(arrow_field(column, arrow_type))
                places.append(place)
        return cls(tuple(matched), pa.schema(fields), tuple(places), path)

    @property
    def with_statistics(self) -> list[Column]:
        """The columns that have statistics: the first ones of the schema."""
        return columns_with_statistics(self.columns)

    def is_same(self, other: "GroupSchema") -> bool:
        """Whether rows of both go to the same file. Field ids of nested columns count, too."""
        return bool(self.schema.equals(other.schema, check_metadata=True))

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a source's rows with these columns. Raises UnreadableFileError if a column cannot hold its values."""
        arrays = []
        for column, field, place in zip(self.columns, self.schema, self.places, strict=True):
            if place is None:
                arrays.append(column.make_defaults(batch.num_rows, field.type))
            else:
                arrays.append(cast_values(batch.column(place), field, self.path))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
