"""Decides what a compaction's commit changes in a table as it is now: files out, files in, and deletes carried over.

A group's new files must get exactly the rows that its sources have now. Rows that were deleted while the files were
written are deleted in the new files by the same commit. So are the rows of a source that is gone: a transaction drops a
file without rows, and another engine may have moved the rows to other files. A row that the new files do not have must
still be deleted in the table: other engines may have restored it. If these rules do not give the same rows, the group
is dropped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np
from pyiceberg.io import FileIO

from connector.encoding.live_rows.deleted_rows import find_deleted_rows, list_data_files
from connector.encoding.live_rows.position_deletes import join_positions
from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.rewriting.file_groups import CompactedGroup
from connector.encoding.rewriting.moved_rows import MovedRows, find_moved
from connector.encoding.values.arrays import Positions
from connector.host.errors import RetryableError
from connector.host.groups import divide
from connector.host.threads import map_in_threads
from connector.iceberg.metadata.listed_files import EqualityDeletes, ListedFile, PositionDeletes, find_range
from connector.iceberg.metadata.partitions import Partition, PartitionReader
from connector.model.state import DataFile

REPLACED: Final = "another writer has replaced or removed its files"
_MOST_LOST: Final = 0.3  # of the rows of new files; a file of which more is deleted would be rewritten again soon
_MOST_READ: Final = 256  # partition-scoped delete files that are read to find out if they still delete anything
_READ_TOGETHER: Final = 2 << 20  # bytes of them that are read at the same time; a larger file is read alone

# The delete files and the deletion vectors that apply to live sources, by their paths.
_Applying: TypeAlias = Mapping[str, Sequence[ListedFile]]


@dataclass(frozen=True)
class DroppedGroup:
    """A group that is not committed, and why."""

    compacted: CompactedGroup
    reason: str


@dataclass(frozen=True)
class CompactionChanges:
    """What one commit changes."""

    groups: tuple[CompactedGroup, ...]
    partitions: Mapping[str, Partition]  # of each new file
    removed: tuple[ListedFile, ...]  # sources, and delete files that delete nothing without them
    positions: Mapping[str, Positions]  # of carried-over deletes, by new file
    dropped: tuple[DroppedGroup, ...]

    @property
    def new_files(self) -> list[DataFile]:
        """The data files that the groups were rewritten into."""
        return [file for compacted in self.groups for file in compacted.files]


class _DroppedError(Exception):
    """The group cannot be committed."""


def decide_changes(
    io: FileIO,
    listed: Sequence[ListedFile],
    groups: Iterable[CompactedGroup],
    rows: Mapping[str, int],
    spec: PartitionReader | None,
) -> CompactionChanges:
    """Return what the commit of these groups changes.

    `listed` are all live files of the table as it is now. `rows` has the number of rows of each source, by path. `spec`
    reads the partitions of the new files. Without it, they are those of the sources.
    """
    table = _Table(io, listed, rows)
    kept, dropped = [], []
    partitions: dict[str, Partition] = {}
    positions: dict[str, Positions] = {}
    for compacted in groups:
        try:
            partition = table.check(compacted)
            positions |= table.carry_over(compacted)
            partitions |= {file.path: spec.read(file) if spec else partition for file in compacted.files}
            kept.append(compacted)
        except _DroppedError as error:
            dropped.append(DroppedGroup(compacted, str(error)))
    gone = {source.path for compacted in kept for source in compacted.group.sources}
    return CompactionChanges(tuple(kept), partitions, tuple(table.list_removed(gone)), positions, tuple(dropped))


class _Table:
    """The live files of a table."""

    def __init__(self, io: FileIO, listed: Sequence[ListedFile], rows: Mapping[str, int]) -> None:
        self._io = io
        self._rows = rows
        self._live = {file.path: file for file in listed if file.is_data}
        self._by_value = EqualityDeletes(listed)
        self._deletes = PositionDeletes(listed)

    def check(self, compacted: CompactedGroup) -> Partition:
        """Return the partition of a group's sources. _DroppedError if the new files cannot take the place of these."""
        sources = compacted.group.sources
        files = [self._live[source.path] for source in sources if source.path in self._live]
        lost = sum(kept for source, kept in zip(sources, compacted.kept, strict=True) if source.path not in self._live)
        if not files or lost > _MOST_LOST * sum(compacted.kept):
            raise _DroppedError(REPLACED)
        if any(self._live[source.path].lineage != source.lineage for source in sources if source.path in self._live):
            raise _DroppedError("its rows have other ids now")
        if any(map(self._by_value.may_apply_to, files)):
            raise _DroppedError("another writer has deleted rows of it by their values")
        return files[0].partition

    def carry_over(self, compacted: CompactedGroup) -> dict[str, Positions]:
        """Return the rows of the new files that are deleted in the sources now, by file.

        _DroppedError if a row that the new files do not have is no longer deleted in its source.
        """
        live = (self._live[source.path] for source in compacted.group.sources if source.path in self._live)
        applying = self._deletes.find_all(live)
        moved = self._find_moved(compacted, applying)
        self._check_restored(compacted, applying, moved)
        carried: dict[str, list[Positions]] = {}
        for rows in moved.values():
            for index in np.unique(rows.files[rows.are_kept]):
                carried.setdefault(compacted.files[index].path, []).append(rows.positions[rows.files == index])
        return {path: join_positions(rows) for path, rows in carried.items()}

    def _find_moved(self, compacted: CompactedGroup, applying: _Applying) -> dict[str, MovedRows]:
        """Return where the rows are that were deleted since the compaction has read them: all those of a source that is
        gone."""
        deleted = {
            source.path: self._find_new_deletes(source, applying[source.path])
            if source.path in applying
            else np.arange(self._rows[source.path], dtype=np.int64)
            for source in compacted.group.sources
        }
        try:
            return find_moved(self._io, compacted, {path: rows for path, rows in deleted.items() if len(rows)})
        except RetryableError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # of a snapshot that has expired since
                raise _DroppedError(REPLACED) from error
            raise

    def _check_restored(self, compacted: CompactedGroup, applying: _Applying, moved: Mapping[str, MovedRows]) -> None:
        """Raise _DroppedError if a row that the new files do not have is no longer deleted in its source."""
        for source, kept in zip(compacted.group.sources, compacted.kept, strict=True):
            if source.path not in applying:
                continue
            # A commit of ours merges older delete files into new ones, so other files may have the same deletes.
            now = {delete.id for delete in applying[source.path]}
            if now.issuperset(source.position_deletes):
                continue
            still_deleted = int((~moved[source.path].are_kept).sum()) if source.path in moved else 0
            if still_deleted != self._rows[source.path] - kept:
                raise _DroppedError("another writer has restored deleted rows of it")

    def _find_new_deletes(self, source: SourceFile, deletes: Sequence[ListedFile]) -> Positions:
        """Return the rows that are deleted by files which the compaction has not applied. If one that it has applied is
        gone, return those of all files: a new one may have only a part of what was deleted before."""
        if any(not delete.is_readable for delete in deletes):
            raise _DroppedError("another writer has deleted rows of it in a file that is no Parquet file")
        now, applied = {delete.id for delete in deletes}, {*source.position_deletes}
        deleted = find_deleted_rows(self._io, source.path, tuple(now - applied if applied <= now else now))
        return deleted[deleted < self._rows[source.path]]

    def list_removed(self, gone: set[str]) -> Iterator[ListedFile]:
        """Yield the sources, and the delete files that delete nothing without them."""
        yield from (self._live[path] for path in gone if path in self._live)
        remaining = {path: file for path, file in self._live.items() if path not in gone}
        for path, files in self._deletes.file_scoped.items():
            if path not in remaining:
                yield from files

        def is_idle(delete: ListedFile) -> bool:
            # It deletes nothing of a file with a vector: that has its rows.
            named = list_data_files(self._io, delete.path)
            return all(path not in remaining or self._deletes.has_vector(remaining[path]) for path in named)

        naming = sorted(self._list_naming(gone), key=lambda delete: (delete.size, delete.path))[:_MOST_READ]
        for part in divide(naming, _READ_TOGETHER, attrgetter("size")):
            yield from compress(part, map_in_threads(is_idle, part, "deletes"))

    def _list_naming(self, gone: set[str]) -> Iterator[ListedFile]:
        """Yield the partition-scoped Parquet files that may name files that are gone."""
        by_partition: dict[Partition, list[bytes]] = {}
        for path in sorted(gone & self._live.keys()):
            by_partition.setdefault(self._live[path].partition, []).append(path.encode())
        for delete in self._deletes.partition_scoped:
            begin, end = find_range(by_partition.get(delete.partition, ()), delete)
            if begin < end and delete.is_readable:
                yield delete
