"""Writes the manifests of a snapshot, and keeps in memory those that the session wrote last."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, TypeAlias
from uuid import UUID

from pyiceberg.io import FileIO, InputFile, OutputFile
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

from connector.encoding.live_rows.deletion_vectors import FileId, WrittenVector
from connector.host.groups import group_by
from connector.iceberg.metadata.manifests import DeleteManifestWriter, ManifestWriter, find_id
from connector.iceberg.metadata.partitions import Partition, PartitionReader, find_source_schema, find_spec
from connector.iceberg.metadata.row_lineage import NEWEST_VERSION
from connector.iceberg.metadata.table_properties import (
    ALL_STATISTICS,
    MissingStatistics,
    find_missing_statistics,
    locations_of,
)
from connector.model.state import BOUND_LENGTH, ColumnStatistics, DataFile, StagedCommit
from connector.storage.file_io import RememberedFile, WrittenFile

WrittenDeletes: TypeAlias = DataFile | WrittenVector  # a position delete file, or a deletion vector

KEPT_BYTES: Final = 64 << 10  # of the newest snapshot of each table


@dataclass(frozen=True)
class AddedDeletes:
    """Deletes that a snapshot adds."""

    partition: Partition
    deletes: WrittenDeletes
    unsent: WrittenFile | None  # the file with them, if it is sent with its manifest; several deletes may share one


class ManifestFactory:
    """Writes manifests of one snapshot, for a table as it was loaded. Names of their files begin with the prefix."""

    def __init__(self, table: Table, prefix: str, snapshot_id: int, unsent: dict[str, list[WrittenFile]]) -> None:
        """`unsent` gets the files that are sent with the manifest list that names a manifest, by its location: the
        manifest itself if it is small, and small delete files that it names."""
        self.table = table
        self.prefix = prefix
        self._snapshot_id = snapshot_id
        self._unsent = unsent

    def write(
        self,
        spec_id: int,
        content: ManifestContent = ManifestContent.DATA,
        *,
        existing: Iterable[ManifestEntry] = (),
        gone: Collection[FileId] = (),
        added: Iterable[ManifestEntry] = (),
        schema_id: int | None = None,
    ) -> ManifestFile:
        """Write a manifest of files that the table has already, and of new ones. Those in `gone` are named as deleted.

        Each existing file keeps its snapshot and its sequence numbers. They decide which deletes apply to it.
        `schema_id` is the schema of the files' columns, by default the current one.
        """
        file = WrittenFile(self.table.io, metadata_location(self.table, f"{self.prefix}-{uuid.uuid4()}-m0.avro"))
        with self._open(file, spec_id, content, schema_id) as manifest:
            for entry in existing:
                (manifest.delete if find_id(entry.data_file) in gone else manifest.existing)(entry)
            for entry in added:
                manifest.add_entry(entry)
        if len(file) <= KEPT_BYTES:
            self._unsent[file.location] = [file]
        else:
            file.send()
        return manifest.to_manifest_file()

    def write_staged(
        self, files: Iterable[tuple[StagedCommit, DataFile]], numbers: Mapping[str, int]
    ) -> list[ManifestFile]:
        """Write a manifest of the files of staged commits for each partition spec. Files get the sequence number of
        their commit's fence value. Without one they inherit the snapshot's."""
        by_spec = group_by(files, lambda each: each[0].spec_id)
        return [self._write_staged(spec_id, by_spec[spec_id], numbers) for spec_id in sorted(by_spec)]

    def _write_staged(
        self, spec_id: int, files: Sequence[tuple[StagedCommit, DataFile]], numbers: Mapping[str, int]
    ) -> ManifestFile:
        partitions = PartitionReader(self.table, spec_id)
        keys = {part.column_id for commit, _ in files if commit.updates for part in commit.updates.parts}
        missing = find_missing_statistics(self.table, keys)
        entries = (
            make_added_entry(
                file,
                partitions.read(file),
                numbers.get(commit.next),
                sort_order_id=commit.sort_order_id,
                missing=missing,
            )
            for commit, file in files
        )
        last, _ = files[-1]
        return self.write(spec_id, added=entries, schema_id=last.schema_id)

    def write_deletes(self, added: Iterable[AddedDeletes]) -> list[ManifestFile]:
        """Write a manifest of new delete files for each partition spec."""
        by_spec = group_by(added, lambda each: each.partition.spec_id)
        return [self._write_deletes(spec_id, spec_deletes) for spec_id, spec_deletes in by_spec.items()]

    def _write_deletes(self, spec_id: int, added: Sequence[AddedDeletes]) -> ManifestFile:
        entries = (_make_delete_entry(each.deletes, each.partition) for each in added)
        manifest = self.write(spec_id, ManifestContent.DELETES, added=entries)
        unsent = {each.deletes.path: each.unsent for each in added if each.unsent}
        self._unsent.setdefault(manifest.manifest_path, []).extend(unsent.values())
        return manifest

    def _open(self, file: WrittenFile, spec_id: int, content: ManifestContent, schema_id: int | None) -> ManifestWriter:
        table = self.table
        spec, schema = find_spec(table.specs(), spec_id), table.schema()
        if schema_id is not None:
            schema = table.schemas().get(schema_id, schema)
        kind = ManifestWriter if content is ManifestContent.DATA else DeleteManifestWriter
        schema = find_source_schema(table, spec, schema)
        return kind(spec, schema, file, self._snapshot_id, table.metadata.format_version)


def _make_delete_entry(file: WrittenDeletes, partition: Partition) -> ManifestEntry:
    if isinstance(file, WrittenVector):
        return _make_vector_entry(file, partition)
    return make_added_entry(file, partition, content=DataFileContent.POSITION_DELETES)


def make_added_entry(
    file: DataFile,
    partition: Partition,
    sequence_number: int | None = None,
    content: DataFileContent = DataFileContent.DATA,
    sort_order_id: int = 0,
    missing: MissingStatistics = ALL_STATISTICS,
) -> ManifestEntry:
    """Return an ADDED entry of a Parquet file. Without a sequence number it inherits one from the manifest list. Sort
    order 0 means no order."""
    return _make_entry(
        partition,
        sequence_number,
        content=content,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        record_count=file.rows,
        file_size_in_bytes=file.size,
        split_offsets=list(file.splits),
        sort_order_id=sort_order_id or None,
        equality_ids=None,
        key_metadata=None,
        **_statistics(file.columns, missing),
    )


def _make_vector_entry(written: WrittenVector, partition: Partition) -> ManifestEntry:
    """Return an ADDED entry. It inherits its sequence numbers from the manifest list. `partition` is that of the data
    file."""
    return _make_entry(
        partition,
        content=DataFileContent.POSITION_DELETES,
        file_path=written.path,
        file_format=FileFormat.PUFFIN,
        record_count=written.rows,
        file_size_in_bytes=written.file_size,
        referenced_data_file=written.vector.data_path,
        content_offset=written.vector.offset,
        content_size_in_bytes=written.size,
    )


def _make_entry(partition: Partition, sequence_number: int | None = None, **described: Any) -> ManifestEntry:
    file = ManifestDataFile.from_args(NEWEST_VERSION, partition=partition.record, **described)
    file.spec_id = partition.spec_id
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=None,
        sequence_number=sequence_number,
        file_sequence_number=None,
        data_file=file,
    )


def _statistics(columns: Sequence[ColumnStatistics], missing: MissingStatistics) -> dict[str, Any]:
    def is_listed(column: ColumnStatistics, bound: bytes | None) -> bool:
        may_be_cut = column.field_id in missing.cut_bounds and len(bound or b"") >= BOUND_LENGTH
        return bound is not None and not may_be_cut

    counted = [column for column in columns if column.field_id not in missing.counts]
    bounded = [column for column in columns if column.field_id not in missing.bounds]
    return {
        "column_sizes": {column.field_id: column.size for column in columns},
        "value_counts": {column.field_id: column.values for column in counted},
        "null_value_counts": {column.field_id: column.nulls for column in counted if column.nulls is not None},
        "nan_value_counts": {},
        "lower_bounds": {column.field_id: column.lower for column in bounded if is_listed(column, column.lower)},
        "upper_bounds": {column.field_id: column.upper for column in bounded if is_listed(column, column.upper)},
    }


def metadata_location(table: Table, name: str) -> str:
    """Return the location of a metadata file with this name."""
    return locations_of(table).new_metadata_location(name)


class RememberingFileIO(FileIO):
    """Reads some files from memory, and all others from their store."""

    def __init__(self, io: FileIO, files: Mapping[str, RememberedFile]) -> None:
        """`files` are those in memory, by their locations."""
        super().__init__(io.properties)
        self._io, self._files = io, files

    def new_input(self, location: str) -> InputFile:
        """Return a file to read. To read one in memory takes no request."""
        return self._files[location] if location in self._files else self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write to the store."""
        return self._io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file in the store. FileNotFoundError if there is none."""
        self._io.delete(location)


class WrittenSnapshots:
    """The manifest list and the new manifests of the snapshot that the session wrote last, of each table.

    Their locations are random, and the files never change: the same location has the same content, whatever has become
    of the table. Which files are read is always up to the table as its catalog has it now.
    """

    def __init__(self) -> None:
        self._newest: dict[UUID, Mapping[str, RememberedFile]] = {}

    def add(self, table: Table, files: Sequence[WrittenFile]) -> None:
        """Keep the files of a snapshot instead of the table's earlier ones. Of many bytes, the first files are kept."""
        sizes = accumulate(map(len, files))
        kept = [file.to_input_file() for file, size in zip(files, sizes, strict=True) if size <= KEPT_BYTES]
        self._newest[table.metadata.table_uuid] = {file.location: file for file in kept}

    def with_memory(self, table: Table) -> Table:
        """Return the same table, as one whose files are read from memory if they are there."""
        io = RememberingFileIO(table.io, self._newest.get(table.metadata.table_uuid, {}))
        return Table(table.name(), table.metadata, table.metadata_location, io, table.catalog)
