"""Reads manifests, and writes them for new files and for files that other manifests list."""

import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from connector.iceberg.metadata.avro_files import (
    AVRO_COMPRESSION,
    DeleteManifestWriter,
    ManifestWriter,
    check_version,
    read_manifest_list,
)
from connector.model.state import ColumnStatistics, DataFile
from connector.storage.written_file import RememberedFile, WrittenFile

KEPT_BYTES: Final = 64 << 10  # for each table: several hundred manifests


class ManifestFactory:
    """Writes manifests of one snapshot."""

    def __init__(self, snapshot_id: int) -> None:
        self._snapshot_id = snapshot_id

    def of_added(
        self, table: Table, prefix: str, spec_id: int, schema_id: int, files: Sequence[DataFile]
    ) -> ManifestFile:
        """Write a manifest of new files, which inherit their snapshot and sequence number from the manifest list."""
        with self.writer(table, prefix, spec_id, schema_id) as manifest:
            for file in files:
                manifest.add_entry(make_added_entry(file, spec_id, Record()))
        return manifest.to_manifest_file()

    def of_deletes(self, table: Table, prefix: str, spec_id: int, files: Sequence[DataFile]) -> ManifestFile:
        """Write a manifest of new position delete files, which inherit snapshot and sequence number, too."""
        schema_id, content = table.metadata.current_schema_id, DataFileContent.POSITION_DELETES
        with self.writer(table, prefix, spec_id, schema_id, ManifestContent.DELETES) as manifest:
            for file in files:
                manifest.add_entry(make_added_entry(file, spec_id, Record(), content=content))
        return manifest.to_manifest_file()

    def of_existing(
        self,
        table: Table,
        prefix: str,
        spec_id: int,
        entries: Iterable[ManifestEntry],
        content: ManifestContent = ManifestContent.DATA,
    ) -> ManifestFile:
        """Write a manifest of files that the table has already.

        Each keeps its snapshot and its sequence numbers. They decide which deletes apply to it.
        """
        with self.writer(table, prefix, spec_id, table.metadata.current_schema_id, content) as manifest:
            for entry in entries:
                manifest.existing(entry)
        return manifest.to_manifest_file()

    def without(self, table: Table, prefix: str, manifest: ManifestFile, gone: Collection[str]) -> ManifestFile:
        """Write the manifest again, with the files of these paths as deleted. If it lists none of them, return it."""
        entries = manifest.fetch_manifest_entry(table.io)
        if not any(entry.data_file.file_path in gone for entry in entries):
            return manifest
        spec_id, schema_id = manifest.partition_spec_id, table.metadata.current_schema_id
        with self.writer(table, prefix, spec_id, schema_id, manifest.content) as writer:
            for entry in entries:
                if entry.data_file.file_path in gone:
                    writer.delete(entry)
                else:
                    writer.existing(entry)
        return writer.to_manifest_file()

    def writer(
        self,
        table: Table,
        prefix: str,
        spec_id: int,
        schema_id: int,
        content: ManifestContent = ManifestContent.DATA,
    ) -> ManifestWriter:
        """Return the writer of a new manifest, whose file name begins with the prefix."""
        check_version(table)
        kind = ManifestWriter if content is ManifestContent.DATA else DeleteManifestWriter
        return kind(
            spec=table.specs()[spec_id],
            schema=table.schemas().get(schema_id, table.schema()),
            output_file=WrittenFile(table.io.new_output(metadata_location(table, f"{prefix}-{uuid.uuid4()}-m0.avro"))),
            snapshot_id=self._snapshot_id,
            avro_compression=AVRO_COMPRESSION,
        )


def metadata_location(table: Table, name: str) -> str:
    """Return the location of a metadata file with this name."""
    return load_location_provider(table.location(), table.properties).new_metadata_location(name)


def manifests_of(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Read a snapshot's manifests, without PyIceberg's cache: writing a manifest list changes its shared objects."""
    return list(read_manifest_list(io.new_input(snapshot.manifest_list))) if snapshot else []


def make_added_entry(
    file: DataFile,
    spec_id: int,
    partition: Record,
    sequence_number: int | None = None,
    content: DataFileContent = DataFileContent.DATA,
) -> ManifestEntry:
    """Return an ADDED entry. Without a sequence number it inherits one from the manifest list."""
    data_file = ManifestDataFile.from_args(
        content=content,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=file.rows,
        file_size_in_bytes=file.size,
        split_offsets=list(file.splits),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **_statistics(file.columns),
    )
    data_file.spec_id = spec_id
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=None,
        sequence_number=sequence_number,
        file_sequence_number=None,
        data_file=data_file,
    )


def _statistics(columns: Sequence[ColumnStatistics]) -> dict[str, Any]:
    return {
        "column_sizes": {column.field_id: column.size for column in columns},
        "value_counts": {column.field_id: column.values for column in columns},
        "null_value_counts": {column.field_id: column.nulls for column in columns if column.nulls is not None},
        "nan_value_counts": {},
        "lower_bounds": {column.field_id: column.lower for column in columns if column.lower is not None},
        "upper_bounds": {column.field_id: column.upper for column in columns if column.upper is not None},
    }


class WrittenLists:
    """The manifest list of each table that this session wrote last, in memory.

    Locations are random, and a list never changes: the same location has the same list.
    """

    def __init__(self) -> None:
        self._newest: dict[UUID, RememberedFile] = {}

    def add(self, table: Table, written: WrittenFile) -> None:
        """Keep a list instead of the table's earlier one, unless it is too large."""
        if len(written) <= KEPT_BYTES:
            self._newest[table.metadata.table_uuid] = written.to_input_file()

    def manifests_of(self, table: Table) -> list[ManifestFile]:
        """Read the current snapshot's manifests, from memory if its list is there."""
        snapshot = table.current_snapshot()
        written = self._newest.get(table.metadata.table_uuid)
        if snapshot and written and written.location == snapshot.manifest_list:
            return list(read_manifest_list(written))
        return manifests_of(table.io, snapshot)
