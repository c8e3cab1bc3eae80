"""The catalog and the object store as they truly are."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias
from uuid import UUID

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2, TableMetadataV3, new_table_metadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate, update_table_metadata

from connector.iceberg.metadata.manifests import find_vector, read_entries, read_manifest_list
from connector.iceberg.metadata.retention import MAX_AGE
from connector.model.invalid_values import REJECTED_SUFFIX
from connector.model.table_identifier import Generation
from simulation.compacting import EAGER
from simulation.files import position_deletes_in
from simulation.store import StoreIO, no_boundary
from simulation.vectors import find_problem, vectors_in

TABLE_DEFAULTS: Final = {
    "commit.manifest.min-count-to-merge": "3",  # a schedule makes few manifests
    MAX_AGE: "20000",  # milliseconds: some snapshots expire in most schedules
    **EAGER,
}

Path = tuple[str, str]
Metadata: TypeAlias = TableMetadataV2 | TableMetadataV3

_VECTOR: Final = "vector"  # in place of a partition: a vector names its data file itself


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
        self.now = now
        self.objects: dict[str, bytes] = {}
        self.reader = StoreIO(self.objects, no_boundary)
        self.added_at: dict[int, int] = {}  # sequence numbers by snapshot
        self.numbers = count(1)  # for whatever needs a new one
        self._tables: dict[Path, Metadata] = {}
        self._new_uuid = new_uuid
        self._shown: dict[str, str] = {}  # generations that are not those of their tables' creation, by table
        self._read: dict[str, Sequence[tuple[str, int]]] = {}  # position deletes, by their files

    @property
    def tables(self) -> Mapping[Path, Metadata]:
        return self._tables

    def table(self, path: Path) -> Metadata:
        if path not in self._tables:
            raise NoSuchTableError(f"there is no table {'.'.join(path)}")
        return self._tables[path]

    def uuid(self, path: Path) -> str:
        return str(self.table(path).table_uuid)

    def generation(self, path: Path, task: str) -> str:
        """The UUID under which the task stages rows for a table."""
        metadata = self.table(path)
        return Generation.of(str(metadata.table_uuid), metadata.properties, task).uuid

    def shown(self, path: Path) -> str:
        """The UUID of the generation that readers find. Between its two commits, a backfill has begun another."""
        uuid = self.uuid(path)
        return self._shown.get(uuid, uuid)

    def create(self, path: Path, schema: Schema, properties: Mapping[str, str], *, version_3: bool = False) -> Metadata:
        """A new table, in the directory where the one before it was, if there was one."""
        if path in self._tables:
            raise TableAlreadyExistsError(f"there is a table {'.'.join(path)}")
        metadata = new_table_metadata(
            schema,
            UNPARTITIONED_PARTITION_SPEC,
            UNSORTED_SORT_ORDER,
            f"memory:///{path[1]}",
            {**TABLE_DEFAULTS, **properties},
            self._new_uuid(),
        ).model_copy(update={"last_updated_ms": int(self.now() * 1000)})
        assert isinstance(metadata, TableMetadataV2)
        self._tables[path] = metadata
        if version_3:
            self.upgrade(path)
        return self._tables[path]

    def upgrade(self, path: Path) -> None:
        """Give the table format version 3. Its rows get their ids with the next snapshot."""
        metadata = self.table(path)
        if isinstance(metadata, TableMetadataV2):
            parts = {**dict(metadata), "format_version": 3, "next_row_id": 0}
            self._tables[path] = TableMetadataV3.model_construct(**parts)

    def drop(self, path: Path) -> None:
        self.table(path)
        del self._tables[path]

    def commit(self, commit: Commit) -> Metadata:
        """Apply it as any catalog does: PyIceberg's own metadata code, under the requirements."""
        base = self.table(commit.path)
        for requirement in commit.requirements:
            requirement.validate(base)
        added = [it.snapshot for it in commit.updates if isinstance(it, AddSnapshotUpdate)]
        if isinstance(base, TableMetadataV3) and any(snapshot.first_row_id is None for snapshot in added):
            raise CommitFailedException("409: the table was upgraded meanwhile")
        metadata = update_table_metadata(base, commit.updates)
        assert isinstance(metadata, TableMetadataV2 | TableMetadataV3)
        if len(metadata.snapshots) <= len(base.snapshots):  # without a snapshot, PyIceberg dates it by the machine
            now = max(int(self.now() * 1000), base.last_updated_ms)
            metadata = metadata.model_copy(update={"last_updated_ms": now})
        for snapshot in metadata.snapshots[len(base.snapshots) :]:
            if base.last_updated_ms == snapshot.timestamp_ms:  # PyIceberg takes the metadata for unchanged
                metadata = metadata.model_copy(update={"last_updated_ms": snapshot.timestamp_ms})
            self._check_added(commit.path, base, snapshot)
            if metadata.last_updated_ms < snapshot.timestamp_ms:
                raise BrokenPromiseError(
                    f"{commit.path[1]}: the metadata is older than the snapshot that it was made for"
                )
            self.added_at[snapshot.snapshot_id] = snapshot.sequence_number or 0
        self._tables[commit.path] = metadata
        recorded = Generation.recorded(metadata.properties)
        if recorded and not recorded.is_awaited and self.shown(commit.path) != recorded.uuid:
            self._shown[str(metadata.table_uuid)] = recorded.uuid
            self._check_begun(commit.path)
        return metadata

    def _check_begun(self, path: Path) -> None:
        """A backfill removes rows in the commit that adds others. Only rejected rows go with apply."""
        files = (entry.data_file.content for entry in self.entries(self.manifests(path)))
        if not path[1].endswith(REJECTED_SUFFIX) and DataFileContent.DATA not in files:
            raise BrokenPromiseError(f"{path[1]}: a backfill has removed all rows, and added none")

    def _check_added(self, path: Path, base: Metadata, snapshot: Snapshot) -> None:
        if base.snapshot_log and snapshot.timestamp_ms < base.snapshot_log[-1].timestamp_ms:
            raise BrokenPromiseError(f"{path[1]}: a snapshot is older than the one before it")
        if (snapshot.sequence_number or 0) <= base.last_sequence_number:
            raise BrokenPromiseError(f"{path[1]}: a snapshot's sequence number is not the next one")
        if isinstance(base, TableMetadataV3):
            live = list(self.entries(self.manifests(path, snapshot)))
            if problem := find_problem(snapshot.snapshot_id, live):
                raise BrokenPromiseError(f"{path[1]}: {problem}")

    def rows(self, path: Path) -> Counter[str]:
        """Every row that a reader of the current snapshot sees, found by walking its manifests."""
        rows: Counter[str] = Counter()
        for of_file in self.contents(path).values():
            rows.update(of_file)
        return rows

    def contents(self, path: Path, snapshot: Snapshot | None = None) -> dict[str, list[str]]:
        """The rows in each data file of a snapshot that no position delete hides."""
        entries = list(self.entries(self.manifests(path, snapshot)))
        deleted = self._deleted(entry for entry in entries if entry.data_file.content is not DataFileContent.DATA)
        rows: dict[str, list[str]] = {}
        for entry in entries:
            file = entry.data_file
            if file.content is DataFileContent.DATA:
                of_file = enumerate(self.content(file.file_path).decode().split())
                by_vector = deleted.get((_VECTOR, file.file_path))
                newest = deleted.get((_partition(file), file.file_path), {}) if by_vector is None else by_vector
                rows.setdefault(file.file_path, []).extend(
                    row for position, row in of_file if newest.get(position, -1) < (entry.sequence_number or 0)
                )
        return rows

    def _deleted(self, entries: Iterable[ManifestEntry]) -> dict[tuple[str, str], dict[int, int]]:
        """The sequence number of the newest delete, by data file with its partition, and position."""
        deleted: dict[tuple[str, str], dict[int, int]] = {}
        for entry in entries:
            vector = find_vector(entry.data_file)
            for file, position in self._positions(entry.data_file.file_path):
                if vector and vector.data_path != file:  # another vector of the same Puffin file
                    continue
                of_file = deleted.setdefault((_VECTOR if vector else _partition(entry.data_file), file), {})
                of_file[position] = max(of_file.get(position, -1), entry.sequence_number or 0)
        return deleted

    def _positions(self, location: str) -> Sequence[tuple[str, int]]:
        content = self.content(location)
        if location not in self._read:
            read = vectors_in if location.endswith(".puffin") else position_deletes_in
            self._read[location] = read(content)
        return self._read[location]

    def referenced_files(self, path: Path) -> Iterator[DataFile]:
        """Of every snapshot."""
        every = (it for snapshot in self.table(path).snapshots for it in self.manifests(path, snapshot))
        return (entry.data_file for entry in self.entries(dict.fromkeys(every)))

    def entries(self, manifests: Iterable[ManifestFile]) -> Iterator[ManifestEntry]:
        for manifest in manifests:
            self.content(manifest.manifest_path)
            yield from read_entries(self.reader, manifest)

    def manifests(self, path: Path, snapshot: Snapshot | None = None) -> list[ManifestFile]:
        snapshot = snapshot or self.table(path).current_snapshot()
        if snapshot is None:
            return []
        self.content(snapshot.manifest_list)
        return list(read_manifest_list(self.reader.new_input(snapshot.manifest_list)))

    def content(self, location: str) -> bytes:
        if location not in self.objects:
            raise BrokenPromiseError(f"{location} is part of a table, and gone")
        return self.objects[location]


def _partition(file: DataFile) -> str:
    """The spec and the values: a delete file only applies to data files of the same."""
    return f"{file.spec_id} {file.partition}"
