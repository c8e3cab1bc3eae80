"""A table's files in its storage: lists them, deletes them, and finds metadata files that the table no longer needs.

In catalogs that only keep the address of the newest metadata file, clients delete the old ones. Catalogs with a server
of their own do so themselves. PyIceberg deletes them only after its own commits.
"""

import gzip
import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from posixpath import basename
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from pyarrow.fs import FileSelector, FileType
from pyiceberg.catalog import TABLE_METADATA_FILE_NAME_REGEX, MetastoreCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import property_as_bool

from connector.host.signals import map_in_threads
from connector.iceberg.metadata.interruption import NEVER, Interruption
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import S3_SCHEMES
from connector.storage.file_io import open_file_io

log = logging.getLogger(__name__)

BUCKET_SUFFIX: Final = "--table-s3"  # only table buckets have such names
DELETE_OLD_METADATA: Final = "write.metadata.delete-after-commit.enabled"
NO_UUID: Final = "none"  # instead of the UUID that a metadata file should name
_GZIP: Final = b"\x1f\x8b"


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


def find_directories(table: Table) -> list[str]:
    """Return the directory of the table, and those of its files, none of which is within another one."""
    provider = load_location_provider(table.location(), table.properties)
    return _find_outermost(table.io, {table.location(), provider.data_path, provider.metadata_path})


def find_file_directories(table: Table) -> list[str]:
    """Return the directories of the table's files, none of which is within another one."""
    provider = load_location_provider(table.location(), table.properties)
    return _find_outermost(table.io, {provider.data_path, provider.metadata_path})


def _find_outermost(io: FileIO, directories: Set[str]) -> list[str]:
    """Return the directories, in whatever spelling, without those that are within another one."""
    by_spelling: dict[str, str] = {}
    for directory in sorted(directories):
        by_spelling.setdefault(_spell(io, directory), directory.rstrip("/"))
    return [
        directory
        for spelling, directory in by_spelling.items()
        if not any(spelling.startswith(other) for other in by_spelling if other != spelling)
    ]


def _spell(io: FileIO, directory: str) -> str:
    """Return one spelling of a directory, with a slash at its end. Buckets and local directories have several."""
    scheme, netloc, path = open_file_io(io.properties).arrow.parse_location(directory, io.properties)
    return f"{'s3' if scheme in S3_SCHEMES else scheme}://{netloc} {path.rstrip('/')}/"


def delete_all(io: FileIO, locations: Iterable[str], interruption: Interruption = NEVER) -> None:
    """Delete the files. Files that are gone already are no error. InterruptedMaintenanceError if interrupted."""

    def delete(location: str) -> None:
        interruption.check()
        with suppress(FileNotFoundError):
            io.delete(location)

    map_in_threads(delete, sorted(locations), "delete")


def is_in_table_bucket(location: str) -> bool:
    """Whether Amazon S3 Tables maintains the files at this location itself."""
    return urlsplit(location).netloc.endswith(BUCKET_SUFFIX)


def must_delete_old_metadata(table: Table) -> bool:
    """Whether the table asks for the deletion of old metadata files, and its catalog leaves that to clients."""
    if not isinstance(table.catalog, MetastoreCatalog):
        return False
    try:
        return property_as_bool(table.properties, DELETE_OLD_METADATA, False)
    except ValueError:
        _warn_of_property(TableIdentifier.of(table), table.properties[DELETE_OLD_METADATA])
        return False


@cache
def _warn_of_property(table: str, value: str) -> None:
    log.warning(
        "table %s: its property %s is %r, and must be true or false. Old metadata files stay.",
        table,
        DELETE_OLD_METADATA,
        value,
    )


def find_dropped_metadata(named_before: Set[str], after: TableMetadata) -> Set[str]:
    """Return the metadata files that a table's log named before a commit, and no longer names after it."""
    return named_before - {entry.metadata_file for entry in after.metadata_log}


def find_stale_metadata(table: Table) -> Iterator[str]:
    """Find the metadata files that killed processes and refused commits have left.

    Their version is lower than all versions that the table names. A commit that is still under way writes a higher
    version, or it began with old metadata and will be refused.
    """
    named = [table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)]
    oldest = min(map(_version, named))
    provider = load_location_provider(table.location(), table.properties)
    for location in files_under(table.io, provider.metadata_path):
        if 0 <= _version(location) < oldest and _belongs_to(table, location):
            yield location


def _belongs_to(table: Table, location: str) -> bool:
    """A renamed table keeps its directory, and a new table of the old name may share it."""
    return read_metadata_uuid(table.io, location) == str(table.metadata.table_uuid)


def read_metadata_uuid(io: FileIO, location: str) -> str | None:
    """Return the UUID of the table of a metadata file, of any version: NO_UUID if it names none, None if the file is
    gone or cut short."""
    try:
        with io.new_input(location).open() as file:
            content = file.read()
        metadata = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
    except (FileNotFoundError, ValueError, EOFError, zlib.error, gzip.BadGzipFile):
        return None
    try:
        return str(UUID(metadata["table-uuid"]))
    except (KeyError, TypeError, ValueError, AttributeError):  # version 1 needs none
        return NO_UUID


def _version(location: str) -> int:
    match = TABLE_METADATA_FILE_NAME_REGEX.fullmatch(basename(location))
    return int(match[1]) if match else -1


def measure_files(io: FileIO, locations: Iterable[str]) -> list[StoredFile]:
    """Return the files with their sizes, without those that are gone."""

    def measure(location: str) -> StoredFile | None:
        try:
            return StoredFile(location, len(io.new_input(location)), None)
        except FileNotFoundError:
            return None

    return [file for file in map_in_threads(measure, sorted(locations), "measure") if file]
