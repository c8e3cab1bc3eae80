"""Other engines: they append to the tables, rewrite, partition, expire and tag them, and make them anew."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    SetDefaultSpecUpdate,
)
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from connector.iceberg.metadata.manifests import ManifestListWriter
from simulation.checks import check_readable
from simulation.lake import Commit, Lake, Path
from simulation.partitions import COUNT, SPECS, record_of
from simulation.task import Row
from support.engines.snapshot_refs import set_ref

SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True))


class Engine:
    """Whoever else writes to the lake. It is never disturbed."""

    def __init__(self, lake: Lake, random: Random) -> None:
        self.rows: list[Row] = []
        self.removed: dict[str, bytes] = {}  # files that it has taken for orphans
        self._made: set[str] = set()  # UUIDs of its tables
        self._lake = lake
        self._random = random

    def append(self, path: Path) -> None:
        row = f"foreign-{next(self._lake.numbers)}"
        file = self._put(path, row.encode())
        self._commit(path, file, self._lake.manifests(path), Operation.APPEND)
        self.rows.append((path, self._lake.shown(path), row))

    def compact(self, path: Path) -> None:
        """Write rows of some manifests, or of all, into one file, in any order."""
        manifests, by_file = self._lake.manifests(path), self._lake.contents(path)
        data = [it for it in manifests if it.content is ManifestContent.DATA]
        rewritten = data if self._random.random() < 0.5 else [it for it in data if self._random.random() < 0.5]
        rows = [row for entry in self._lake.entries(rewritten) for row in by_file[entry.data_file.file_path]]
        if rows:
            self._random.shuffle(rows)
            keeps_deletes = len(rewritten) < len(data) or self._random.random() < 0.5
            kept = [it for it in manifests if it not in rewritten and (keeps_deletes or it in data)]
            # As if they were as old as what they come from: later deletes by value are to apply to them.
            age = self._lake.table(path).last_sequence_number if self._random.random() < 0.5 else None
            self._commit(path, self._put(path, "\n".join(rows).encode()), kept, Operation.REPLACE, age)

    def expire(self, path: Path) -> None:
        """Remove every snapshot but the current one."""
        metadata = self._lake.table(path)
        kept = {ref.snapshot_id for ref in metadata.refs.values()} | {metadata.current_snapshot_id}
        if expired := [it.snapshot_id for it in metadata.snapshots if it.snapshot_id not in kept]:
            self._lake.commit(Commit(path, (), (RemoveSnapshotsUpdate(snapshot_ids=expired),)))

    def tag(self, path: Path) -> None:
        """Move the metadata while main stands still."""
        if (current := self._lake.table(path).current_snapshot_id) is not None:
            name = f"tag-{next(self._lake.numbers)}"
            self._lake.commit(Commit(path, (), (set_ref(name, current, SnapshotRefType.TAG),)))

    def repartition(self, path: Path) -> None:
        """Change the spec of new files, while main stands still."""
        metadata = self._lake.table(path)
        columns = {field.field_id for field in metadata.schema().fields}
        others = [each for each in SPECS if each.spec_id != metadata.default_spec_id]
        possible = [each for each in others if {field.source_id for field in each.fields} <= columns]
        if not possible:
            return
        spec = self._random.choice(possible)
        known = any(each.spec_id == spec.spec_id for each in metadata.partition_specs)
        added = () if known else (AddPartitionSpecUpdate(spec=spec),)
        self._lake.commit(Commit(path, (), (*added, SetDefaultSpecUpdate(spec_id=spec.spec_id))))

    def upgrade(self, path: Path) -> None:
        """Give the table format version 3, while main stands still."""
        self._lake.upgrade(path)

    def replace(self, path: Path) -> None:
        """Drop the table and make another one of that name."""
        self._lake.drop(path)
        self._lake.create(path, SCHEMA, {})
        self._made.add(self._lake.uuid(path))

    def drop_from(self, paths: Iterable[Path]) -> None:
        """Drop those of these tables that `replace` has made."""
        for path in paths:
            if path in self._lake.tables and self._lake.uuid(path) in self._made:
                self._lake.drop(path)

    def remove(self, locations: Iterable[str]) -> None:
        """Delete those of these files to which no snapshot refers."""
        lake = self._lake
        live = {file.file_path for path in lake.tables for file in lake.referenced_files(path)}
        self.removed |= {it: lake.objects.pop(it) for it in locations if it in lake.objects and it not in live}

    def put_back(self) -> None:
        """By then no table may refer to them."""
        check_readable(self._lake)
        self._lake.objects.update(self.removed)
        self.removed.clear()

    def _put(self, path: Path, content: bytes) -> str:
        location = f"{self._lake.table(path).location}/foreign/{next(self._lake.numbers)}"
        self._lake.objects[location] = content
        return location

    def _commit(
        self, path: Path, file: str, kept: Sequence[ManifestFile], operation: Operation, age: int | None = None
    ) -> None:
        lake, metadata, number = self._lake, self._lake.table(path), next(self._lake.numbers)
        output = lake.reader.new_output(f"{file}-m0.avro")
        spec = metadata.spec()
        with write_manifest(2, spec, metadata.schema(), output, number, "null") as manifest:
            partition = record_of(spec.spec_id, self._random.randrange(COUNT))
            manifest.add_entry(_entry(file, lake.objects[file], age, spec.spec_id, partition))
        sequence_number, location = metadata.last_sequence_number + 1, f"{file}-list.avro"
        parent, output = metadata.current_snapshot_id, lake.reader.new_output(location)
        next_row_id = (metadata.next_row_id or 0) if isinstance(metadata, TableMetadataV3) else None
        with ManifestListWriter(output, number, parent, sequence_number, next_row_id) as manifests:
            added = manifest.to_manifest_file()
            manifests.add_manifests([ManifestFile(*(added[place] for place in range(len(added))), None), *kept])
        last = manifests.next_row_id
        snapshot = Snapshot(
            snapshot_id=number,
            parent_snapshot_id=parent,
            sequence_number=sequence_number,
            timestamp_ms=max(int(lake.now() * 1000), metadata.last_updated_ms + 1),
            manifest_list=location,
            summary=Summary(operation),
            schema_id=metadata.current_schema_id,
            first_row_id=next_row_id,
            added_rows=None if last is None or next_row_id is None else last - next_row_id,
        )
        updates = (AddSnapshotUpdate(snapshot=snapshot), set_ref(MAIN_BRANCH, number))
        lake.commit(Commit(path, (), updates))


def _entry(location: str, content: bytes, age: int | None, spec_id: int, partition: Record) -> ManifestEntry:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=len(content.split()),
        file_size_in_bytes=len(content),
    )
    file.spec_id = spec_id
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, sequence_number=age, data_file=file)
