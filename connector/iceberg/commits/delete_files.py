"""Writes the delete files of a commit.

A reader opens all delete files that may apply to a data file. One file for each commit is cheap to write, but many such
files are slow to read. A delete file only applies to data files of its own partition.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from connector.encoding.live_rows.deleted_rows import remember_deleted_rows
from connector.encoding.live_rows.deletion_vectors import WrittenVector, write_deletion_vectors
from connector.encoding.live_rows.position_deletes import write_position_deletes
from connector.encoding.parquet.file_options import Destination
from connector.encoding.values.arrays import Positions
from connector.host.groups import group_by
from connector.host.threads import map_in_threads
from connector.iceberg.commits.delete_merging import MERGED_FILES, DeleteMerger, has_deletion_vectors
from connector.iceberg.commits.summaries import summarize_changes
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.partitions import Partition
from connector.iceberg.metadata.snapshot_manifests import KEPT_BYTES, AddedDeletes, WrittenDeletes
from connector.model.state import DataFile
from connector.storage.file_io import WriteFile, WrittenFile

if TYPE_CHECKING:
    from connector.iceberg.commits.row_deletes import DeletesOfCommit

FILE_SCOPED_UP_TO: Final = 8  # data files: if a commit touches up to so many, each gets a delete file of its own
MOST_MERGED: Final = 256  # merged delete files that a commit writes; instead of more of them, one for each partition
MOST_VECTOR_FILES: Final = 256  # Puffin files of one vector each; a commit with more vectors writes shared ones


@dataclass(frozen=True)
class _DeleteFormat:
    """How delete files of one format are written, and which data files share one."""

    suffix: str
    write: Callable[[FileIO, str, Mapping[str, Positions], WriteFile], Sequence[WrittenDeletes]]
    # By the paths of data files, their partitions, and the partitions whose older delete files are merged.
    divide: Callable[[Collection[str], Mapping[str, Partition], Collection[Partition]], Iterator[list[str]]]


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

    def write(self, table: Table, prefix: str, rows: "DeletesOfCommit") -> DeleteChanges:
        """Write the delete files; their names begin with the prefix. Small ones are sent with their manifest."""
        merger = DeleteMerger(table, rows)
        positions, removed = merger.perform()
        return DeleteChanges(self.add(table, prefix, positions, rows.partitions, merger.due), tuple(removed))

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
        delete_format = _VECTORS if has_deletion_vectors(table) else _POSITIONS
        shares = [*delete_format.divide(positions, partitions, merged)]

        def write(paths: Sequence[str]) -> tuple[WrittenDeletes, ...]:
            return self._write(table, prefix, delete_format, {path: positions[path] for path in paths})

        written = map_in_threads(write, shares, "delete")
        # A position delete file is of one partition, and a Puffin file has a vector for each data file.
        return tuple(
            AddedDeletes(partitions[path], deletes, self._small.get(deletes.path))
            for paths, written_deletes in zip(shares, written, strict=True)
            for path, deletes in zip(paths, written_deletes, strict=False)
        )

    def _write(
        self, table: Table, prefix: str, delete_format: _DeleteFormat, positions: Mapping[str, Positions]
    ) -> tuple[WrittenDeletes, ...]:
        # The prefix is part of the key: a file that is still to be committed must not be named by a passed value.
        key = prefix, delete_format.suffix, _digest(positions)
        if key not in self._written:
            location = Destination.of_table(table, prefix).new_location(f"-deletes{delete_format.suffix}")
            self._written[key] = tuple(delete_format.write(table.io, location, positions, self._write_file))
            for deletes in self._written[key]:
                _remember(deletes, positions)
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
    indices = np.repeat(np.arange(len(positions), dtype=np.int32), [len(rows) for rows in positions.values()])
    paths = pa.DictionaryArray.from_arrays(indices, pa.array([*positions], pa.string()))
    numbers = pa.array(np.concatenate([*positions.values()]))
    return [write_position_deletes(io, location, paths, numbers, write_file)]


def _divide_vectors(
    paths: Collection[str], partitions: Mapping[str, Partition], _: Collection[Partition]
) -> Iterator[list[str]]:
    """Divide data files into those whose deletion vectors are written to one Puffin file: each alone, or if they are
    many, all of a partition spec together.

    DuckDB 1.5.5 drops all vectors of a Puffin file when it deletes a row of one of their data files. It also takes one
    vector for another if two manifests name one Puffin file, and each spec has its own manifest.
    """
    for spec_paths in group_by(sorted(paths), lambda path: partitions[path].spec_id).values():
        size = 1 if len(paths) <= MOST_VECTOR_FILES else len(spec_paths)
        yield from (spec_paths[begin : begin + size] for begin in range(0, len(spec_paths), size))


def _divide_positions(
    paths: Collection[str], partitions: Mapping[str, Partition], merged: Collection[Partition]
) -> Iterator[list[str]]:
    """Divide data files into those whose deletes are written to one file: each alone if they are few, or else all of a
    partition together. `merged` are the partitions whose older delete files are merged: in them, some share a file."""
    is_small = len(paths) <= FILE_SCOPED_UP_TO
    merged_count = sum(partitions[path] in merged for path in paths)
    shared = MERGED_FILES if merged_count <= MERGED_FILES * MOST_MERGED else len(paths)
    for partition, partition_paths in group_by(sorted(paths), partitions.__getitem__).items():
        size = 1 if is_small else shared if partition in merged else len(partition_paths)
        yield from (partition_paths[begin : begin + size] for begin in range(0, len(partition_paths), size))


_POSITIONS: Final = _DeleteFormat(".parquet", _write_positions, _divide_positions)
_VECTORS: Final = _DeleteFormat(".puffin", write_deletion_vectors, _divide_vectors)
