"""Plans compaction: which files of a table are rewritten together. A pure function of the table's files and properties.

Small files of a partition are merged. A file is merged only if the new file is several times as large, or if it reaches
the target size. So each row is rewritten a few times while its file grows to the target size, and then no more for its
size. A file is also rewritten when too many of its rows are deleted.

Small tables are kept in better shape than that, because it costs little: each commit allows for some bytes to be
rewritten (the property `bytes-per-commit`). A file is old when the commits since it was written have allowed for
rewriting the whole table. An old file is rewritten for a single deleted row, and merged without that growth. In a large
table, this takes longer than all else.

A group is planned only if it has a gain: fewer files, or fewer deleted rows. A table that is compacted has no groups.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter
from typing import Final

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from connector.encoding.rewriting.file_groups import FileGroup
from connector.host.groups import divide, group_by
from connector.iceberg.maintenance.compaction_thresholds import CompactionThresholds
from connector.iceberg.maintenance.delete_ratio import find_heavy
from connector.iceberg.metadata.listed_files import EqualityDeletes, ListedFile, PositionDeletes
from connector.iceberg.metadata.partitions import find_spec, read_identity_values
from connector.iceberg.metadata.row_lineage import can_keep_lineage
from connector.iceberg.metadata.table_directories import is_in_table_bucket
from connector.iceberg.metadata.table_properties import awaits_backfill, name_table_in_errors
from connector.model.binding import Arrangement

GROWTH: Final = 3  # a new file that is below the target size is so many times as large as its largest source
_FULL: Final = 0.875  # of the target size. Above the least size, because the new file may be compressed better.


@dataclass(frozen=True)
class GroupPlan:
    """Files that are rewritten together, and what that costs."""

    group: FileGroup
    source_rows: tuple[int, ...]  # of each source; deleted ones included
    size: int  # bytes
    delete_files: int  # that apply to the files; some of them may also apply to others

    @property
    def rows(self) -> int:
        """The number of rows of all sources, deleted ones included."""
        return sum(self.source_rows)

    @property
    def cost(self) -> float:
        """Bytes that are rewritten for each file that a reader no longer opens, about."""
        return self.size / (len(self.group.sources) - 1 + self.delete_files or 1)


@dataclass(frozen=True)
class CompactionPlan:
    """The groups of one table, those with the best gain first."""

    groups: tuple[GroupPlan, ...] = ()
    # Of the new files. None: they are in the partitions of their sources, in the table's sort order.
    arrangement: Arrangement | None = None
    is_managed: bool = False  # the catalog's service compacts the table, so there are no groups

    @property
    def files(self) -> int:
        """The number of data files that would be rewritten."""
        return sum(len(each.group.sources) for each in self.groups)

    @property
    def rows(self) -> int:
        """The number of rows in these files, deleted ones included."""
        return sum(each.rows for each in self.groups)

    @property
    def size(self) -> int:
        """The debt: bytes of data files that would be rewritten."""
        return sum(each.size for each in self.groups)


def is_compacted_here(table: Table) -> bool:
    """Whether the connector compacts a table. Amazon S3 Tables compacts its own, and rows must keep their ids."""
    return not is_in_table_bucket(table.location()) and can_keep_lineage(table)


def has_compactable_rows(table: Table) -> bool:
    """Whether the table has rows, and the connector compacts them: not while a backfill waits for its first rows, which
    replace all others. UserError if a property is invalid."""
    is_replaced = awaits_backfill(table)
    return table.current_snapshot() is not None and is_compacted_here(table) and not is_replaced


def plan_compaction(table: Table, listed: Sequence[ListedFile]) -> CompactionPlan:
    """Plan the groups of a table. `listed` are all live files of its current snapshot. UserError if a property is
    invalid."""
    thresholds = read_thresholds(table)
    groups = plan_groups(listed, thresholds) if has_compactable_rows(table) else []
    return CompactionPlan(add_partition_values(table, listed, groups))


def read_thresholds(table: Table) -> CompactionThresholds:
    """Return the thresholds of a table. UserError if a property is invalid."""
    with name_table_in_errors(table):
        return CompactionThresholds.of(table.properties)


def add_partition_values(
    table: Table, listed: Iterable[ListedFile], groups: Iterable[GroupPlan]
) -> tuple[GroupPlan, ...]:
    """Return the groups with the values of their partitions."""
    partitions = {file.path: file.partition for file in listed}

    def add(plan: GroupPlan) -> GroupPlan:
        partition = partitions[plan.group.sources[0].path]
        values = read_identity_values(find_spec(table.specs(), partition.spec_id), partition)
        return replace(plan, group=replace(plan.group, partition_values=tuple(values.items())))

    return tuple(map(add, groups))


def plan_groups(listed: Sequence[ListedFile], thresholds: CompactionThresholds) -> list[GroupPlan]:
    """Return the groups of a table with these live files, those with the best gain first."""
    deletes = PositionDeletes(listed)
    partition_scoped = group_by(deletes.partition_scoped, attrgetter("partition"))
    old = _find_old(listed, thresholds)
    chosen: list[list[ListedFile]] = []
    for partition, files in group_by(list_candidates(listed), attrgetter("partition")).items():
        named_by = partition_scoped.get(partition, ())
        heavy = find_heavy(files, deletes.file_scoped, named_by, old, thresholds.delete_ratio)
        chosen += _PartitionFiles(files, heavy, old, thresholds).divide()
    return sorted(make_groups(deletes, chosen), key=lambda group: group.cost)


def make_groups(deletes: PositionDeletes, chosen: Sequence[Sequence[ListedFile]]) -> Iterator[GroupPlan]:
    """Yield a group for each of these lists of data files."""
    applied = deletes.find_all(file for files in chosen for file in files)
    for files in chosen:
        sources = tuple(file.as_source(applied[file.path]) for file in files)
        applying = {each for source in sources for each in source.position_deletes}
        yield GroupPlan(FileGroup(sources), tuple(file.rows for file in files), _size_of(files), len(applying))


def _find_old(listed: Sequence[ListedFile], thresholds: CompactionThresholds) -> set[str]:
    """Return the paths of the old data files: the number of commits since then, times `bytes-per-commit`, is at least
    the bytes of all data files.

    There are also at least `min-input-files` such commits. If no file is rewritten sooner, all of them together cost at
    most `bytes-per-commit` for each commit.
    """
    if not thresholds.commit_allowance:
        return set()
    newest = max((file.file_sequence_number for file in listed), default=0)
    data = [file for file in listed if file.is_data]
    age = max(_size_of(data) / thresholds.commit_allowance, thresholds.min_files)  # commits
    return {file.path for file in data if newest - file.file_sequence_number >= age}


def list_candidates(listed: Iterable[ListedFile]) -> Iterator[ListedFile]:
    """Yield the data files that can be rewritten: Parquet files without deletes by value and with known deletes."""
    files = list(listed)
    by_value = EqualityDeletes(files)
    others = {
        file.partition for file in files if file.content is DataFileContent.POSITION_DELETES and not file.is_readable
    }
    for file in files:
        if file.is_data and file.is_readable and file.partition not in others and not by_value.may_apply_to(file):
            yield file


class _PartitionFiles:
    """The files of one partition, oldest first."""

    def __init__(
        self,
        files: Sequence[ListedFile],
        heavy: Collection[str],
        old: Collection[str],
        thresholds: CompactionThresholds,
    ) -> None:
        """`heavy` are the paths of the files of whose rows too many are deleted, `old` those of old files."""
        # A snapshot may have the files of several transactions. Its manifest lists them in their order.
        self._files = sorted(files, key=attrgetter("sequence_number"))
        self._ranks = {file.path: rank for rank, file in enumerate(self._files)}
        self._heavy = heavy
        self._old = old
        self._thresholds = thresholds

    def divide(self) -> Iterator[list[ListedFile]]:
        """Yield the files of each group."""
        heavy = [file for file in self._files if file.path in self._heavy]
        small = [file for file in self._files if file.size < self._thresholds.min_size and file.path not in self._heavy]
        # An old small file that is rewritten takes smaller ones along: they add less to the cost than to the gain.
        old_small = (file.size for file in heavy if file.size < self._thresholds.min_size and file.path in self._old)
        largest = max(old_small, default=0)
        along = [file for file in small if file.size <= largest]
        small = [file for file in small if file.size > largest]
        for files in self._pack(self._sort_by_age([*heavy, *along])):
            if any(file.path in self._heavy for file in files):
                yield files
            else:
                small += files
        rest = []
        for files in self._pack(self._sort_by_age(small)):
            if self._is_full(files):
                yield files
            else:
                rest += files
        yield from self._merge_by_size(rest)

    def _pack(self, files: Iterable[ListedFile]) -> Iterator[list[ListedFile]]:
        """Yield the files, in their order, in groups of at most the target size. A larger file is alone."""
        return divide(files, self._thresholds.target_size, attrgetter("size"))

    def _sort_by_age(self, files: Iterable[ListedFile]) -> list[ListedFile]:
        return sorted(files, key=lambda file: self._ranks[file.path])

    def _is_full(self, files: Sequence[ListedFile]) -> bool:
        return len(files) > 1 and _size_of(files) >= _FULL * self._thresholds.target_size

    def _merge_by_size(self, files: Iterable[ListedFile]) -> Iterator[list[ListedFile]]:
        """Yield files of similar sizes, smallest first, as long as they make a file that is large enough."""
        by_size = sorted(files, key=attrgetter("size"))  # stable: files of one size stay in their order
        left: list[ListedFile] = []
        for packed in self._pack(by_size):
            if self._is_full(packed):
                yield self._sort_by_age(packed)
            else:
                left += packed
        sizes = list(accumulate(file.size for file in left))
        enough = [
            count
            for count, (file, size) in enumerate(zip(left, sizes, strict=True), start=1)
            if count >= self._thresholds.min_files
            and (GROWTH * file.size <= size or file.path in self._old)
            and size <= self._thresholds.target_size
        ]
        if enough:
            yield self._sort_by_age(left[: enough[-1]])


def _size_of(files: Iterable[ListedFile]) -> int:
    return sum(file.size for file in files)
