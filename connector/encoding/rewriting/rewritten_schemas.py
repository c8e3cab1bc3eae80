"""The columns of new files, matched by field id with those of a source whose rows are written again."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.types import PrimitiveType

from connector.encoding.live_rows.lineage_columns import fill_lineage
from connector.encoding.live_rows.source_rows import LiveRows, SourceFile, cast_values, plain_type
from connector.encoding.live_rows.target_columns import (
    TargetColumn,
    arrow_field,
    known_arrow_type,
)
from connector.encoding.values.conversions import NoEquivalentError, convert
from connector.encoding.values.name_mapping import explain_missing_ids, find_columns, has_nested_ids
from connector.host.errors import UnreadableFileError
from connector.model.binding import Column


class UnconvertibleError(Exception):
    """Some columns have values without an equivalent of the new type."""

    def __init__(self, *column_ids: int) -> None:
        super().__init__(*column_ids)
        self.column_ids = frozenset(column_ids)


@dataclass(frozen=True)
class RewrittenSchema:
    """The columns that the new files have for the rows of a source, and where the source has them."""

    columns: tuple[TargetColumn, ...]
    schema: pa.Schema
    indexes: tuple[int | None, ...]  # for each column, its index in the source; None: its values are the default
    source: SourceFile

    @classmethod
    def of(cls, columns: Sequence[TargetColumn], schema: pa.Schema, source: SourceFile) -> "RewrittenSchema":
        """Match the columns of the table's schema with those of a source by field id. `schema` has the source's ids.

        A column that the source lacks has its default value, or is left out, if only a file can tell its Arrow type.
        """
        found, path = find_columns(schema), source.path
        matched, fields, indexes = [], [], []
        # Statistics go by a column's place, so nested columns, which have none, come last.
        for column in sorted(columns, key=lambda column: not isinstance(column.type, PrimitiveType)):
            index = found.get(column.source_id)
            arrow_type = known_arrow_type(column.type) or (
                None if index is None else plain_type(schema.field(index).type)
            )
            if index is None and column.required and column.default is None:
                raise UnreadableFileError(
                    path,
                    f"{path} has no column {column.name}, which the table requires. It cannot be compacted. Have it "
                    "rewritten by the engine that wrote it.",
                )
            if arrow_type is not None and not has_nested_ids(arrow_type):
                raise explain_missing_ids(path)
            if arrow_type is not None:
                matched.append(column)
                fields.append(arrow_field(column, arrow_type))
                indexes.append(index)
        return cls(tuple(matched), pa.schema(fields), tuple(indexes), source)

    @property
    def with_statistics(self) -> list[Column]:
        """The columns that have statistics: the first ones of the schema."""
        return [
            Column(column.name, column.name, column.id, column.type, column.required)
            for column in self.columns
            if isinstance(column.type, PrimitiveType)
        ]

    def is_same(self, other: "RewrittenSchema") -> bool:
        """Whether rows of both go to the same file. Field ids of nested columns count, too."""
        return bool(self.schema.equals(other.schema, check_metadata=True))

    def convert(self, rows: LiveRows) -> pa.RecordBatch:
        """Return the source's rows with these columns, and with the ids and the sequence numbers that they inherit.

        Raises UnreadableFileError if a column cannot hold its values, UnconvertibleError if a value of a converted
        column has no equivalent.
        """
        arrays = [
            self._convert(rows.batch, *each) if each[0].is_converted else self._cast(rows.batch, *each)
            for each in zip(self.columns, self.schema, self.indexes, strict=True)
        ]
        converted = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return fill_lineage(converted, self.source.lineage, rows.positions)

    def _cast(self, batch: pa.RecordBatch, column: TargetColumn, field: pa.Field, index: int | None) -> pa.Array:
        if index is None:
            return column.make_defaults(batch.num_rows, field.type)
        return cast_values(batch.column(index), field, self.source.path)

    def _convert(self, batch: pa.RecordBatch, column: TargetColumn, field: pa.Field, index: int | None) -> pa.Array:
        assert isinstance(column.type, PrimitiveType)
        known = known_arrow_type(column.source_type)
        values = column.make_defaults(batch.num_rows, known or field.type) if index is None else batch.column(index)
        try:
            return convert(values.cast(known) if known else values, column.source_type, column.type)
        except (NoEquivalentError, pa.ArrowInvalid) as error:  # a file of another engine may have another type
            raise UnconvertibleError(column.source_id) from error
