"""Files as their storage has them: lists, measures and deletes them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyarrow.fs import FileSelector, FileType
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from connector.host.interruption import NEVER, Interruption
from connector.host.refresh import Lease, Refreshed
from connector.host.threads import map_in_threads
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import access_to
from connector.storage.file_io import open_file_io

MOST_FAILURES: Final = 10  # of deletions in a row: the store itself has failed then, and each one takes minutes


@dataclass(frozen=True)
class StoredFile:
    """A file as its storage lists it."""

    location: str
    size: int  # bytes
    modified: datetime | None  # by the storage's clock; None if it does not say


def files_under(io: FileIO, directory: str) -> Iterator[str]:
    """List the locations of all files in a directory and below it."""
    return (file.location for file in list_stored_files(io, directory))


def list_stored_files(io: FileIO, directory: str) -> Iterator[StoredFile]:
    """List all files in a directory and below it, but none whose location means another file, as `a#b` means `a`, and
    none that PyArrow refuses to open: one whose name is not UTF-8, or an object with an empty part in its path."""
    arrow = open_file_io(io.properties).arrow
    scheme, netloc, root = arrow.parse_location(directory, io.properties)
    selector = FileSelector(root, recursive=True, allow_not_found=True)
    for file in arrow.fs_by_scheme(scheme, netloc).get_file_info(selector):
        try:
            path = file.path
        except UnicodeDecodeError:
            continue
        below = path.removeprefix(root)
        location = directory + below
        is_usable = "//" not in below and arrow.parse_location(location, io.properties)[2] == path
        if file.type == FileType.File and is_usable:
            yield StoredFile(location, file.size or 0, file.mtime)


def measure_files(find_io: Callable[[], FileIO], locations: Iterable[str]) -> list[StoredFile]:
    """Return the files with their sizes, without those that are gone. `find_io` returns the FileIO for one of them."""

    def measure(location: str) -> StoredFile | None:
        try:
            return StoredFile(location, len(find_io().new_input(location)), None)
        except FileNotFoundError:
            return None

    return [file for file in map_in_threads(measure, sorted(locations), "measure") if file]


def delete_all(io: FileIO, locations: Iterable[str], interruption: Interruption = NEVER) -> None:
    """Delete the files. Files that are gone already are no error. InterruptedMaintenanceError if interrupted."""

    def delete(location: str) -> None:
        interruption.check()
        with suppress(FileNotFoundError):
            io.delete(location)

    map_in_threads(delete, sorted(locations), "delete")


def keep_io_fresh(path: TableIdentifier, first: Table, load_table: Callable[[], Table]) -> Callable[[], FileIO]:
    """Return what finds the FileIO of a loaded table. Before its credentials expire, it loads the table anew. It
    raises NoSuchTableError if the name has another table then."""

    def lease(table: Table) -> Lease[FileIO]:
        if table.metadata.table_uuid != first.metadata.table_uuid:
            raise NoSuchTableError(f"{path} is another table by now")
        access = access_to(table)
        return Lease(table.io, access.expires_at, access.renew_at)

    io = Refreshed(f"the credentials for the files of table {path}", lambda: lease(load_table()), lease(first))
    return lambda: io.current().value


def delete_each(
    find_io: Callable[[], FileIO], locations: Sequence[str], interruption: Interruption = NEVER
) -> tuple[list[str], Exception | None]:
    """Delete the files, also if some of them cannot be deleted. Return those that are left, and the first error.

    If many deletions in a row fail, the others are left untried, and come first in what is left. `find_io` returns the
    FileIO for a deletion. Files that are gone already are no error. InterruptedMaintenanceError if interrupted.
    """
    deleted: set[str] = set()
    failed: dict[str, Exception] = {}
    in_a_row = 0

    def delete(location: str) -> None:
        nonlocal in_a_row
        interruption.check()
        if in_a_row >= MOST_FAILURES:
            return
        try:
            with suppress(FileNotFoundError):
                find_io().delete(location)
        except Exception as error:  # noqa: BLE001 - the caller gets the first one
            failed[location] = error
            in_a_row += 1
        else:
            deleted.add(location)
            in_a_row = 0

    map_in_threads(delete, locations, "delete")
    left = [location for location in locations if location not in deleted]
    return sorted(left, key=failed.__contains__), next(iter(failed.values()), None)
