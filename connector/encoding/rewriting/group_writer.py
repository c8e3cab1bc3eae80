"""The new files of a file group: one file after the other, each with one schema."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
from msgspec import structs
from pyiceberg.io import FileIO

from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.parquet.data_files import ABORT_ERRORS, FileWriter, NewFiles
from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.rewriting.file_groups import FileGroup
from connector.encoding.rewriting.rewritten_schemas import RewrittenSchema
from connector.encoding.rewriting.row_order import SUFFIX, RowOrderWriter
from connector.encoding.runs.partition_values import PartitionKey
from connector.model.state import DataFile
from connector.storage.file_io import delete_if_possible

Writer = TypeVar("Writer", bound=FileWriter[Any])

_MARGIN: Final = 1.1  # of a file's size, so that no small file is left in the end


class GroupWriter(Generic[Writer]):
    """Writes the new files of a group. If the columns change, another file begins."""

    def __init__(
        self, io: FileIO, target: TargetFiles, group: FileGroup, new_writer: Callable[[NewFiles], Writer]
    ) -> None:
        """`new_writer` makes a writer of files with the same columns."""
        self._io = io
        self._destination = target.destination
        self.options = _divide(self._destination.options, sum(each.size for each in group.sources))
        self._new_writer = new_writer
        self._schema: RewrittenSchema | None = None
        self._writer: Writer | None = None
        self._order: RowOrderWriter | None = None
        self._partition: PartitionKey = ()
        self._files: list[DataFile] = []

    def find_writer(self, schema: RewrittenSchema) -> Writer:
        """Return the writer of rows with these columns. It ends when other columns or another file begin."""
        if self._writer is None or self._schema is None or not self._schema.is_same(schema):
            self._finish_writer()
            self._schema = schema
            new_location = self._destination.new_location
            files = NewFiles(self._io, new_location, schema.with_statistics, schema.schema, self.options)
            self._writer = self._new_writer(files)
        return self._writer

    def begin_file(self, partition: PartitionKey) -> None:
        """Write further rows to another file, of this partition."""
        self._finish_writer()
        self._partition = partition

    def write_order(self, sources: pa.Array, positions: pa.Array) -> None:
        """Add where the rows that were written last come from."""
        if self._order is None:
            self._order = RowOrderWriter(self._io, self._destination.new_location(SUFFIX))
        self._order.write(sources, positions)

    def finish(self) -> tuple[tuple[DataFile, ...], str | None]:
        """Return the files and the location of their order, all durable."""
        self._finish_writer()
        return tuple(self._files), self._order.finish() if self._order else None

    def abort(self) -> None:
        """Delete all files, as far as possible. Nothing refers to them."""
        if self._writer:
            self._writer.abort()
        locations = [file.path for file in self._files]
        if self._order:
            locations.append(self._order.location)
            with suppress(*ABORT_ERRORS):
                self._order.abort()
        delete_if_possible(self._io, locations)

    def _finish_writer(self) -> None:
        if self._writer:
            self._files += [structs.replace(file, partition=self._partition) for file in self._writer.finish()]
            self._writer = None


def _divide(options: FileOptions, size: int) -> FileOptions:
    """Return options with which rows of this size in bytes become files of similar sizes near the target."""
    pieces = max(round(size / options.target_size), 1)
    return replace(options, target_size=max(int(size / pieces * _MARGIN), options.target_size))
