"""The catalog and the object store as they truly are, and the other engines that write to them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final
from uuid import UUID

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from simulation.store import StoreIO, no_boundary

Path = tuple[str, str]

SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True))


class BrokenPromiseError(Exception):
    """A promise that was broken."""


@dataclass(frozen=True)
class Commit:
    """A request to commit, which may arrive late or twice."""

    path: Path
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


class Lake:
    """What is durable. `now` is the catalog's clock, in seconds; `new_uuid` names its tables."""

    def __init__(self, now: Callable[[], float], new_uuid: Callable[[], UUID]) -> None:
        self.objects: dict[str, bytes] = {}
        self.tables: dict[Path, TableMetadataV2] = {}
        self.added_at: dict[int, int] = {}  # sequence numbers by snapshot
        self._now, self._new_uuid = now, new_uuid
        self._numbers = count(1)

    def create(self, path: Path) -> None:
        """Create a table, or replace it by a new one of the same name."""
        location = f"memory:///{path[1]}-{next(self._numbers)}"
        metadata = new_table_metadata(
            SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location, table_uuid=self._new_uuid()
        ).model_copy(update={"last_updated_ms": int(self._now() * 1000)})
        assert isinstance(metadata, TableMetadataV2)
        self.tables[path] = metadata

    def uuid(self, path: Path) -> str:
        return str(self.tables[path].table_uuid)

    def commit(self, commit: Commit) -> TableMetadataV2:
        """Apply it as any catalog does: PyIceberg's own metadata code, under the requirements."""
        base = self.tables[commit.path]
        for requirement in commit.requirements:
            requirement.validate(base)
        metadata = update_table_metadata(base, commit.updates)
        assert isinstance(metadata, TableMetadataV2)
        if len(metadata.snapshots) <= len(base.snapshots):  # another engine's; PyIceberg does not know its time
            now = max(int(self._now() * 1000), base.last_updated_ms)
            metadata = metadata.model_copy(update={"last_updated_ms": now})
        for snapshot in metadata.snapshots[len(base.snapshots) :]:
            self._check_added(commit.path, base, snapshot)
            if metadata.last_updated_ms < snapshot.timestamp_ms:
                raise BrokenPromiseError(
                    f"{commit.path[1]}: the metadata is older than the snapshot that it was made for"
                )
            self.added_at[snapshot.snapshot_id] = snapshot.sequence_number or 0
        self.tables[commit.path] = metadata
        return metadata

    def _check_added(self, path: Path, base: TableMetadataV2, snapshot: Snapshot) -> None:
        if base.snapshot_log and snapshot.timestamp_ms < base.snapshot_log[-1].timestamp_ms:
            raise BrokenPromiseError(f"{path[1]}: a snapshot is older than the one before it")
        if (snapshot.sequence_number or 0) <= base.last_sequence_number:
            raise BrokenPromiseError(f"{path[1]}: a snapshot's sequence number is not the next one")

    def rows(self, path: Path) -> Counter[str]:
        """Every row that a reader of the current snapshot sees, found by walking its manifests."""
        rows: Counter[str] = Counter()
        for _, file in self.live_files(path):
            rows.update(self._object(file.file_path).decode().split())
        return rows

    def live_files(self, path: Path) -> Iterator[tuple[ManifestFile, DataFile]]:
        reader = StoreIO(self.objects, no_boundary)
        for manifest in self.manifests(path):
            self._object(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(reader):
                yield manifest, entry.data_file

    def manifests(self, path: Path) -> list[ManifestFile]:
        snapshot = self.tables[path].current_snapshot()
        if snapshot is None:
            return []
        self._object(snapshot.manifest_list)
        return list(read_manifest_list(StoreIO(self.objects, no_boundary).new_input(snapshot.manifest_list)))

    def _object(self, location: str) -> bytes:
        if location not in self.objects:
            raise BrokenPromiseError(f"{location} is part of a table, and gone")
        return self.objects[location]

    def append(self, path: Path) -> str:
        """Another engine adds a row of its own; returns it."""
        row = f"foreign-{next(self._numbers)}"
        file = self._put(path, row.encode())
        self._foreign_snapshot(path, file, self.manifests(path), Operation.APPEND)
        return row

    def compact(self, path: Path) -> None:
        """Another engine writes all rows into one file."""
        contents = [self._object(file.file_path) for _, file in self.live_files(path)]
        if contents:
            self._foreign_snapshot(path, self._put(path, b"\n".join(contents)), [], Operation.REPLACE)

    def expire(self, path: Path) -> None:
        """Another engine removes every snapshot but the current one."""
        metadata = self.tables[path]
        ids = [it.snapshot_id for it in metadata.snapshots if it.snapshot_id != metadata.current_snapshot_id]
        tagged = {ref.snapshot_id for ref in metadata.refs.values()}
        if expired := [snapshot_id for snapshot_id in ids if snapshot_id not in tagged]:
            self.commit(Commit(path, (), (RemoveSnapshotsUpdate(snapshot_ids=expired),)))

    def tag(self, path: Path) -> None:
        """Another engine moves the metadata while main stands still."""
        if (current := self.tables[path].current_snapshot_id) is not None:
            self.commit(Commit(path, (), (_ref(f"tag-{next(self._numbers)}", SnapshotRefType.TAG, current),)))

    def _put(self, path: Path, content: bytes) -> str:
        location = f"{self.tables[path].location}/foreign/{next(self._numbers)}"
        self.objects[location] = content
        return location

    def _foreign_snapshot(self, path: Path, file: str, kept: Sequence[ManifestFile], operation: Operation) -> None:
        metadata, number = self.tables[path], next(self._numbers)
        store = StoreIO(self.objects, no_boundary)
        with write_manifest(
            2, metadata.spec(), metadata.schema(), store.new_output(f"{file}-m0.avro"), number, "null"
        ) as manifest:
            manifest.add_entry(_entry(file, self.objects[file]))
        sequence_number, location = metadata.last_sequence_number + 1, f"{file}-list.avro"
        parent = metadata.current_snapshot_id
        with write_manifest_list(2, store.new_output(location), number, parent, sequence_number, "null") as manifests:
            manifests.add_manifests([manifest.to_manifest_file(), *kept])
        snapshot = Snapshot(
            snapshot_id=number,
            parent_snapshot_id=parent,
            sequence_number=sequence_number,
            timestamp_ms=max(int(self._now() * 1000), metadata.last_updated_ms + 1),
            manifest_list=location,
            summary=Summary(operation),
            schema_id=metadata.current_schema_id,
        )
        updates = (AddSnapshotUpdate(snapshot=snapshot), _ref(MAIN_BRANCH, SnapshotRefType.BRANCH, number))
        self.commit(Commit(path, (), updates))


def _ref(name: str, kind: SnapshotRefType, snapshot_id: int) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def _entry(location: str, content: bytes) -> ManifestEntry:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(content.split()),
        file_size_in_bytes=len(content),
    )
    file.spec_id = 0
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file)
