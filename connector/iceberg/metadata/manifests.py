"""Reads manifests, writes them for new files, and merges small ones, so that a table's manifest list stays short.

The table's properties say when to merge. They have the names and defaults of Iceberg's Java library.
"""

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from pyiceberg.exceptions import ValidationError as InvalidMetadataError
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
from pyiceberg.utils.properties import property_as_bool, property_as_int

from connector.encoding.live_rows.deletion_vectors import FileId
from connector.host.signals import map_in_threads
from connector.iceberg.metadata.avro_files import (
    AVRO_COMPRESSION,
    DeleteManifestWriter,
    ManifestWriter,
    copy_manifest,
    read_entries,
    read_manifest_list,
)
from connector.iceberg.metadata.partitions import Partition, find_source_schema
from connector.iceberg.metadata.row_lineage import NEWEST_VERSION, ManifestKey, find_manifest_key
from connector.iceberg.metadata.vector_entries import find_id
from connector.iceberg.metadata.written_snapshots import KEPT_BYTES
from connector.model.state import ColumnStatistics, DataFile
from connector.storage.file_io import WrittenFile

log = logging.getLogger(__name__)

READS_AT_ONCE: Final = 8


class ManifestFactory:
    """Writes manifests of one snapshot, for a table as it was loaded. Names of their files begin with the prefix."""

    def __init__(self, table: Table, prefix: str, snapshot_id: int, small: dict[str, WrittenFile]) -> None:
        """`small` gets the manifests that are small, by their locations."""
        self.table = table
        self.prefix = prefix
        self._snapshot_id = snapshot_id
        self._small = small

    def write_added(
        self,
        spec_id: int,
        entries: Iterable[ManifestEntry],
        schema_id: int | None = None,
        content: ManifestContent = ManifestContent.DATA,
    ) -> ManifestFile:
        """Write a manifest of new files. `schema_id` is the schema of their columns, by default the current one."""
        file = self._new_file()
        with self._open(file, spec_id, content, schema_id) as manifest:
            for entry in entries:
                manifest.add_entry(entry)
        self._keep_if_small(file)
        return manifest.to_manifest_file()

    def write_existing(
        self,
        spec_id: int,
        entries: Iterable[ManifestEntry],
        content: ManifestContent,
        gone: Collection[FileId] = (),
        added: Iterable[ManifestEntry] = (),
    ) -> ManifestFile:
        """Write a manifest of files that the table has already, and of new ones. Those in `gone` are named as deleted.

        Each keeps its snapshot and its sequence numbers. They decide which deletes apply to it.
        """
        file = self._new_file()
        with self._open(file, spec_id, content) as manifest:
            for entry in entries:
                (manifest.delete if find_id(entry.data_file) in gone else manifest.existing)(entry)
            for entry in added:
                manifest.add_entry(entry)
        self._keep_if_small(file)
        return manifest.to_manifest_file()

    def rewrite_without(self, manifest: ManifestFile, gone: Collection[FileId]) -> ManifestFile:
        """Write the manifest again, with these files as deleted. If it lists none of them, return it."""
        entries = read_entries(self.table.io, manifest)
        if not any(find_id(entry.data_file) in gone for entry in entries):
            return manifest
        return self.write_existing(manifest.partition_spec_id, entries, manifest.content, gone)

    def _new_file(self) -> WrittenFile:
        return WrittenFile(self.table.io, metadata_location(self.table, f"{self.prefix}-{uuid.uuid4()}-m0.avro"))

    def _open(
        self, file: WrittenFile, spec_id: int, content: ManifestContent, schema_id: int | None = None
    ) -> ManifestWriter:
        table = self.table
        spec, schema = table.specs()[spec_id], table.schema()
        if schema_id is not None:
            schema = table.schemas().get(schema_id, schema)
        kind = ManifestWriter if content is ManifestContent.DATA else DeleteManifestWriter
        return kind(
            spec=spec,
            schema=find_source_schema(table, spec, schema) if spec.fields else schema,
            output_file=file,
            snapshot_id=self._snapshot_id,
            avro_compression=AVRO_COMPRESSION,
            version=table.metadata.format_version,
        )

    def _keep_if_small(self, file: WrittenFile) -> None:
        if len(file) <= KEPT_BYTES:
            self._small[file.location] = file


def metadata_location(table: Table, name: str) -> str:
    """Return the location of a metadata file with this name."""
    return load_location_provider(table.location(), table.properties).new_metadata_location(name)


def manifests_of(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Read a snapshot's manifests, without PyIceberg's cache: writing a manifest list changes its shared objects.

    InvalidMetadataError if the list is damaged, or is empty although the snapshot's summary counts data files: a list
    that is cut short behind its header looks like an empty one.
    """
    if snapshot is None:
        return []
    manifests = list(read_manifest_list(io.new_input(snapshot.manifest_list)))
    if not manifests and (files := _count_data_files(snapshot)):
        raise InvalidMetadataError(f"{snapshot.manifest_list} is damaged: it lists none of {files} data files")
    return manifests


def _count_data_files(snapshot: Snapshot) -> int:
    """Return the number of a snapshot's data files by its summary. 0 if it does not say: not every engine does."""
    total = snapshot.summary and snapshot.summary.additional_properties.get("total-data-files")
    return int(total) if total and total.isdecimal() else 0


def kind_of(manifest: ManifestFile) -> tuple[int, ManifestContent]:
    """Return the partition spec and the content of a manifest. Only manifests of one kind can become one."""
    return manifest.partition_spec_id, manifest.content


def make_added_entry(
    file: DataFile,
    partition: Partition,
    sequence_number: int | None = None,
    content: DataFileContent = DataFileContent.DATA,
    sort_order_id: int = 0,
) -> ManifestEntry:
    """Return an ADDED entry. Without a sequence number it inherits one from the manifest list. Sort order 0 means no
    order."""
    data_file = ManifestDataFile.from_args(
        NEWEST_VERSION,
        content=content,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=partition.record,
        record_count=file.rows,
        file_size_in_bytes=file.size,
        split_offsets=list(file.splits),
        sort_order_id=sort_order_id or None,
        equality_ids=None,
        key_metadata=None,
        **_statistics(file.columns),
    )
    data_file.spec_id = partition.spec_id
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


@dataclass(frozen=True)
class Thresholds:
    """How many small manifests are too many, and up to how many bytes a manifest is small."""

    count: int = 100
    size: int = 8 << 20
    few: int = 0  # files; a manifest that lists so few is merged with any others

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Thresholds | None":
        """Read a table's properties. None if it wants no merging; ValueError if they are invalid."""
        found = dict(properties)
        if not property_as_bool(found, "commit.manifest-merge.enabled", True):
            return None
        count = property_as_int(found, "commit.manifest.min-count-to-merge", cls.count)
        size = property_as_int(found, "commit.manifest.target-size-bytes", cls.size)
        assert count is not None
        assert size is not None
        return cls(count, size)


def find_mergeable(manifests: Sequence[ManifestFile], added: int, thresholds: Thresholds) -> list[ManifestFile]:
    """Return the manifests of one partition spec that are to be merged, now that `added` more come.

    Unless it lists few files, a manifest is merged only with others that together list at least as many as it does. So
    an entry is rewritten each time the number of files doubles, not with every merge.
    """
    chosen: list[ManifestFile] = []
    files = size = 0
    small = [manifest for manifest in manifests if manifest.manifest_length < thresholds.size]
    for manifest in sorted(small, key=_file_count):
        if files and _file_count(manifest) > max(files, thresholds.few):
            break
        size += manifest.manifest_length
        if size > thresholds.size:
            return chosen if len(chosen) > 1 else []
        chosen.append(manifest)
        files += _file_count(manifest)
    return chosen if len(chosen) > 1 and len(chosen) + added >= thresholds.count else []


class ManifestMerger:
    """Merges manifests for one snapshot.

    A later attempt uses the merged manifest only if the table still has the same manifests. Another writer may have
    deleted some of their files.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[str, tuple[ManifestKey, ...]], list[ManifestFile]] = {}

    def merge(
        self, factory: ManifestFactory, existing: Sequence[ManifestFile], added: Sequence[ManifestFile]
    ) -> list[ManifestFile]:
        """Return the table's manifests; fewer of them if there are too many of a kind and spec that is added to."""
        try:
            thresholds = Thresholds.of(factory.table.properties)
            if thresholds is None:
                return list(existing)
            for kind in set(map(kind_of, added)):
                more = [manifest for manifest in added if kind_of(manifest) == kind]
                of_kind = [manifest for manifest in existing if kind_of(manifest) == kind]
                chosen = find_mergeable(of_kind, len(more), thresholds)
                if chosen:
                    kept = [manifest for manifest in existing if manifest not in chosen]
                    existing = [*self.write_merged(factory, chosen), *kept]
        except Exception as error:  # noqa: BLE001 - merging helps later commits; it must not stop this one
            name = ".".join(factory.table.name())
            log.warning("table %s: its small manifests stay: %s: %s", name, type(error).__name__, error)
        return list(existing)

    def write_merged(self, factory: ManifestFactory, chosen: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Write manifests of one kind and spec as one, and return it. If they list no files, return none."""
        # The prefix is part of the key: a manifest that is still to be committed must not be named by a passed value.
        key = factory.prefix, tuple(map(find_manifest_key, chosen))
        if key not in self._written:
            self._written[key] = self._write(factory, chosen)
        return list(map(copy_manifest, self._written[key]))

    def _write(self, factory: ManifestFactory, chosen: Sequence[ManifestFile]) -> list[ManifestFile]:
        entries = _live_entries(factory.table.io, chosen)
        first = next(entries, None)
        if first is None:
            return []
        spec_id, content = chosen[0].partition_spec_id, chosen[0].content
        return [factory.write_existing(spec_id, chain([first], entries), content)]


def _file_count(manifest: ManifestFile) -> int:
    """Return the number of files that the manifest lists, without deleted ones."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _live_entries(io: FileIO, manifests: Sequence[ManifestFile]) -> Iterator[ManifestEntry]:
    def live(manifest: ManifestFile) -> list[ManifestEntry]:
        return read_entries(io, manifest)

    for first in range(0, len(manifests), READS_AT_ONCE):
        for entries in map_in_threads(live, manifests[first : first + READS_AT_ONCE], READS_AT_ONCE, "merge"):
            yield from entries
