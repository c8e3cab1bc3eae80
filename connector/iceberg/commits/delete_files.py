"""Writes the delete files of a commit, and merges older ones into them.

A reader opens all delete files that may apply to a data file. One file for each commit is cheap to write, but many such
files are slow to read. A delete file only applies to data files of its own partition.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

from connector.encoding.live_rows.deleted_rows import read_deleted_rows, remember_deleted_rows
from connector.encoding.live_rows.deletion_vectors import WrittenVector, write_deletion_vectors
from connector.encoding.live_rows.position_deletes import join_positions, write_position_deletes
from connector.encoding.parquet.file_options import Destination
from connector.encoding.values.arrays import Positions
from connector.host.errors import UserError
from connector.host.signals import map_in_threads
from connector.iceberg.commits.summaries import summarize_changes
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.partitions import Partition
from connector.iceberg.metadata.row_lineage import has_row_lineage
from connector.iceberg.metadata.snapshot_manifests import KEPT_BYTES, AddedDeletes, WrittenDeletes
from connector.model.state import DataFile
from connector.storage.file_io import WriteFile, WrittenFile

if TYPE_CHECKING:
    from connector.iceberg.commits.row_deletes import DeletedRows

MAX_PARTITION_SCOPED: Final = 16  # delete files of a partition, beside merged ones, before they are merged
FILE_SCOPED_UP_TO: Final = 8  # data files: if a commit touches up to so many, each gets a delete file of its own
MERGED_FILES: Final = 4  # data files that share a merged delete file
MOST_MERGED: Final = 256  # merged delete files that a commit writes; instead of more of them, one for each partition
MOST_VECTOR_FILES: Final = 256  # Puffin files of one vector each; a commit with more vectors writes shared ones
LARGEST_MANIFEST: Final = 1_000  # files; a larger one is not written again only to drop a data file without rows


@dataclass(frozen=True)
class DeleteChanges:
    """New delete files, and files that the same commit removes: delete files, and data files without rows."""

    added: tuple[AddedDeletes, ...] = ()
    removed: tuple[ListedFile, ...] = ()

    def summarize(self, added_size: int) -> dict[str, str]:
        """Return the entries of a snapshot's summary. `added_size` are the bytes of the data files that it adds."""
        return summarize_changes((each.deletes for each in self.added), self.removed, added_size)


class DeleteFiles:
    """Writes the delete files of one writer's pending commits. An attempt uses files of an earlier one if they delete
    the same rows.

    The format version of the table decides: position delete files, or since version 3 deletion vectors.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[str, str, bytes], tuple[WrittenDeletes, ...]] = {}
        self._small: dict[str, WrittenFile] = {}  # by location

    def write(self, table: Table, prefix: str, rows: "DeletedRows") -> DeleteChanges:
        """Write the delete files; their names begin with the prefix. Small ones are sent with their manifest."""
        merge = _Merge(table, rows)
        positions, removed = merge.perform()
        return DeleteChanges(self.add(table, prefix, positions, rows.partitions, merge.due), tuple(removed))

    def add(
        self,
        table: Table,
        prefix: str,
        positions: Mapping[str, Positions],
        partitions: Mapping[str, Partition],
        merged: Collection[Partition] = (),
    ) -> tuple[AddedDeletes, ...]:
        """Write delete files with these positions. `merged` are partitions whose older delete files are merged into
        them. Small files are sent with their manifest."""
        if has_row_lineage(table):
            suffix, files = _VECTORS, list(_divide_vectors(positions, partitions))
        else:
            suffix, files = _POSITIONS, list(_divide(positions, partitions, merged))

        def write(paths: Sequence[str]) -> tuple[WrittenDeletes, ...]:
            return self._write(table, prefix, suffix, {path: positions[path] for path in paths})

        written = map_in_threads(write, files, "delete")
        # A position delete file is of one partition, and a Puffin file has a vector for each data file.
        return tuple(
            AddedDeletes(partitions[path], file, self._small.get(file.path))
            for paths, of_paths in zip(files, written, strict=True)
            for path, file in zip(paths, of_paths, strict=False)
        )

    def _write(
        self, table: Table, prefix: str, suffix: str, positions: Mapping[str, Positions]
    ) -> tuple[WrittenDeletes, ...]:
        # The prefix is part of the key: a file that is still to be committed must not be named by a passed value.
        key = prefix, suffix, _digest(positions)
        if key not in self._written:
            location = Destination.of_table(table, prefix).new_location(f"-deletes{suffix}")
            self._written[key] = tuple(_WRITE[suffix](table.io, location, positions, self._write_file))
            for file in self._written[key]:
                _remember(file, positions)
        return self._written[key]

    def _write_file(self, io: FileIO, location: str, content: bytes) -> None:
        file = WrittenFile(io, location, [content])
        if len(file) <= KEPT_BYTES:
            self._small[location] = file
        else:
            file.send()


def _remember(file: WrittenDeletes, positions: Mapping[str, Positions]) -> None:
    if isinstance(file, WrittenVector):
        remember_deleted_rows(file.vector, {file.vector.data_path: positions[file.vector.data_path]})
    else:
        remember_deleted_rows(file.path, positions)


def _digest(positions: Mapping[str, Positions]) -> bytes:
    """Return what tells these positions from others. It is small: it lives as long as the commits are pending."""
    digest = hashlib.sha256()
    for path, rows in positions.items():
        digest.update(f"{path}\0{len(rows)}\0".encode())
        digest.update(np.ascontiguousarray(rows).data)
    return digest.digest()


def _write_positions(
    io: FileIO, location: str, positions: Mapping[str, Positions], write_file: WriteFile
) -> list[DataFile]:
    places = np.repeat(np.arange(len(positions), dtype=np.int32), [len(rows) for rows in positions.values()])
    paths = pa.DictionaryArray.from_arrays(places, pa.array([*positions], pa.string()))
    numbers = pa.array(np.concatenate([*positions.values()]))
    return [write_position_deletes(io, location, paths, numbers, write_file)]


_POSITIONS: Final = ".parquet"
_VECTORS: Final = ".puffin"
_Write: TypeAlias = Callable[[FileIO, str, Mapping[str, Positions], WriteFile], Sequence[WrittenDeletes]]
_WRITE: Final[Mapping[str, _Write]] = {
    _POSITIONS: _write_positions,
    _VECTORS: write_deletion_vectors,
}


class _Merge:
    """Merges new positions with those of older delete files.

    Partition-scoped delete files are merged together when there are too many. File-scoped ones are merged each time:
    then their data file has one. So a table has about as many delete files as data files at most.

    In tables with deletion vectors, all partition-scoped delete files are merged. Only an upgraded table has some.
    Each commit removes the file-scoped ones of data files that are gone, vectors and others.
    """

    def __init__(self, table: Table, rows: "DeletedRows") -> None:
        self._table = table
        self._rows = rows
        self._manifest_sizes = Counter(file.manifest for file in rows.live.values())
        data_files = Counter(file.partition for file in rows.live.values())
        partition_scoped = [file for file in rows.deletes.partition_scoped if file.format is FileFormat.PARQUET]
        counts = Counter(file.partition for file in partition_scoped)
        self._has_vectors = has_row_lineage(table)
        self.due = {
            partition
            for partition, count in counts.items()
            if self._has_vectors or count > _limit(data_files[partition])
        }
        self._partition_scoped = [file for file in partition_scoped if file.partition in self.due]

    def perform(self) -> tuple[dict[str, Positions], list[ListedFile]]:
        """Return the positions to write, by data file, and the files to remove.

        UserError if vectors would take the place of deletes that cannot be read.
        """
        older = self._read(self._partition_scoped)
        removed = [*self._partition_scoped, *self._list_dangling()] if self.due or self._has_vectors else []
        paths = self._rows.positions.keys() | older.keys()
        if self._has_vectors:
            self._check_formats(paths)
        chosen = [file for path in paths if path in self._rows.live for file in self._list_file_scoped(path)]
        file_scoped = self._read(chosen)
        removed += chosen
        positions = {}
        for path in paths:
            new = [self._rows.positions[path]] if path in self._rows.positions else []
            merged = join_positions([*new, *older.pop(path, ()), *file_scoped.pop(path, ())])
            if self._has_no_rows(path, merged):
                removed.append(self._rows.live[path])
            else:
                positions[path] = merged
        return positions, removed

    def _check_formats(self, paths: Iterable[str]) -> None:
        """Raise UserError if other files than Parquet delete rows of these data files. Readers would skip them."""
        applied = self._rows.deletes.find_all(self._rows.live[path] for path in paths if path in self._rows.live)
        for delete in (each for deletes in applied.values() for each in deletes):
            if delete.format is not FileFormat.PARQUET and not delete.vector:
                raise UserError(
                    f"table {'.'.join(self._table.name())}: the delete file {delete.path} is no Parquet file. Standard "
                    "updates only read Parquet. Have the table's files rewritten as Parquet (in Spark: CALL "
                    "system.rewrite_data_files). The staged rows were not added, and stay in the task's state."
                )

    def _list_file_scoped(self, path: str) -> list[ListedFile]:
        files = self._rows.deletes.file_scoped.get(path, ())
        return [file for file in files if file.vector or file.format is FileFormat.PARQUET]

    def _list_dangling(self) -> Iterator[ListedFile]:
        """Find the file-scoped delete files of data files that are gone."""
        for path, files in self._rows.deletes.file_scoped.items():
            if path not in self._rows.live:
                yield from files

    def _has_no_rows(self, path: str, deleted: Positions) -> bool:
        file = self._rows.live.get(path)
        if file is None or self._manifest_sizes[file.manifest] > LARGEST_MANIFEST:
            return False
        # Another engine's positions may be beyond the end of the file, and they delete nothing.
        return int(np.searchsorted(deleted, file.rows)) >= file.rows

    def _read(self, files: Sequence[ListedFile]) -> dict[str, list[Positions]]:
        """Return the positions in these delete files, by data file. Rows of files that are gone do not count."""

        def read(file: ListedFile) -> list[tuple[str, Positions]]:
            rows = self._list_positions(file)
            return [(path, positions) for path, positions in rows if self._applies(file, path)]

        found: dict[str, list[Positions]] = {}
        for rows in map_in_threads(read, files, "merge"):
            for path, positions in rows:
                found.setdefault(path, []).append(positions)
        return found

    def _list_positions(self, file: ListedFile) -> Iterable[tuple[str, Positions]]:
        return read_deleted_rows(self._table.io, file.id).items()

    def _applies(self, delete: ListedFile, path: str) -> bool:
        file = self._rows.live.get(path)
        if file is None or not delete.applies_to(file):
            return False
        return delete.vector is not None or not self._rows.deletes.has_vector(file)


def _limit(data_files: int) -> int:
    """Return how many partition-scoped delete files a partition of so many data files may have."""
    return min(MAX_PARTITION_SCOPED, data_files // 2) + data_files // MERGED_FILES


def _divide_vectors(paths: Collection[str], partitions: Mapping[str, Partition]) -> Iterator[list[str]]:
    """Divide data files into those whose deletion vectors are written to one Puffin file: each alone, or if they are
    many, all of a partition spec together.

    DuckDB 1.5.5 drops all vectors of a Puffin file when it deletes a row of one of their data files. It also takes one
    vector for another if two manifests name one Puffin file, and each spec has its own manifest.
    """
    by_spec: dict[int, list[str]] = {}
    for path in sorted(paths):
        by_spec.setdefault(partitions[path].spec_id, []).append(path)
    for together in by_spec.values():
        size = 1 if len(paths) <= MOST_VECTOR_FILES else len(together)
        yield from (together[begin : begin + size] for begin in range(0, len(together), size))


def _divide(
    paths: Collection[str], partitions: Mapping[str, Partition], merged: Collection[Partition]
) -> Iterator[list[str]]:
    """Divide data files into those whose deletes are written to one file: each alone if they are few, or else all of a
    partition together. `merged` are the partitions whose older delete files are merged: in them, some share a file."""
    are_few = len(paths) <= FILE_SCOPED_UP_TO
    of_merged = sum(partitions[path] in merged for path in paths)
    shared = MERGED_FILES if of_merged <= MERGED_FILES * MOST_MERGED else len(paths)
    by_partition: dict[Partition, list[str]] = {}
    for path in sorted(paths):
        by_partition.setdefault(partitions[path], []).append(path)
    for partition, together in by_partition.items():
        size = 1 if are_few else shared if partition in merged else len(together)
        yield from (together[begin : begin + size] for begin in range(0, len(together), size))
