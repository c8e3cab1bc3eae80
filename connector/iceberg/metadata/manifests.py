"""Reads and writes manifests and manifest lists."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, Self

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriterV2,
    PartitionFieldSummary,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from connector.encoding.live_rows.deletion_vectors import DeletionVector, FileId
from connector.iceberg.metadata.avro_files import AVRO_COMPRESSION, AvroFileWriter, AvroSchema, read_records
from connector.iceberg.metadata.partitions import correct_summaries, name_in_avro
from connector.iceberg.metadata.row_lineage import FILE_FIELDS, LIST_FIELDS, NEWEST_VERSION, assign_row_ids, number_rows
from connector.storage.store_kinds import store_of

SCHEMAS: Final = 64  # one serves all unpartitioned tables, and one the manifest lists of each engine

# Where manifest lists and manifests have the content. Those of version 1 leave it out, and PyIceberg reads a plain 0.
_CONTENT_OF_MANIFEST: Final = LIST_FIELDS.index("content")
_CONTENT_OF_FILE: Final = FILE_FIELDS.index("content")
# What an entry says of a deletion vector, which is new in version 3. PyIceberg's class has no names for these fields.
_OF_VECTOR: Final = [
    FILE_FIELDS.index(name) for name in ("content_offset", "content_size_in_bytes", "referenced_data_file")
]
_OF_SUMMARIES: Final = LIST_FIELDS.index("partitions")
# Where manifest lists have the numbers of files and of rows. Those of version 1 may leave them out.
_COUNTS: Final = {
    status: [LIST_FIELDS.index(f"{status.name.lower()}_{what}_count") for what in ("files", "rows")]
    for status in ManifestEntryStatus
}
_EQUALITY_IDS: Final = ListType(136, IntegerType(), element_required=True)


def manifests_of(table: Table, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Read a snapshot's manifests, without PyIceberg's cache: writing a manifest list changes its shared objects.

    InvalidMetadataError if the list is damaged, or is empty although the snapshot's summary counts data files: a list
    that is cut short behind its header looks like an empty one. Also if the list or a manifest is on this machine, and
    the table is not: who may change a table in a bucket could have any file of this machine opened, also a pipe.
    """
    if snapshot is None:
        return []
    _check_stores(table, [snapshot.manifest_list])
    manifests = [*read_manifest_list(table.io.new_input(snapshot.manifest_list))]
    _check_stores(table, (manifest.manifest_path for manifest in manifests))
    for manifest in manifests:
        _count(table.io, manifest)
    if not manifests and (files := _count_data_files(snapshot)):
        raise InvalidMetadataError(f"{snapshot.manifest_list} is damaged: it lists none of {files} data files")
    return manifests


def _check_stores(table: Table, locations: Iterable[str]) -> None:
    own = table.location()
    kind, _ = store_of(own)
    for location in locations:
        if (found := store_of(location)[0]) != kind and "file" in (found, kind):
            raise InvalidMetadataError(f"{location} is in another kind of store than {own}, where the table is")


def _count(io: FileIO, manifest: ManifestFile) -> None:
    """Fill in the numbers of files and rows that the manifest list has left out."""
    if any(manifest[index] is None for indexes in _COUNTS.values() for index in indexes):
        entries = read_all_entries(io, manifest)
        for status, (files, rows) in _COUNTS.items():
            counted = [entry.data_file.record_count for entry in entries if entry.status is status]
            manifest[files], manifest[rows] = len(counted), sum(counted)


def _count_data_files(snapshot: Snapshot) -> int:
    """Return the number of a snapshot's data files by its summary. 0 if it does not say: not every engine does."""
    total = snapshot.summary and snapshot.summary.additional_properties.get("total-data-files")
    return int(total) if total and total.isdecimal() else 0


def read_manifest_list(file: InputFile) -> Iterator[ManifestFile]:
    """Read the manifests that a list names, in the form of the newest version."""
    for manifest in read_records(file, _find_list_reader):
        manifest[_CONTENT_OF_MANIFEST] = ManifestContent(manifest.content)
        yield manifest


def read_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Read a manifest's live entries. Each data file has the id of its first row, if the manifest list has ids."""
    live = [entry for entry in read_all_entries(io, manifest) if entry.status is not ManifestEntryStatus.DELETED]
    if manifest.content is ManifestContent.DATA:
        number_rows(live, manifest)
    return live


def read_all_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Read a manifest's entries, also those of files that its snapshot has deleted. They have no row ids."""
    file, size = io.new_input(manifest.manifest_path), manifest.manifest_length
    return [_inherit(entry, manifest) for entry in read_records(file, _find_entry_reader, size)]


def find_vector(file: ManifestDataFile) -> DeletionVector | None:
    """Return the deletion vector that an entry names, None if it names a whole file."""
    if file.file_format is not FileFormat.PUFFIN:
        return None
    return DeletionVector(file.file_path, *(file[index] for index in _OF_VECTOR))


def find_id(file: ManifestDataFile) -> FileId:
    """Return what tells the file of an entry from other files of the table."""
    return find_vector(file) or file.file_path


class ManifestWriter(ManifestWriterV2):
    """PyIceberg's manifest writer, with the Avro writer that all manifests of a partition type and version share.

    After an error in its context it is not closed. To close it would upload half a manifest, or replace the error by
    one that says that the manifest is empty.
    """

    def __init__(
        self, spec: PartitionSpec, schema: Schema, file: OutputFile, snapshot_id: int, version: TableVersion = 2
    ) -> None:
        super().__init__(spec, schema, file, snapshot_id, AVRO_COMPRESSION)
        self._written_version = version

    @property
    def version(self) -> TableVersion:
        """The format version of the table."""
        return self._written_version

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """Return the Avro writer of a new manifest."""
        schema = _of_manifests(_partition_type(self._spec, self._schema), self.version)
        return AvroFileWriter(self._output_file, schema, self._meta)

    def to_manifest_file(self) -> ManifestFile:
        """Return the manifest as a list of any version names it. Its rows have no ids yet."""
        manifest = super().to_manifest_file()
        partition_type = _partition_type(self._spec, self._schema)
        manifest[_OF_SUMMARIES] = correct_summaries(manifest.partitions or [], partition_type)
        return ManifestFile(*(manifest[position] for position in range(len(manifest))), None)

    def __exit__(self, *raised: Any) -> None:
        if not any(raised):
            super().__exit__(*raised)


class DeleteManifestWriter(ManifestWriter):
    """Writes a manifest that lists delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class ManifestListWriter(ManifestListWriterV2):
    """PyIceberg's manifest list writer, with the Avro writer that all of a version share. Not closed after an error.

    With a `next_row_id`, the list is of version 3, and gives ids to the rows that have none.
    """

    def __init__(
        self,
        file: OutputFile,
        snapshot_id: int,
        parent_snapshot_id: int | None,
        sequence_number: int,
        next_row_id: int | None = None,
    ) -> None:
        super().__init__(file, snapshot_id, parent_snapshot_id, sequence_number, AVRO_COMPRESSION)
        self.next_row_id = next_row_id
        if next_row_id is not None:
            self._meta = {**self._meta, "format-version": "3", "first-row-id": str(next_row_id)}

    def __enter__(self) -> Self:
        schema = _of_manifest_lists(2 if self.next_row_id is None else 3)
        self._writer = AvroFileWriter(self._output_file, schema, self._meta)
        self._writer.__enter__()
        return self

    def add_manifests(self, manifest_files: list[ManifestFile]) -> Self:
        """Write all manifests of a snapshot."""
        if self.next_row_id is not None:
            self.next_row_id = assign_row_ids(manifest_files, self.next_row_id)
        super().add_manifests(manifest_files)
        return self

    def __exit__(self, *raised: Any) -> None:
        if not any(raised):
            super().__exit__(*raised)


def copy_manifest(manifest: ManifestFile) -> ManifestFile:
    """Return a copy for a manifest list. Its writer sets sequence numbers and row ids in the objects that it gets."""
    return ManifestFile(*(manifest[index] for index in range(len(manifest))))


def complete_summaries(manifests: Sequence[ManifestFile], specs: Mapping[int, PartitionSpec]) -> None:
    """Give manifests without partition fields an empty list of their summaries, in place.

    Some engines leave it out, as the specification allows, and Redshift does not read such a manifest list.
    """
    for manifest in manifests:
        spec = specs.get(manifest.partition_spec_id)
        if manifest.partitions is None and spec is not None and not spec.fields:
            manifest[_OF_SUMMARIES] = []


def _partition_type(spec: PartitionSpec, schema: Schema) -> StructType:
    """Return the type of a spec's partitions, in which every value may be null, as Iceberg demands.

    PyIceberg would require the values of required columns. But `void` makes them null, and columns may change.
    """
    fields = spec.partition_type(schema).fields
    return StructType(*(NestedField(each.field_id, name_in_avro(each.name), each.field_type) for each in fields))


@lru_cache(SCHEMAS)
def _of_manifests(partition_type: StructType, version: TableVersion) -> AvroSchema:
    """Return the schema of manifests. PyIceberg would write the ids of equality deletes' columns as longs, which Java
    does not read."""
    fields = data_file_with_partition(partition_type, version).fields
    ids = {"field_type": _EQUALITY_IDS}
    fields = tuple(each.model_copy(update=ids) if each.name == "equality_ids" else each for each in fields)
    return AvroSchema.of(manifest_entry_schema_with_data_file(version, StructType(*fields)), "manifest_entry")


@cache
def _of_manifest_lists(version: TableVersion) -> AvroSchema:
    return AvroSchema.of(MANIFEST_LIST_FILE_SCHEMAS[version], "manifest_file")


@lru_cache(SCHEMAS)
def _find_entry_reader(avro_schema: str) -> Reader:
    return resolve_reader(
        AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema)),
        MANIFEST_ENTRY_SCHEMAS[NEWEST_VERSION],
        {-1: ManifestEntry, 2: ManifestDataFile},
        {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    )


@lru_cache(SCHEMAS)
def _find_list_reader(avro_schema: str) -> Reader:
    return resolve_reader(
        AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema)),
        MANIFEST_LIST_FILE_SCHEMAS[NEWEST_VERSION],
        {-1: ManifestFile, 508: PartitionFieldSummary},
        {517: ManifestContent},
    )


def _inherit(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    """Fill in what an entry has from its manifest, or from its format version."""
    # Files of version 1 have no numbers: they are as old as the table.
    if manifest.sequence_number == 0 or entry.status is ManifestEntryStatus.ADDED:
        if entry.sequence_number is None:
            entry.sequence_number = manifest.sequence_number
        if entry.file_sequence_number is None:
            entry.file_sequence_number = manifest.sequence_number
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    entry.data_file[_CONTENT_OF_FILE] = DataFileContent(entry.data_file.content)
    entry.data_file.spec_id = manifest.partition_spec_id
    return entry
