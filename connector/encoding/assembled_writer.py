"""Rows and row groups of other files to data files of the target size, in the order in which they come."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO

from connector.encoding.assembled_files import AssembledFile, ColumnChunk
from connector.encoding.data_files import FileOptions, GatheredRowGroup
from connector.host.errors import ConnectorError
from connector.model.binding import Column
from connector.model.state import DataFile


@dataclass(frozen=True)
class CopiedRowGroup:
    """A row group of another file, of which some columns are copied without decoding."""

    rows: pa.Table  # with all columns; those that are copied have any values
    chunks: Mapping[int, ColumnChunk]  # by the column's place
    size: int  # bytes, uncompressed


class AssembledWriter:
    """Writes rows and copied row groups of one schema to files of the target size."""

    def __init__(
        self,
        io: FileIO,
        new_location: Callable[[], str],
        columns: Sequence[Column],
        schema: pa.Schema,
        options: FileOptions,
        row_group_size: int,
    ) -> None:
        self._io, self._new_location = io, new_location
        self._columns, self._schema, self._options = columns, schema, options
        self._row_group_size = row_group_size
        self._gathered = GatheredRowGroup(row_group_size)
        self._copied: list[CopiedRowGroup] = []
        self._open_file: AssembledFile | None = None
        self._files: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        self._write_copied()
        if self._gathered.add(batch):
            return
        self._write_gathered()
        if not self._gathered.add(batch):
            self._write_row_group(pa.Table.from_batches([batch], self._schema), {})  # larger than a row group

    def copy(self, group: CopiedRowGroup) -> None:
        """Add the rows of a row group. Consecutive ones become one, if the same columns are copied."""
        self._write_gathered()
        size = sum(each.size for each in self._copied) + group.size
        if self._copied and (size > self._row_group_size or self._copied[0].chunks.keys() != group.chunks.keys()):
            self._write_copied()
        self._copied.append(group)

    def finish(self) -> list[DataFile]:
        """Return all files, complete and durable."""
        self.close_file()
        return self._files

    def close_file(self) -> None:
        """End the open file, so that its rows are durable. Further rows go to another file."""
        self._write_gathered()
        self._write_copied()
        self._end_file()

    def abort(self) -> None:
        """Delete all files, as far as possible. Nothing refers to them."""
        locations = [file.path for file in self._files]
        if self._open_file:
            locations.append(self._open_file.location)
            # ValueError: closing it has failed before, and it is closed.
            with suppress(ConnectorError, OSError, ValueError, pa.ArrowException):
                self._open_file.abort()
        for location in locations:
            with suppress(OSError):
                self._io.delete(location)

    def _write_gathered(self) -> None:
        if batches := self._gathered.take():
            self._write_row_group(pa.Table.from_batches(batches, self._schema), {})

    def _write_copied(self) -> None:
        if not self._copied:
            return
        groups, self._copied = self._copied, []
        rows = pa.concat_tables([group.rows for group in groups])
        self._write_row_group(rows, {place: [group.chunks[place] for group in groups] for place in groups[0].chunks})

    def _write_row_group(self, rows: pa.Table, copied: Mapping[int, Sequence[ColumnChunk]]) -> None:
        if not rows.num_rows:
            return
        if not self._open_file:
            self._open_file = AssembledFile(self._io, self._new_location(), self._columns, self._options)
        self._open_file.write(rows, copied)
        if self._open_file.size >= self._options.target_size:
            self._end_file()

    def _end_file(self) -> None:
        if self._open_file:
            self._files.append(self._open_file.close())
            self._open_file = None
