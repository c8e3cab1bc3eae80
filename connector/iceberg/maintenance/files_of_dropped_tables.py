"""Finds files of tables that were dropped, for example by a backfill of an earlier version, in a table's directories.

A new table of the same name has the directory of the one that it replaces, if the connector chooses the location. The
names of our files have the UUID of their table, and so has the content of metadata files. A table counts as dropped if
no table of the whole catalog has this UUID, now or before a backfill, and if none of its files is young. That is no
proof: another catalog may have the table. So these files are only deleted if the user asks for it. A table without a
UUID, which version 1 allows, never counts as dropped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from posixpath import basename
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from connector.host.threads import map_in_threads
from connector.iceberg.fences.file_names import CompactionOrigin, FileOrigin
from connector.iceberg.metadata.old_metadata import NO_UUID, read_metadata_uuid
from connector.model.table_identifier import Generation
from connector.storage.stored_files import StoredFile

METADATA_SUFFIXES: Final = (".metadata.json", ".metadata.json.gz", "version-hint.text")


class DroppedTables:
    """Tells which tables are dropped. It loads all tables of the catalog, once, when it is first asked."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def find(self, by_table: Mapping[str, Sequence[StoredFile]], modified_before: datetime) -> list[str]:
        """Return the UUIDs of the dropped ones among the tables of these files. A table with a younger file is none."""
        return [
            uuid
            for uuid, files in by_table.items()
            if are_older(files, modified_before) and uuid != NO_UUID and uuid not in self._uuids
        ]

    @cached_property
    def _uuids(self) -> set[str]:
        """The UUIDs of all tables of the catalog, and those of the generations of their rows."""
        identifiers = [
            identifier
            for namespace in _list_namespaces(self._catalog)
            for identifier in self._catalog.list_tables(namespace)
        ]
        return {uuid for found in map_in_threads(self._load, identifiers, "lookup") for uuid in found}

    def _load(self, identifier: Identifier) -> set[str]:
        try:
            return _list_generations(self._catalog.load_table(identifier))
        except (NoSuchIcebergTableError, NoSuchTableError):
            return set()


def _list_namespaces(catalog: Catalog, parent: Identifier = ()) -> Iterator[Identifier]:
    for namespace in catalog.list_namespaces(parent):
        if len(namespace) > len(parent):
            yield namespace
            yield from _list_namespaces(catalog, namespace)


def are_older(files: Iterable[StoredFile], modified_before: datetime) -> bool:
    """Whether the storage says of all files that they were modified before this time."""
    return all(file.modified is not None and file.modified < modified_before for file in files)


def group_by_other_table(
    table: Table, files: Iterable[StoredFile], *, reads_metadata: bool
) -> dict[str, list[StoredFile]]:
    """Return the files that belong to other tables, by UUID: our files, and metadata files if they are read."""
    files, generations = list(files), _list_generations(table)
    by_table: dict[str, list[StoredFile]] = {}
    for uuid, file in (*_read_names(files), *(_read_metadata(table.io, files) if reads_metadata else ())):
        if uuid not in generations:
            by_table.setdefault(uuid, []).append(file)
    return by_table


def _list_generations(table: Table) -> set[str]:
    """Return the UUIDs that names of the table's files may have."""
    recorded = Generation.recorded(table.properties)
    return {str(table.metadata.table_uuid), *((recorded.uuid, *recorded.former) if recorded else ())}


def _read_names(files: Iterable[StoredFile]) -> Iterator[tuple[str, StoredFile]]:
    for file in files:
        if uuid := read_table_uuid(basename(file.location)):
            yield uuid, file


def read_table_uuid(name: str) -> str | None:
    """Return the UUID in the name of a file of ours: that of its table, or of a generation of its rows."""
    origin = FileOrigin.of(name) or CompactionOrigin.of(name)
    return origin.table_uuid if origin else None


def _read_metadata(io: FileIO, files: Iterable[StoredFile]) -> Iterator[tuple[str, StoredFile]]:
    """Yield the metadata files with the UUIDs of their tables. A file that is cut short does not name its table."""
    metadata = [file for file in files if basename(file.location).endswith(METADATA_SUFFIXES[:2])]
    locations = [file.location for file in metadata]
    uuids = map_in_threads(partial(read_metadata_uuid, io), locations, "lookup")
    for uuid, file in zip(uuids, metadata, strict=True):
        if uuid:
            yield uuid, file
