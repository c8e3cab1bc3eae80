"""Metadata files that a table no longer needs, in catalogs that only keep the address of the newest one.

Catalogs with a server of their own delete them themselves, and PyIceberg does so only after its own commits.

The table's property `write.metadata.delete-after-commit.enabled` says whether they are to go.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from pyiceberg.catalog import TABLE_METADATA_FILE_NAME_REGEX, MetastoreCatalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import property_as_bool

from connector.iceberg.metadata.stored_files import files_under

ENABLED: Final = "write.metadata.delete-after-commit.enabled"


def are_ours(table: Table) -> bool:
    """Whether they are to be deleted, and by us."""
    return isinstance(table.catalog, MetastoreCatalog) and property_as_bool(table.properties, ENABLED, False)


def find_dropped(before: TableMetadata, after: TableMetadata) -> set[str]:
    """The metadata files that a commit has dropped from the log."""
    return {entry.metadata_file for entry in before.metadata_log} - {
        entry.metadata_file for entry in after.metadata_log
    }


def stale(table: Table) -> Iterator[str]:
    """What killed processes and lost races have left: files with a lower version than all that the table names.

    A commit that is still under way writes a higher version, or else began with old metadata and will be refused.
    """
    named = [table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)]
    oldest = min(map(_version, named))
    provider = load_location_provider(table.location(), table.properties)
    for location in files_under(table.io, provider.metadata_path):
        if 0 <= _version(location) < oldest and _is_of(table, location):
            yield location


def _is_of(table: Table, location: str) -> bool:
    """A table that was renamed keeps its directory, and whoever takes its name next shares it."""
    try:
        metadata = FromInputFile.table_metadata(table.io.new_input(location))
    except (FileNotFoundError, ValueError):  # a truncated file does not say whose it is
        return False
    return metadata.table_uuid == table.metadata.table_uuid


def _version(location: str) -> int:
    match = TABLE_METADATA_FILE_NAME_REGEX.fullmatch(PurePosixPath(location).name)
    return int(match[1]) if match else -1
