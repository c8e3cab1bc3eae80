"""Finds the data files of a partition of whose rows too many are deleted: the property `delete-ratio-threshold`.

An old file has too many with a single one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from connector.iceberg.metadata.listed_files import ListedFile, find_range


def find_heavy(
    files: Sequence[ListedFile],
    file_scoped: Mapping[str, Sequence[ListedFile]],
    partition_scoped: Sequence[ListedFile],
    old: Collection[str],
    ratio: float,
) -> set[str]:
    """Return the paths of the data files of one partition of whose rows too many are deleted.

    `file_scoped` has delete files by data file, `partition_scoped` those of the partition. `old` are paths of data
    files. `ratio` is the smallest share of deleted rows that is too large.
    """
    counts = _DeletedCounts(files, file_scoped)
    heavy = {file.path for file in counts.find_heavy(old, ratio)}
    if partition_scoped:
        heavy.update(file.path for file in _NamedFiles(files, counts, partition_scoped).find_heavy(old, ratio))
    return heavy


class _DeletedCounts:
    """How many rows of each data file its file-scoped delete files delete."""

    def __init__(self, files: Sequence[ListedFile], file_scoped: Mapping[str, Sequence[ListedFile]]) -> None:
        self._files = files
        applied = {
            file.path: [each for each in file_scoped[file.path] if each.applies_to(file)]
            for file in files
            if file.path in file_scoped
        }
        # A vector has the rows of older delete files, too.
        vectors = {path: [each for each in deletes if each.vector] for path, deletes in applied.items()}
        self._with_vectors = {path for path, found in vectors.items() if found}
        self._counts = {
            file.path: min(file.rows, sum(each.rows for each in vectors[file.path] or applied[file.path]))
            for file in files
            if file.path in applied
        }

    def of(self, file: ListedFile) -> int:
        """Return the number of a data file's rows."""
        return self._counts.get(file.path, 0)

    def has_vector(self, file: ListedFile) -> bool:
        """Whether a deletion vector applies to a data file. It says all deleted rows of the file."""
        return file.path in self._with_vectors

    def find_heavy(self, old: Collection[str], ratio: float) -> Iterator[ListedFile]:
        """Yield the data files with too many rows."""
        for file in self._files:
            if self.of(file) >= max(0 if file.path in old else ratio * file.rows, 1):
                yield file


class _NamedFiles:
    """The data files that partition-scoped delete files may name: those without vectors, in the order of their paths.

    A delete file counts for all data files that it may name: their average is exact, and so is the gain of rewriting
    all of them.
    """

    def __init__(
        self, files: Iterable[ListedFile], counts: _DeletedCounts, partition_scoped: Iterable[ListedFile]
    ) -> None:
        self._files = sorted((file for file in files if not counts.has_vector(file)), key=lambda file: file.path)
        self._rows = [0, *accumulate(file.rows for file in self._files)]  # of all files before each
        self._deleted = [0, *accumulate(counts.of(file) for file in self._files)]
        paths = [file.path.encode() for file in self._files]
        ranges = [(delete, *find_range(paths, delete)) for delete in partition_scoped]
        self._ranges = [(delete, begin, end) for delete, begin, end in ranges if begin < end]

    def find_heavy(self, old: Collection[str], ratio: float) -> Iterator[ListedFile]:
        """Yield the data files that delete files with too many rows apply to, one of them or all together."""
        for delete, begin, end in self._ranges:
            is_heavy = self._is_heavy([delete], begin, end, ratio)
            for file in self._files[begin:end]:
                if (is_heavy or file.path in old) and delete.applies_to(file):
                    yield file
        deletes = [delete for delete, *_ in self._ranges]
        if deletes and self._is_heavy(deletes, 0, len(self._files), ratio):
            newest = max(delete.sequence_number for delete in deletes)
            yield from (file for file in self._files if file.sequence_number <= newest)

    def _is_heavy(self, deletes: Iterable[ListedFile], begin: int, end: int, ratio: float) -> bool:
        """Whether too many rows of a range of data files are deleted, by these delete files and by file-scoped ones."""
        deleted = sum(delete.rows for delete in deletes) + self._deleted[end] - self._deleted[begin]
        return deleted >= max(ratio * (self._rows[end] - self._rows[begin]), 1)
