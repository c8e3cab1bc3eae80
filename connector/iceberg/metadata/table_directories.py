"""The directories of a table's files, and whether they are in a table bucket."""

from collections.abc import Iterable, Set
from posixpath import basename
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.locations import LocationProvider

from connector.iceberg.metadata.table_properties import locations_of
from connector.storage.file_io import open_file_io
from connector.storage.store_kinds import S3_SCHEMES, store_of

BUCKET_SUFFIX: Final = "--table-s3"  # only table buckets have such names


def find_directories(table: Table) -> list[str]:
    """Return the directory of the table, and those of its files, none of which is within another one."""
    provider = locations_of(table)
    return _find_outermost(table.io, {table.location(), provider.data_path, provider.metadata_path})


def find_file_directories(table: Table) -> list[str]:
    """Return the directories of the table's files, none of which is within another one."""
    provider = locations_of(table)
    return _find_outermost(table.io, {provider.data_path, provider.metadata_path})


def is_within_table(table: Table, location: str) -> bool:
    """Whether a file is below the table's location, however both are spelled."""
    return _spell(table.io, location).startswith(_spell(table.io, table.location()))


def keep_own(table: Table, locations: Iterable[str]) -> list[str]:
    """Return the locations of files that may be deleted: those in the table's own directories, which are no others'.

    Anyone who can commit to the table names its directories. So in another bucket than the table's, a file must have
    the table's UUID in its name. A location with the part `..` is of another directory than it seems.
    """
    return keep_own_of(table.location(), locations_of(table), table.metadata.table_uuid, locations)


def keep_own_of(root: str, provider: LocationProvider, uuid: UUID, locations: Iterable[str]) -> list[str]:
    """Do the same without the table's metadata. `root` is its location."""
    own = tuple(f"{directory.rstrip('/')}/" for directory in (root, provider.data_path, provider.metadata_path))
    store, uuid_text = store_of(root), str(uuid)
    return [
        location
        for location in locations
        if location.startswith(own)
        and not {".", ".."}.intersection(location.split("/"))
        and (store_of(location) == store or uuid_text in basename(location))
    ]


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


def is_in_table_bucket(location: str) -> bool:
    """Whether Amazon S3 Tables maintains the files at this location itself."""
    return urlsplit(location).netloc.endswith(BUCKET_SUFFIX)
