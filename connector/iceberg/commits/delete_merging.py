"""Merges the rows that a commit deletes with those of older delete files, so that a reader has to open few of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from pyiceberg.table import Table

from connector.encoding.live_rows.deleted_rows import read_deleted_rows
from connector.encoding.live_rows.position_deletes import join_positions
from connector.encoding.values.arrays import Positions
from connector.host.errors import UserError
from connector.host.threads import map_in_threads
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.row_lineage import has_row_lineage
from connector.model.table_identifier import TableIdentifier

if TYPE_CHECKING:
    from connector.iceberg.commits.row_deletes import DeletesOfCommit

MAX_PARTITION_SCOPED: Final = 16  # delete files of a partition, beside merged ones, before they are merged
MERGED_FILES: Final = 4  # data files that share a merged delete file
LARGEST_MANIFEST: Final = 1_000  # files; a larger one is not written again only to drop a data file without rows


def has_deletion_vectors(table: Table) -> bool:
    """Whether deletion vectors delete the table's rows: it has format version 3."""
    return has_row_lineage(table)


class DeleteMerger:
    """Merges new positions with those of older delete files.

    Partition-scoped delete files are merged together when there are too many. File-scoped ones are merged each time:
    then their data file has one. So a table has about as many delete files as data files at most.

    In tables with deletion vectors, all partition-scoped delete files are merged. Only an upgraded table has some.
    Each commit removes the file-scoped ones of data files that are gone, vectors and others.
    """

    def __init__(self, table: Table, rows: "DeletesOfCommit") -> None:
        self._table = table
        self._rows = rows
        self._manifest_sizes = Counter(file.manifest for file in rows.live.values())
        data_files = Counter(file.partition for file in rows.live.values())
        partition_scoped = [file for file in rows.deletes.partition_scoped if file.is_readable]
        counts = Counter(file.partition for file in partition_scoped)
        self._has_vectors = has_deletion_vectors(table)
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
            if not delete.is_readable:
                raise UserError(
                    f"table {TableIdentifier.of(self._table)}: the delete file {delete.path} is no Parquet file. "
                    "Standard updates only read Parquet. Have the table's files rewritten as Parquet (in Spark: CALL "
                    "system.rewrite_data_files). The staged rows were not added, and stay in the task's state."
                )

    def _list_file_scoped(self, path: str) -> list[ListedFile]:
        files = self._rows.deletes.file_scoped.get(path, ())
        return [file for file in files if file.is_readable]

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
