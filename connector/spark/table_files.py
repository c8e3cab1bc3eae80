"""The data files of one table: where and how they are written, and what a task writes there."""

import uuid
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table.locations import LocationProvider, load_location_provider

from connector.encoding.lines.decoder import Decoded
from connector.encoding.lines.invalid_cells import make_batch
from connector.encoding.parquet.data_files import ROW_GROUP_SIZE, DataFileWriter, RowGroup
from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.parquet.gathered_rows import GatheredRowGroup
from connector.encoding.search import located_rows
from connector.encoding.values.column_types import arrow_schema
from connector.host.refresh import Lease
from connector.model.binding import PLAIN, Arrangement, Binding
from connector.model.properties import Properties
from connector.model.state import DataFile, FileList
from connector.storage.file_io import LIST_SUFFIX, open_file_io, write_list

# Both writers may be open at once: this one must not double the memory that is planned for the other.
_REJECTED_ROW_GROUP_SIZE: Final = ROW_GROUP_SIZE // 4


class StoredKeys(Hashable, Protocol):
    """A table of keys that the driver has written for tasks."""

    def open(self, io: FileIO, /) -> AbstractContextManager[Any]:
        """Open the file."""


@dataclass(frozen=True)
class TableLayout:
    """Where and how the data files of one transaction and one table are written. Valid as long as its credentials
    are."""

    binding: Binding
    location: str  # the table's
    properties: Properties  # the table's
    file_prefix: str
    access: Lease[Properties]  # FileIO properties, the object store's credentials among them
    arrangement: Arrangement = PLAIN
    rejected: "TableLayout | None" = None  # of the table for rejected rows, if there is one
    run_limit: int = 256 << 20  # bytes of sorted runs that a task may have on the disk
    row_ids: StoredKeys | None = None  # of loaded keys; None: no row keeps its id

    @property
    def leases(self) -> tuple[Lease[Properties], ...]:
        """The credentials for the files of both tables."""
        return (self.access, *(self.rejected.leases if self.rejected else ()))

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the first of the credentials must be refreshed; None if they do not expire."""
        return min((left for lease in self.leases if (left := lease.seconds_left) is not None), default=None)

    @property
    def io(self) -> FileIO:
        """The FileIO of the table's files, whose connections stay open."""
        return open_file_io(self.access.value)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the data files."""
        schema = arrow_schema(self.binding)
        if self.row_ids:
            from connector.encoding.live_rows.lineage_columns import (
                ROW_ID_FIELD,  # only for tables whose rows keep their ids
            )

            return schema.append(ROW_ID_FIELD)
        return schema

    @cached_property
    def options(self) -> FileOptions:
        """How the table's properties ask for its data files to be written."""
        return FileOptions.of_table(self.properties)

    def new_location(self) -> str:
        """Return a location for a new data file."""
        return self._locations.new_data_location(f"{self.file_prefix}-{uuid.uuid4()}.parquet")

    def new_block_location(self) -> str:
        """Return a location for a block of rows, or for keys with row ids, on their way to these files."""
        return self._locations.new_data_location(f"{self.file_prefix}-{uuid.uuid4()}.jsonl")

    def new_run_location(self) -> str:
        """Return a location for a sorted run on its way to these files."""
        return self._locations.new_data_location(f"{self.file_prefix}-{uuid.uuid4()}.run")

    def new_located_location(self) -> str:
        """Return a location for an object of located rows."""
        return self._locations.new_metadata_location(f"{self.file_prefix}-{uuid.uuid4()}{located_rows.SUFFIX}")

    def list_files(self, files: tuple[DataFile, ...]) -> FileList:
        """Write an object that lists the files, by which the connector state names them if they are many."""
        name = f"{self.file_prefix}-{uuid.uuid4()}{LIST_SUFFIX}"
        return write_list(self.io, self._locations.new_metadata_location(name), files)

    @property
    def _locations(self) -> LocationProvider:
        return load_location_provider(self.location, dict(self.properties))


# Returns the layout with credentials that are valid now.
NewLayout: TypeAlias = Callable[[], TableLayout]


class RowWriter(Protocol):
    """Writes the rows of one table."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""

    def close_file(self) -> None:
        """Make the rows durable. Further rows go to another file."""

    def finish(self) -> list[DataFile]:
        """Return all data files, complete and durable."""

    def abort(self) -> None:
        """Delete all files, as far as possible. Nothing refers to them."""


class TableFiles:
    """The data files that a task writes from consecutive blocks of one binding, those of its rejected rows included."""

    runs: Final = ()  # rows go to data files at once

    def __init__(self, layout: TableLayout, open_writer: Callable[[TableLayout, int], RowWriter] | None = None) -> None:
        """`open_writer` opens the writer of a table with row groups of this size, in bytes."""
        self._layout = layout
        self._open_writer = open_writer or open_file_writer
        self._rows = self._open_writer(layout, ROW_GROUP_SIZE)
        self._rejected: RowWriter | None = None

    def begin_block(self, first_line: int) -> None:
        """Do nothing: blocks follow each other in the same files."""

    def write(self, decoded: Decoded) -> None:
        """Write the rows of one batch, and its rejected rows."""
        self._rows.write(decoded.batch)
        if decoded.rejected:
            rejected = self._layout.rejected
            assert rejected, "rows are rejected only where there is a table for them"
            self._rejected = self._rejected or self._open_writer(rejected, _REJECTED_ROW_GROUP_SIZE)
            self._rejected.write(make_batch(decoded.rejected, datetime.now(UTC), arrow_schema(rejected.binding)))

    def close(self) -> None:
        """End the open files. Further rows go to new files."""
        self._rows.close_file()
        if self._rejected:
            self._rejected.close_file()

    def finish(self) -> list[tuple[int, tuple[DataFile, ...]]]:
        """Return all files by table, complete and durable."""
        written = [(self._layout.binding.index, tuple(self._rows.finish()))]
        if self._rejected and self._layout.rejected:
            written.append((self._layout.rejected.binding.index, tuple(self._rejected.finish())))
        return [(table, files) for table, files in written if files]

    def abort(self) -> None:
        """Delete the files, as far as possible. Nothing refers to them."""
        self._rows.abort()
        if self._rejected:
            self._rejected.abort()


def open_file_writer(
    layout: TableLayout, row_group_size: int, gather: Callable[[int], RowGroup | GatheredRowGroup] = RowGroup
) -> DataFileWriter:
    """Return a writer of the table's data files, with row groups of this size in bytes."""
    binding = layout.binding
    return DataFileWriter(
        layout.io,
        layout.new_location,
        binding.columns,
        layout.schema,
        layout.options,
        gather(row_group_size),
    )
