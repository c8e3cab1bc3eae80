"""Files of compactions are deleted when no compaction can commit them any more, and not before."""

import time
import uuid
from pathlib import Path
from posixpath import basename
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog

from connector.host.errors import RetryableError
from connector.iceberg.commits import compaction_commit, snapshot
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.commits.compaction_commit import MAX_AGE
from connector.iceberg.fences.file_names import CompactionOrigin, FileOrigin
from connector.iceberg.maintenance import compact_table, void_files
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.maintenance.void_files import COMPACTION_AGE
from support.bindings import PATH
from support.rows.staged_files import write_file
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import make_table, stage_updates, values_of
from support.snapshots import check_text
from support.tables.altered_tables import entries
from support.tables.compacting import EAGER, compact

HOUR: Final = 3_600_000  # milliseconds
NOW: Final = time.time_ns() // 1_000_000


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_table(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(EAGER)
    return catalog


def land(catalog: Catalog, *ids: int) -> None:
    commit_all_or_raise(catalog, [stage_updates(catalog, dict.fromkeys(ids, "a"))])


def set_clock(monkeypatch: pytest.MonkeyPatch, milliseconds: int, *modules: ModuleType) -> None:
    """Of these modules, or of commits, from now on."""
    began = time.time_ns()
    clock = SimpleNamespace(
        time_ns=lambda: milliseconds * 10**6 + time.time_ns() - began, monotonic=time.monotonic, sleep=time.sleep
    )
    for module in modules or (compaction_commit, snapshot, void_files):
        monkeypatch.setattr(module, "time", clock)


def leave_behind(catalog: Catalog, created_ms: int, table_uuid: str | None = None) -> str:
    """A file of a compaction that was killed; its location."""
    table = catalog.load_table(PATH)
    origin = CompactionOrigin(created_ms, table_uuid or str(table.metadata.table_uuid))
    return write_file(table, f"{origin.file_prefix}-{uuid.uuid4()}.parquet", 666)


def collect(catalog: Catalog) -> int:
    return remove_task_orphans(catalog, PATH, WRITER, ())


def exists(catalog: Catalog, location: str) -> bool:
    return catalog.load_table(PATH).io.new_input(location).exists()


@pytest.mark.parametrize(("hours", "is_deleted"), [(26, True), (23, False), (0, False), (-26, False)])
def test_files_that_nothing_can_commit_any_more_are_deleted(catalog: Catalog, hours: int, is_deleted: bool) -> None:
    """How much younger than the file the newest snapshot is decides, not what the time is now."""
    left = leave_behind(catalog, NOW - hours * HOUR)
    land(catalog, 1)
    assert collect(catalog) == is_deleted
    assert exists(catalog, left) is not is_deleted


def test_a_clock_that_was_days_ahead_makes_no_file_old(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as ahead:
        set_clock(ahead, NOW + 48 * HOUR)
        land(catalog, 1)
    left = leave_behind(catalog, NOW)
    land(catalog, 2)
    assert collect(catalog) == 0
    assert exists(catalog, left)


def test_a_clock_that_is_days_ahead_makes_no_file_old_without_a_younger_snapshot(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = leave_behind(catalog, NOW)
    land(catalog, 1)
    set_clock(monkeypatch, NOW + 48 * HOUR)
    assert collect(catalog) == 0
    assert exists(catalog, left)


def test_files_that_a_snapshot_refers_to_are_kept(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        land(catalog, number)
    compact(catalog, PATH)
    set_clock(monkeypatch, NOW + 48 * HOUR)
    land(catalog, 9)
    assert collect(catalog) == 0
    assert len(values_of(catalog)) == 5


def test_files_of_another_table_in_the_same_directory_are_kept(catalog: Catalog) -> None:
    """A table that was renamed keeps its directory."""
    left = leave_behind(catalog, NOW - 48 * HOUR, str(uuid.uuid4()))
    land(catalog, 1)
    assert collect(catalog) == 0
    assert exists(catalog, left)


def test_a_slow_compaction_does_not_commit_files_that_were_taken_for_orphans(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        land(catalog, number)

    def a_day_passes() -> None:
        set_clock(monkeypatch, NOW + 25 * HOUR)
        land(catalog, 9)
        assert collect(catalog) > 0

    with pytest.raises(Exception, match="more than 60 minutes"):
        compact(catalog, PATH, a_day_passes)
    assert len(values_of(catalog)) == 5


def test_a_clock_that_is_days_behind_makes_no_file_of_a_compaction_old(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        land(catalog, number)
    set_clock(monkeypatch, NOW - 48 * HOUR, compact_table, compaction_commit)

    def another_session_opens() -> None:
        land(catalog, 9)
        assert collect(catalog) == 0

    assert compact(catalog, PATH, another_session_opens).commits == 1
    assert len(values_of(catalog)) == 5


def test_a_compaction_does_not_commit_files_that_another_clock_takes_for_orphans(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session has deleted them, whose clock is two days ahead. The newest snapshot says so."""
    for number in range(4):
        land(catalog, number)

    def another_session_opens() -> None:
        set_clock(monkeypatch, NOW + 48 * HOUR, snapshot, void_files)
        land(catalog, 9)
        assert collect(catalog) > 0

    with pytest.raises(RetryableError) as raised:
        compact(catalog, PATH, another_session_opens)
    check_text("compaction_errors", "files that may be taken for orphans", str(raised.value))
    assert len(values_of(catalog)) == 5


def test_metadata_files_of_a_compaction_are_told_by_their_names(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, number)
    table = catalog.load_table(PATH)
    metadata = Path(table.location().removeprefix("file://"), "metadata")
    before = set(metadata.iterdir())
    compact(catalog, PATH, lambda: land(catalog, 1))
    new = [each.name for each in set(metadata.iterdir()) - before if each.name.startswith(("compact-", "snap-"))]
    ours = [name for name in new if CompactionOrigin.of(name)]
    assert len(ours) >= 3, "manifests and a manifest list"
    assert all(CompactionOrigin.of(name) or FileOrigin.of(name) for name in new)
    for entry in entries(catalog):
        name = basename(entry.data_file.file_path)
        assert (CompactionOrigin.of(name) is None) != (FileOrigin.of(name) is None)


WITHOUT_TABLE: Final = "compact-1795396561457-1e78ff97-d7de-4143-bd85-3341077d06ff.parquet"


@pytest.mark.parametrize("name", ["compact-1.parquet", WITHOUT_TABLE, "compacted.parquet"])
def test_names_of_other_programs_are_not_taken_for_ours(name: Any) -> None:
    assert CompactionOrigin.of(name) is None


def test_there_is_time_between_the_last_commit_of_a_file_and_its_deletion() -> None:
    assert COMPACTION_AGE - MAX_AGE >= 12 * HOUR, "the difference between two clocks is less"
