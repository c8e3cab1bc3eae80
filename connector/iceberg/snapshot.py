"""Builds the snapshot that appends staged files: manifests, manifest list, summary."""

import time
import uuid
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import groupby
from typing import Any, Final

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.typedef import Record

from connector.file_lists import files_of
from connector.iceberg import fence
from connector.iceberg.file_names import file_prefix
from connector.state import ColumnStatistics, DataFile, Lineage, StagedCommit

AVRO_COMPRESSION: Final[AvroCompressionCodec] = "deflate"

SUMMARY_MATERIALIZATION: Final = "flow.materialization"
SUMMARY_STATE_KEY: Final = "flow.state-key"
SUMMARY_KEY_RANGE: Final = "flow.key-range"
SUMMARY_FENCE: Final = "flow.fence"


class SnapshotWriter:
    """Writes one append's metadata files. Manifests are written once and used by every attempt; the manifest list, which
    depends on what the table holds, is new for each."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().int >> 65  # a positive 63-bit number
        self._manifests: dict[tuple[str, ...], list[ManifestFile]] = {}

    def append(self, table: Table, staged: Sequence[StagedCommit]) -> Snapshot:
        """A snapshot on top of the table's current one."""
        prefix = _file_prefix(table, staged[0].lineage)
        return self._snapshot(table, prefix, self._manifests_of(table, prefix, staged), _appended(staged))

    def mark(self, table: Table, lineage: Lineage, summary: Mapping[str, str]) -> Snapshot:
        """A snapshot of what the table holds already: it moves main, and its summary says why."""
        return self._snapshot(table, _file_prefix(table, lineage), [], summary)

    def _snapshot(
        self, table: Table, prefix: str, added: Sequence[ManifestFile], summary: Mapping[str, str]
    ) -> Snapshot:
        metadata = table.metadata
        assert not isinstance(metadata, TableMetadataV1), "only tables of version 2 are bound"
        parent = metadata.current_snapshot()
        sequence_number = metadata.last_sequence_number + 1
        location = _metadata_location(table, f"snap-{self._id}-{prefix}-{uuid.uuid4()}.avro")
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=table.io.new_output(location),
            snapshot_id=self._id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=sequence_number,
            avro_compression=AVRO_COMPRESSION,
        ) as manifest_list:
            manifest_list.add_manifests([*added, *_manifests(table.io, parent)])
        return Snapshot(
            snapshot_id=self._id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=sequence_number,
            # Older than the metadata's own time, it would make the table unreadable to Java; and at that very time
            # PyIceberg takes the metadata for unchanged and dates it by this machine's clock, which may be behind.
            timestamp_ms=max(time.time_ns() // 1_000_000, metadata.last_updated_ms + 1),
            manifest_list=location,
            summary=_with_totals(summary, parent),
            schema_id=metadata.current_schema_id,
        )

    def _manifests_of(self, table: Table, prefix: str, staged: Sequence[StagedCommit]) -> list[ManifestFile]:
        # The prefix is part of the key: a manifest that is still to be committed never bears a value that has passed.
        key = (prefix, *(commit.next for commit in staged))
        if key not in self._manifests:
            by_spec = groupby(sorted(staged, key=lambda commit: commit.spec_id), key=lambda commit: commit.spec_id)
            self._manifests[key] = [
                self._write_manifest(table, prefix, spec_id, list(commits)) for spec_id, commits in by_spec
            ]
        # Writing a manifest list sets the sequence number in the very objects that it is given. A later attempt that
        # re-used them would commit the files under an old number, and other engines' deletes would then hide their rows.
        return deepcopy(self._manifests[key])

    def _write_manifest(self, table: Table, prefix: str, spec_id: int, staged: Sequence[StagedCommit]) -> ManifestFile:
        with write_manifest(
            format_version=table.metadata.format_version,
            spec=table.specs()[spec_id],
            schema=table.schemas().get(staged[-1].schema_id, table.schema()),
            output_file=table.io.new_output(_metadata_location(table, f"{prefix}-{uuid.uuid4()}-m0.avro")),
            snapshot_id=self._id,
            avro_compression=AVRO_COMPRESSION,
        ) as manifest:
            for commit in staged:
                for file in files_of(table.io, commit.files):
                    manifest.add_entry(_entry(file, spec_id))
        return manifest.to_manifest_file()


def _file_prefix(table: Table, lineage: Lineage) -> str:
    """The commit asserts the main branch that this value was read under: once the property has another one, the
    snapshot has landed or never will."""
    return file_prefix(lineage, str(table.metadata.table_uuid), fence.recorded(table.properties, lineage))


def _metadata_location(table: Table, name: str) -> str:
    return load_location_provider(table.location(), table.properties).new_metadata_location(name)


def _manifests(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """A snapshot's manifests, freshly read: PyIceberg's cache shares objects that writing a manifest list changes."""
    return list(read_manifest_list(io.new_input(snapshot.manifest_list))) if snapshot else []


def _entry(file: DataFile, spec_id: int) -> ManifestEntry:
    """An ADDED entry that inherits snapshot and sequence number from its manifest's place in the manifest list."""
    data_file = ManifestDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
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
        sequence_number=None,
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


def _appended(staged: Sequence[StagedCommit]) -> dict[str, str]:
    """For people, whose transaction this was. The fence itself is in the table's properties: summaries go when
    snapshots expire."""
    newest = staged[-1]
    return {
        "added-data-files": str(sum(commit.file_count for commit in staged)),
        "added-records": str(sum(commit.rows for commit in staged)),
        "added-files-size": str(sum(commit.size for commit in staged)),
        **lineage_summary(newest.lineage),
        SUMMARY_FENCE: newest.next,
        "flow.checkpoint": newest.checkpoint,
    }


def lineage_summary(lineage: Lineage) -> dict[str, str]:
    return {
        SUMMARY_MATERIALIZATION: lineage.materialization,
        SUMMARY_STATE_KEY: lineage.state_key,
        SUMMARY_KEY_RANGE: lineage.key_range,
    }


def _with_totals(summary: Mapping[str, str], parent: Snapshot | None) -> Summary:
    return update_snapshot_summaries(
        Summary(Operation.APPEND, **summary), parent.summary if parent and parent.summary else None
    )
