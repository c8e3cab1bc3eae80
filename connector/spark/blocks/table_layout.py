"""The layout of one table's data files: where and how one transaction writes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO

from connector.encoding.parquet.data_files import NewFiles
from connector.encoding.parquet.file_options import Destination
from connector.encoding.search import located_rows
from connector.encoding.values.column_types import arrow_schema
from connector.host.refresh import Lease
from connector.model.binding import PLAIN, Arrangement, Binding
from connector.model.properties import Properties
from connector.model.state import DataFile, FileList
from connector.spark.blocks.temporary_files import TemporaryFile
from connector.storage.file_io import LIST_SUFFIX, open_file_io, write_list


@dataclass(frozen=True)
class TableLayout:
    """Where and how the data files of one transaction and one table are written. Valid as long as its credentials
    are."""

    binding: Binding
    destination: Destination
    access: Lease[Properties]  # FileIO properties, the object store's credentials among them
    arrangement: Arrangement = PLAIN
    rejected: "TableLayout | None" = None  # of the table for rejected rows, if there is one
    run_limit: int = 256 << 20  # bytes of sorted runs that a task may have on the disk
    row_ids: TemporaryFile | None = None  # of loaded keys; None: no row keeps its id

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
            # Imported here: only some tables have rows that keep their ids.
            from connector.encoding.live_rows.lineage_columns import ROW_ID_FIELD

            return schema.append(ROW_ID_FIELD)
        return schema

    @property
    def new_files(self) -> NewFiles:
        """How the data files are made."""
        new = self.destination
        return NewFiles(self.io, new.new_location, self.binding.columns, self.schema, new.options)

    def new_block_location(self) -> str:
        """Return a location for a block of rows, or for keys with row ids, on their way to these files."""
        return self.destination.new_location(".jsonl")

    def new_run_location(self) -> str:
        """Return a location for a sorted run on its way to these files."""
        return self.destination.new_location(".run")

    def new_located_location(self) -> str:
        """Return a location for an object of located rows. Table buckets have rules for the names of metadata files."""
        return self.destination.new_location(located_rows.SUFFIX)

    def write_file_list(self, files: tuple[DataFile, ...]) -> FileList:
        """Write an object that lists the files, by which the connector state names them if they are many."""
        return write_list(self.io, self.destination.new_metadata_location(LIST_SUFFIX), files)


# Returns the layout with credentials that are valid now.
NewLayout: TypeAlias = Callable[[], TableLayout]


def open_io(new_layout: NewLayout) -> FileIO:
    """Return the FileIO of a table's files, with credentials that are valid now."""
    return new_layout().io
