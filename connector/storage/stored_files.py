"""Files as their storage has them: lists, measures and deletes them."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO

from connector.host.interruption import NEVER, Interruption
from connector.host.threads import map_in_threads
from connector.storage.file_io import open_file_io


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
    """List all files in a directory and below it, but none whose location means another file, as `a#b` means `a`."""
    arrow = open_file_io(io.properties).arrow
    scheme, netloc, root = arrow.parse_location(directory, io.properties)
    selector = FileSelector(root, recursive=True, allow_not_found=True)
    for file in arrow.fs_by_scheme(scheme, netloc).get_file_info(selector):
        location = directory + file.path.removeprefix(root)
        if file.type == FileType.File and arrow.parse_location(location, io.properties)[2] == file.path:
            yield StoredFile(location, file.size or 0, file.mtime)


def measure_files(io: FileIO, locations: Iterable[str]) -> list[StoredFile]:
    """Return the files with their sizes, without those that are gone."""

    def measure(location: str) -> StoredFile | None:
        try:
            return StoredFile(location, len(io.new_input(location)), None)
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
