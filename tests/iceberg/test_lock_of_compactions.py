"""A compaction holds the lock of its table for its commit, and not while it reads delete files: transactions wait."""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

import pytest
from cachetools import LRUCache
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO

from connector.encoding.live_rows import deleted_rows
from connector.encoding.live_rows.position_deletes import read_position_deletes
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.file_groups import CompactedGroup, FailedGroup, FileGroup
from connector.host.refresh import Refreshed
from connector.iceberg.commits.delete_files import FILE_SCOPED_UP_TO
from connector.iceberg.commits.snapshot import SnapshotWriters, TableLocks
from connector.iceberg.maintenance.background_compaction import RUN
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.model.properties import Properties
from support.bindings import PATH
from support.plans import meeting
from support.rows.updated_rows import BY_PART, land, values_of
from support.tables.compacting import compact_here
from support.tables.eager_compaction import delete_files, make_eager

COMMITS: Final = FILE_SCOPED_UP_TO + 1  # so many data files share a delete file

Read = Callable[[FileIO, str], Any]


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """Two partitions, each with a delete file for all of its data files."""
    make_eager(catalog, BY_PART)
    for number in range(COMMITS):
        land(catalog, {number: "a", 100 + number: "a", 200 + number: "b", 300 + number: "b"})
    land(catalog, {}, removed=[*range(COMMITS), *range(200, 200 + COMMITS)])
    assert len(delete_files(catalog)) == 2
    return catalog


def compact(
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    locks: TableLocks,
    read_with: Callable[[Read], Read],
    meanwhile: Callable[[], object] = lambda: None,
) -> CompactionResult:
    """Compact once, as Spark's tasks do. After that, delete files are read by `read_with`."""

    def perform(
        target: TargetFiles, groups: Iterable[FileGroup], access: Refreshed[Properties]
    ) -> Generator[CompactedGroup | FailedGroup, None, None]:
        yield from list(compact_here(target, groups, access))
        meanwhile()
        for cache in deleted_rows._read, deleted_rows._written, deleted_rows._named:
            cache.clear()  # another process has read and written them
        monkeypatch.setattr(deleted_rows, "read_position_deletes", read_with(read_position_deletes))

    return TableCompactor(catalog, perform, catalog.load_table, SnapshotWriters(locks=locks)).compact(PATH, RUN)


@pytest.mark.parametrize("removed", [[], [*range(100, 100 + COMMITS)]], ids=["no new deletes", "new deletes"])
def test_delete_files_are_read_before_it_takes_the_lock(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, removed: list[int]
) -> None:
    locks, held = TableLocks(), list[bool]()
    expected = {number: value for number, value in values_of(catalog).items() if number not in removed}

    def note(read: Read) -> Read:
        def read_now(io: FileIO, path: str) -> Any:
            held.append(locks.of(PATH).locked())
            return read(io, path)

        return read_now

    result = compact(catalog, monkeypatch, locks, note, lambda: removed and land(catalog, {}, removed))
    assert result.commits == 1
    assert held
    assert not any(held)
    assert values_of(catalog) == expected


def test_delete_files_too_large_to_be_remembered_are_read_once(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered is of which data files they delete rows."""
    monkeypatch.setattr(deleted_rows, "_read", LRUCache(0))
    read_now: list[str] = []

    def note(read: Read) -> Read:
        def noted(io: FileIO, path: str) -> Any:
            read_now.append(path)
            return read(io, path)

        return noted

    assert compact(catalog, monkeypatch, TableLocks(), note).commits == 1
    assert len(read_now) == len({*read_now}) == 2


def test_delete_files_are_read_at_the_same_time(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = values_of(catalog)
    together = meeting(2)

    def wait_for_the_other(read: Read) -> Read:
        def read_now(io: FileIO, path: str) -> Any:
            together.wait()
            return read(io, path)

        return read_now

    assert compact(catalog, monkeypatch, TableLocks(), wait_for_the_other).commits == 1
    assert values_of(catalog) == expected
    assert not delete_files(catalog), "they delete nothing without the old data files"
