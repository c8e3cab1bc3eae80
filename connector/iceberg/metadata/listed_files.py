"""The files that a table's manifests list: what is needed to find rows in them, and to delete these rows.

`ManifestCache` is what a session remembers of manifests.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from connector.encoding.live_rows.deletion_vectors import DeletionVector, FileId
from connector.encoding.live_rows.position_deletes import PATH_ID
from connector.encoding.live_rows.source_rows import RowLineage, SourceFile
from connector.encoding.search.key_bounds import ColumnBounds, KeyTypes, KeyValues, find_files, make_bounds_table
from connector.encoding.values.arrays import Mask
from connector.host.errors import UserError
from connector.host.groups import divide, group_by
from connector.host.threads import map_in_threads
from connector.iceberg.metadata.manifests import find_vector, manifests_of, read_entries
from connector.iceberg.metadata.partitions import Partition
from connector.iceberg.metadata.row_lineage import ManifestKey, find_manifest_key, first_row_id_of
from connector.iceberg.metadata.snapshot_manifests import WrittenSnapshots
from connector.model.table_identifier import TableIdentifier
from connector.storage.store_kinds import store_of

_Parsed: TypeAlias = Mapping[ManifestKey, "_ParsedManifest"]

_READ_TOGETHER: Final = 8 << 20  # bytes of manifests


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A data file or a delete file of the current snapshot, as its manifest lists it."""

    path: str  # exactly as the manifest has it
    manifest: str  # its location
    content: DataFileContent
    format: FileFormat
    rows: int
    size: int  # bytes; of a deletion vector, its own in the Puffin file
    row_groups: int  # 0: the manifest does not say
    partition: Partition
    sequence_number: int  # of its rows: deletes with a lower one do not apply to them
    file_sequence_number: int  # of the snapshot that added the file, or of a later one if the manifest does not say
    bounds: tuple[bytes, bytes] | None  # of a position delete file: the paths that it may name, both included
    vector: DeletionVector | None = None
    first_row_id: int | None = None  # None: its rows have no ids
    sort_order_id: int | None = None  # of its rows; None: not known

    @classmethod
    def of(cls, manifest: ManifestFile, entry: ManifestEntry) -> "ListedFile":
        file, vector = entry.data_file, find_vector(entry.data_file)
        assert entry.sequence_number is not None, "the manifest's reader fills it in"
        # Old writers leave it out of entries that they write to another manifest. The file is not newer than that.
        added = manifest.sequence_number if entry.file_sequence_number is None else entry.file_sequence_number
        return cls(
            path=file.file_path,
            manifest=manifest.manifest_path,
            content=file.content,
            format=file.file_format,
            rows=file.record_count,
            size=vector.size if vector else file.file_size_in_bytes,
            row_groups=len(file.split_offsets or ()),
            partition=Partition.of(int(file.spec_id), file.partition),
            sequence_number=entry.sequence_number,
            file_sequence_number=added,
            bounds=_path_bounds(file) if file.content is DataFileContent.POSITION_DELETES else None,
            vector=vector,
            first_row_id=first_row_id_of(file),
            sort_order_id=file.sort_order_id,
        )

    @property
    def id(self) -> FileId:
        """What tells the file from others of the table."""
        return self.vector or self.path

    @property
    def is_data(self) -> bool:
        """Whether the file has rows, and no deletes."""
        return self.content is DataFileContent.DATA

    @property
    def is_readable(self) -> bool:
        """Whether the connector can read the file: it is a Parquet file, or a deletion vector."""
        return self.format is FileFormat.PARQUET or self.vector is not None

    @property
    def data_path(self) -> str | None:
        """The only data file of a position delete file. None if there may be several."""
        if self.vector:
            return self.vector.data_path
        return self.bounds[0].decode() if self.bounds and self.bounds[0] == self.bounds[1] else None

    @property
    def lineage(self) -> RowLineage:
        """What the file's rows inherit."""
        return RowLineage(self.first_row_id, self.sequence_number)

    def as_source(self, deletes: Iterable["ListedFile"]) -> SourceFile:
        """Return the data file, for tasks that write its rows again. `deletes` are the files that delete some."""
        applied = sorted(deletes, key=attrgetter("path"))
        return SourceFile(self.path, self.size, tuple(delete.id for delete in applied), self.lineage)

    def applies_to(self, data: "ListedFile") -> bool:
        """Whether a delete file that names this data file applies to it: its rows must not be newer, and both files
        must be of the same partition."""
        return self.sequence_number >= data.sequence_number and self.partition == data.partition


def check_stores(table: Table, files: Iterable[ListedFile]) -> None:
    """Raise UserError if a file is in another kind of store than its table.

    Otherwise who may change a table in a bucket would choose files of this machine, and their rows would be copied into
    the table.
    """
    kind, _ = store_of(table.location())
    for file in files:
        if store_of(file.path)[0] != kind:
            raise UserError(
                f"table {TableIdentifier.of(table)}: {file.path} is in another kind of store than {table.location()}, "
                "where the table is. The connector does not read such files. Remove the file from the table, or have "
                "the table's files rewritten (in Spark: CALL system.rewrite_data_files)."
            )


def _path_bounds(file: ManifestDataFile) -> tuple[bytes, bytes] | None:
    lower, upper = (bounds and bounds.get(PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    return (lower, upper) if lower and upper else None


@dataclass(frozen=True)
class _ParsedManifest:
    """What a manifest lists."""

    files: tuple[ListedFile, ...]
    key_columns: KeyTypes
    bounds: pa.Table  # of the key columns, with a row for each file

    @classmethod
    def of(cls, manifest: ManifestFile, entries: Sequence[ManifestEntry], key_columns: KeyTypes) -> "_ParsedManifest":
        bounds = make_bounds_table(key_columns, [_bounds_by_column(entry.data_file, key_columns) for entry in entries])
        return cls(tuple(ListedFile.of(manifest, entry) for entry in entries), key_columns, bounds)


def _bounds_by_column(file: ManifestDataFile, key_columns: KeyTypes) -> dict[int, ColumnBounds]:
    lower, upper, nulls = file.lower_bounds or {}, file.upper_bounds or {}, file.null_value_counts or {}
    return {number: (lower.get(number), upper.get(number), nulls.get(number)) for number in key_columns}


class ManifestCache:
    """Lists the live files of tables. It remembers the manifests of each table's newest snapshot, which never change.
    Of a table whose keys are searched, it also remembers the bounds of the key columns.

    It reads from memory what is in `written`, to which writers of snapshots add.
    """

    def __init__(self) -> None:
        self.written = WrittenSnapshots()
        self._parsed: dict[UUID, _Parsed] = {}
        self._key_columns: dict[UUID, KeyTypes] = {}

    def list_files(self, table: Table) -> list[ListedFile]:
        """Return all live files of the current snapshot, in the order of its manifests. UserError if one of them is not
        to be read."""
        return [*chain.from_iterable(manifest.files for manifest in self._list_manifests(table))]

    def find_files(self, table: Table, keys: KeyValues) -> tuple[list[ListedFile], Mask]:
        """Return all live files, and which of them may have one of the keys. UserError as in `list_files`."""
        self._key_columns[table.metadata.table_uuid] = keys.columns
        manifests = self._list_manifests(table)
        files = [*chain.from_iterable(manifest.files for manifest in manifests)]
        if not files:
            return [], np.empty(0, np.bool_)
        return files, find_files(pa.concat_tables([manifest.bounds for manifest in manifests]), keys)

    def _list_manifests(self, table: Table) -> Collection[_ParsedManifest]:
        parsed = self._read(self.written.with_memory(table), table.current_snapshot())
        # Replaced as a whole: another thread may list the files of the same table.
        self._parsed[table.metadata.table_uuid] = parsed
        return parsed.values()

    def _read(self, table: Table, snapshot: Snapshot | None) -> _Parsed:
        """Return the files of each manifest of a snapshot, in order. Remembered manifests are not read again, unless
        other key columns are searched now."""
        uuid = table.metadata.table_uuid
        known, key_columns = self._parsed.get(uuid, {}), self._key_columns.get(uuid, {})
        manifests = {find_manifest_key(manifest): manifest for manifest in manifests_of(table, snapshot)}

        def parse(manifest: ManifestFile) -> _ParsedManifest:
            found = _ParsedManifest.of(manifest, read_entries(table.io, manifest), key_columns)
            check_stores(table, found.files)
            return found

        new = [key for key in manifests if key not in known or known[key].key_columns != key_columns]
        # The interpreter decodes one at a time anyway, and large ones take much memory.
        parts = divide((manifests[key] for key in new), _READ_TOGETHER, attrgetter("manifest_length"))
        parsed = chain.from_iterable(map_in_threads(parse, part, "view") for part in parts)
        files = {**known, **dict(zip(new, parsed, strict=True))}
        return {key: files[key] for key in manifests}


class PositionDeletes:
    """Position delete files and deletion vectors, by the data files to which they may apply.

    A delete file is file-scoped if it names one data file, or else partition-scoped. A vector says all deleted rows of
    its data file. Position delete files no longer apply to the file.
    """

    def __init__(self, files: Iterable[ListedFile]) -> None:
        self.file_scoped: dict[str, list[ListedFile]] = {}  # by data file
        self.partition_scoped: list[ListedFile] = []
        for file in files:
            if file.content is DataFileContent.POSITION_DELETES:
                target = file.data_path
                (self.partition_scoped if target is None else self.file_scoped.setdefault(target, [])).append(file)

    def find_all(self, files: Iterable[ListedFile]) -> dict[str, list[ListedFile]]:
        """Return the delete files that may apply to each of these data files, by its path.

        A large table has many of both, so they are not all compared with each other.
        """
        files = sorted(files, key=attrgetter("path"))
        by_partition = group_by(files, attrgetter("partition"))
        found = {
            file.path: self._find_vectors(file)
            or [each for each in self.file_scoped.get(file.path, ()) if each.applies_to(file)]
            for file in files
        }
        paths = {partition: [file.path.encode() for file in data] for partition, data in by_partition.items()}
        for delete in self.partition_scoped:
            begin, end = find_range(paths.get(delete.partition, ()), delete)
            for file in by_partition.get(delete.partition, ())[begin:end]:
                if delete.applies_to(file) and not (found[file.path] and found[file.path][0].vector):
                    found[file.path].append(delete)
        return found

    def has_vector(self, data: ListedFile) -> bool:
        """Whether a deletion vector applies to a data file."""
        return bool(self._find_vectors(data))

    def _find_vectors(self, data: ListedFile) -> list[ListedFile]:
        return [file for file in self.file_scoped.get(data.path, ()) if file.vector and file.applies_to(data)]


class EqualityDeletes:
    """Equality delete files, by their partition specs and partitions. Streaming writers leave thousands of them."""

    def __init__(self, files: Iterable[ListedFile]) -> None:
        self._newest_of_spec: dict[int, int] = {}  # the highest sequence number
        self._newest_of_partition: dict[Partition, int] = {}
        for file in files:
            if file.content is DataFileContent.EQUALITY_DELETES:
                spec, partition, number = file.partition.spec_id, file.partition, file.sequence_number
                self._newest_of_spec[spec] = max(number, self._newest_of_spec.get(spec, 0))
                self._newest_of_partition[partition] = max(number, self._newest_of_partition.get(partition, 0))

    def may_apply_to(self, data: ListedFile) -> bool:
        """Whether one of the files may delete rows of a data file. It must be newer, and of the same partition. If its
        spec is another one, it counts as if it were of the same partition."""
        spec_id = data.partition.spec_id
        other_specs = max((number for spec, number in self._newest_of_spec.items() if spec != spec_id), default=0)
        return max(other_specs, self._newest_of_partition.get(data.partition, 0)) > data.sequence_number


def find_range(paths: Sequence[bytes], delete: ListedFile) -> tuple[int, int]:
    """Return where the data files begin and end that a delete file may name. `paths` are in order."""
    if delete.bounds is None:
        return 0, len(paths)
    return bisect_left(paths, delete.bounds[0]), bisect_right(paths, delete.bounds[1])
