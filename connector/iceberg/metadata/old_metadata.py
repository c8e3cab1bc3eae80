"""Finds metadata files that a table no longer needs.

In catalogs that only keep the address of the newest metadata file, clients delete the old ones. Catalogs with a server
of their own do so themselves. PyIceberg deletes them only after its own commits.
"""

import gzip
import logging
import zlib
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from posixpath import basename
from typing import Final
from uuid import UUID

import msgspec
from pyiceberg.catalog import TABLE_METADATA_FILE_NAME_REGEX, Catalog, MetastoreCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.utils.properties import property_as_bool

from connector.iceberg.metadata.table_properties import locations_of
from connector.model.table_identifier import TableIdentifier
from connector.storage.stored_files import files_under

log = logging.getLogger(__name__)

DELETE_OLD_METADATA: Final = "write.metadata.delete-after-commit.enabled"
NO_UUID: Final = "none"  # instead of the UUID that a metadata file should name
LARGEST_METADATA: Final = 64 << 20  # bytes, decompressed: a larger file counts as one that names no table
_GZIP: Final = b"\x1f\x8b"


def must_delete_old_metadata(path: TableIdentifier, catalog: Catalog, properties: dict[str, str]) -> bool:
    """Whether the table asks for the deletion of old metadata files, and its catalog leaves that to clients."""
    if not isinstance(catalog, MetastoreCatalog):
        return False
    try:
        return property_as_bool(properties, DELETE_OLD_METADATA, False)
    except ValueError:
        _warn_of_property(str(path), properties[DELETE_OLD_METADATA])
        return False


@cache
def _warn_of_property(table: str, value: str) -> None:
    log.warning(
        "table %s: its property %s is %r, and must be true or false. Old metadata files stay.",
        table,
        DELETE_OLD_METADATA,
        value,
    )


def find_stale_metadata(table: Table) -> Iterator[str]:
    """Find the metadata files that killed processes and refused commits have left.

    Their version is lower than all versions that the table names. A commit that is still under way writes a higher
    version, or it began with old metadata and will be refused.
    """
    named = [table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)]
    oldest = min(map(_version, named))
    for location in files_under(table.io, locations_of(table).metadata_path):
        if 0 <= _version(location) < oldest and _belongs_to(table, location):
            yield location


def _belongs_to(table: Table, location: str) -> bool:
    """A renamed table keeps its directory, and a new table of the old name may share it."""
    return read_metadata_uuid(table.io, location) == str(table.metadata.table_uuid)


class _Named(msgspec.Struct):
    """The part of a metadata file that names its table. The rest is not kept, so it takes no memory."""

    table_uuid: UUID = msgspec.field(name="table-uuid")


def read_metadata_uuid(io: FileIO, location: str) -> str | None:
    """Return the UUID of the table of a metadata file, of any version: NO_UUID if it names none, is too large or nested
    too deeply, None if the file is gone or cut short."""
    try:
        with io.new_input(location).open() as file:
            content = file.read(LARGEST_METADATA + 1)
        if content.startswith(_GZIP) and len(content) <= LARGEST_METADATA:
            with gzip.open(BytesIO(content)) as decompressed:
                content = decompressed.read(LARGEST_METADATA + 1)
        if len(content) > LARGEST_METADATA:
            return NO_UUID
        return str(msgspec.json.decode(content, type=_Named).table_uuid)
    except (msgspec.ValidationError, RecursionError):  # version 1 needs none
        return NO_UUID
    except (FileNotFoundError, ValueError, EOFError, zlib.error, gzip.BadGzipFile):
        return None


def _version(location: str) -> int:
    match = TABLE_METADATA_FILE_NAME_REGEX.fullmatch(basename(location))
    return int(match[1]) if match else -1
