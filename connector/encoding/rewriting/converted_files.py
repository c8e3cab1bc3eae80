"""Rewrites data files with the values of some columns converted."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pyiceberg.io import FileIO

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.lineage_columns import lineage_columns
from connector.encoding.live_rows.source_rows import SourceFile, open_source, read_live_rows
from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.encoding.parquet.data_files import DataFileWriter, NewFiles, abort_on_failure
from connector.encoding.rewriting.rewritten_schemas import RewrittenSchema
from connector.encoding.values.name_mapping import find_columns
from connector.host.refresh import Refreshed
from connector.model.properties import Properties
from connector.model.state import DataFile


def rewrite_converted(io: FileIO, target: TargetFiles, source: SourceFile) -> tuple[DataFile, ...] | None:
    """Write the files that take the place of a source, and return them: no files if all of its rows are deleted.

    Return None if nothing in it is to be converted, and it stays. Raises UnconvertibleError if a value has no
    equivalent.
    """
    with open_source(io, source, len(target.columns), target.mapping) as opened:
        indexes = find_columns(opened.schema)
        columns = [column for column in target.columns if column.source_id in indexes or _needs_default(column)]
        if not any(column.is_converted for column in columns):
            return None
        lineage = lineage_columns(source.lineage, indexes)
        schema = RewrittenSchema.of([*columns, *lineage], opened.schema, source)
        new = target.destination
        files = NewFiles(io, new.new_location, schema.with_statistics, schema.schema, new.options)
        writer = DataFileWriter(files)
        with abort_on_failure(writer):
            for rows in read_live_rows(opened, find_deleted_rows(io, source.path, source.position_deletes)):
                writer.write(schema.convert(rows))
            return tuple(writer.finish())


# Rewrites many files; for each, what `rewrite_converted` returns.
Rewrite: TypeAlias = Callable[
    [TargetFiles, Sequence[SourceFile], Refreshed[Properties]], Sequence[tuple[DataFile, ...] | None]
]


def _needs_default(column: TargetColumn) -> bool:
    """Whether rows of a file without the source have a value in the new column. Other columns keep their default."""
    return column.is_converted and column.default is not None
