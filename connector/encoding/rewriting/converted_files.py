"""Rewrites data files with the values of some columns converted."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.lineage_columns import fill_lineage, lineage_columns
from connector.encoding.live_rows.source_rows import SourceFile, open_source, read_live_rows
from connector.encoding.live_rows.target_columns import TargetColumn
from connector.encoding.parquet.data_files import DataFileWriter, NewFiles, abort_on_failure
from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.rewriting.rewritten_schemas import RewrittenSchema
from connector.encoding.values.column_types import find_columns
from connector.host.refresh import Refreshed
from connector.model.properties import Properties
from connector.model.state import DataFile


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
            of_lineage = lineage_columns(source.lineage, places)
            schema = RewrittenSchema.of([*columns, *of_lineage], opened.file.schema_arrow, source.path)
            options = FileOptions.of_table(self.properties)
            writer = DataFileWriter(NewFiles(io, self._new_location, schema.with_statistics, schema.schema, options))
            with abort_on_failure(writer):
                for rows in read_live_rows(opened, find_deleted_rows(io, source.path, source.position_deletes)):
                    writer.write(fill_lineage(schema.convert(rows.batch), source.lineage, rows.positions))
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
