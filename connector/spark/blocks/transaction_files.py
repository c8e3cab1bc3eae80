"""The files of one transaction: how a table's data files are written, and temporary files.

The driver and tasks exchange temporary files on a disk that they share, or in the object store: blocks, keys of Loads,
and sorted runs. Objects are named like the transaction's data files: if this process is killed, they are removed with
those.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO

from connector.encoding.parquet.data_files import NewFiles
from connector.encoding.parquet.file_options import Destination
from connector.encoding.search import located_rows
from connector.encoding.values.column_types import arrow_schema
from connector.host.errors import ConnectorError
from connector.host.refresh import Lease
from connector.host.threads import map_in_threads
from connector.model.binding import PLAIN, Arrangement, Binding
from connector.model.properties import Properties
from connector.storage import storage_errors
from connector.storage.file_io import LIST_SUFFIX, open_file_io
from connector.storage.stored_files import delete_each

if TYPE_CHECKING:
    from connector.encoding.runs.sorted_runs import SortedRun  # only for arranged tables

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalFile:
    """A file on a disk that driver and task share."""

    path: Path

    @contextmanager
    def open(self, _: FileIO) -> Iterator[Any]:
        """Open the file. It is read without a buffer."""
        with self.path.open("rb", buffering=0) as file:
            yield file

    @contextmanager
    def create(self, _: FileIO) -> Iterator[Any]:
        """Make the file, and yield a stream that writes it."""
        with self.path.open("xb") as file:  # buffered: otherwise a full disk may take a part without an error
            yield file

    def remove(self, _: FileIO, __: str) -> None:
        """Remove the file, if that is possible: its directory is removed at the end."""
        with suppress(OSError):
            self.path.unlink()

    def translate_errors(self) -> AbstractContextManager[None]:
        """Do nothing: an error of the disk says enough."""
        return nullcontext()

    def new_run(self, _: "TableLayout") -> "LocalFile":
        """Return a new place for a sorted run: in the same directory, and removed with it."""
        return LocalFile(self.path.parent / f"{uuid.uuid4()}.run")


@dataclass(frozen=True)
class StoredObject:
    """An object beside a table's files, opened with the credentials for these."""

    location: str

    @contextmanager
    def open(self, io: FileIO) -> Iterator[Any]:
        """Open the object, which may be large, and translate the store's errors."""
        with self.translate_errors(), io.new_input(self.location).open(seekable=True) as stream:
            yield stream

    @contextmanager
    def create(self, io: FileIO) -> Iterator[Any]:
        """Yield a stream that writes the object, and translate the store's errors.

        A task that was lost may have written the same object before.
        """
        with self.translate_errors(), io.new_output(self.location).create(overwrite=True) as stream:
            yield stream

    def remove(self, io: FileIO, contents: str) -> None:
        """Delete the object. If that fails, only warn. `contents` says what it has, in the plural."""
        with warn_if_left(contents, self.location), suppress(FileNotFoundError):
            io.delete(self.location)

    def translate_errors(self) -> AbstractContextManager[None]:
        """Translate the store's errors of reading or writing the open object."""
        return storage_errors.translate_errors(self.location)

    def new_run(self, layout: "TableLayout") -> "StoredObject":
        """Return a new place for a sorted run of the table: in the store, too."""
        return StoredObject(layout.new_run_location())


TemporaryFile: TypeAlias = LocalFile | StoredObject


@dataclass(frozen=True)
class StoredRun:
    """A sorted run, and its file."""

    file: TemporaryFile
    run: "SortedRun"


@dataclass
class LocalRuns:
    """The sorted runs that one Spark task has on the disk. The run writers of all its tables count them here, because
    the runs of a table that is written stay until the merge of all tasks."""

    size: int = 0  # bytes


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

    def new_list_location(self) -> str:
        """Return a location for a list of these files, by which the connector state names them if they are many."""
        return self.destination.new_metadata_location(LIST_SUFFIX)


class Layouts(Protocol):
    """The layouts of the tables of one transaction: the bindings' tables first, then those of rejected rows."""

    @property
    def bindings(self) -> int:
        """The number of bindings."""

    def make(self, table_index: int) -> TableLayout:
        """Return the layout of the table with this index, with credentials that are valid now."""


@contextmanager
def warn_if_left(contents: str, location: str) -> Iterator[None]:
    """Only warn if objects that have served their purpose cannot be deleted: a later session removes them."""
    try:
        with storage_errors.translate_errors(location):
            yield
    except (ConnectorError, OSError) as error:
        log.warning("%s stay in the object store until a later session: %s", contents, error)


def remove_objects(layouts: Layouts, table_index: int, locations: Sequence[str], contents: str) -> None:
    """Delete objects of one table that are still there. If some cannot be deleted, only warn: a later session removes
    them. `contents` says what the objects have, in the plural."""
    if locations:
        with warn_if_left(contents, locations[0]):
            io = layouts.make(table_index).io
            if failure := delete_each(lambda: io, locations)[1]:
                raise failure


def delete_unstaged(layouts: Layouts, locations: Mapping[int, Sequence[str]]) -> None:
    """Delete the files of a transaction that nothing may refer to, by table. Those that cannot be deleted stay."""

    def delete(table_index: int) -> None:
        remove_objects(layouts, table_index, locations[table_index], "files of a transaction that was not staged")

    map_in_threads(delete, locations, "unstaged")
