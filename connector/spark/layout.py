"""Where and how one table's data files are written: all that a task needs to know, and no more."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.table.locations import LocationProvider, load_location_provider

from connector.encoding.file_options import FileOptions
from connector.host.refresh import Lease
from connector.model.binding import Binding
from connector.model.properties import Properties
from connector.model.state import DataFile, FileList
from connector.storage import file_lists
from connector.storage.file_access import open_file_io


@dataclass(frozen=True)
class TableLayout:
    """One transaction's files of one table, valid as long as the keys are."""

    binding: Binding
    location: str  # the table's
    properties: Properties  # the table's
    file_prefix: str
    access: Lease[Properties]  # FileIO properties, the object store's keys among them
    rejected: "TableLayout | None" = None  # of the table for rejected rows, if there is one

    @property
    def leases(self) -> tuple[Lease[Properties], ...]:
        """The keys for the files of both tables."""
        return (self.access, *(self.rejected.leases if self.rejected else ()))

    @property
    def seconds_left(self) -> float | None:
        """Until one of them is to be renewed."""
        return min((left for lease in self.leases if (left := lease.seconds_left) is not None), default=None)

    @property
    def io(self) -> FileIO:
        return open_file_io(self.access.value)

    @cached_property
    def options(self) -> FileOptions:
        return FileOptions.of_table(self.properties)

    def new_location(self) -> str:
        return self._locations.new_data_location(f"{self.file_prefix}-{uuid.uuid4()}.parquet")

    def new_block_location(self) -> str:
        """Of a block of rows on their way to these files."""
        return self._locations.new_data_location(f"{self.file_prefix}-{uuid.uuid4()}.jsonl")

    def for_state(self, files: tuple[DataFile, ...]) -> tuple[DataFile, ...] | FileList:
        """The files as connector state names them: themselves, or the object that lists them if they are many."""
        if not file_lists.is_too_long(files):
            return files
        name = f"{self.file_prefix}-{uuid.uuid4()}{file_lists.SUFFIX}"
        return file_lists.write(self.io, self._locations.new_metadata_location(name), files)

    @property
    def _locations(self) -> LocationProvider:
        return load_location_provider(self.location, dict(self.properties))


# Gives the layout with keys that are valid now.
Layout: TypeAlias = Callable[[], TableLayout]
