"""A session compacts its tables beside its transactions, for a part of the time, and holds nothing up."""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog

from connector.evolution.property_changes import DEFAULT_PROPERTIES
from connector.host import facts
from connector.host.errors import RetryableError
from connector.host.facts import CompactionDebt
from connector.host.interruption import Interruption
from connector.iceberg.commits.commit_outcomes import Committed
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.iceberg.maintenance import background_compaction
from connector.iceberg.maintenance.background import BackgroundMaintenance
from connector.iceberg.maintenance.background_compaction import (
    COMMITS,
    GROWING,
    REST,
    RUN,
    BackgroundCompaction,
    run_compaction,
)
from connector.iceberg.maintenance.compact_table import CompactionBudget, TableCompactor
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.failure_pauses import FIRST_PAUSE
from connector.iceberg.metadata import table_directories
from connector.model.table_identifier import TableIdentifier
from support.bindings import PATH
from support.rows.updated_rows import make_table, stage_updates, values_of
from support.sessions.processes import wait_until
from support.tables.altered_tables import entries
from support.tables.compacting import EAGER, compact_here
from support.tables.outcomes import try_commits

OTHER: Final = TableIdentifier("shop", "others")
PROPERTIES: Final = {"flow.compaction.enabled": "true"}  # of a table


class Clock:
    """Stands for the module `time`: it passes when compaction waits or works."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.worked = 5.0  # seconds on the processor

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.worked


@dataclass
class Running:
    """A compaction whose waits end at once, and its runs with their times."""

    clock: Clock
    results: Callable[[TableIdentifier], CompactionResult] = lambda _: CompactionResult()
    takes: float = 10.0  # seconds
    works: float = 7.0  # of them on the processor, without what its tasks do there
    runs: list[tuple[TableIdentifier, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.compaction = BackgroundCompaction(self._compact)
        condition: Any = self.compaction._changed
        condition.wait = self._wait

    def _compact(self, path: TableIdentifier, _: CompactionBudget, __: Interruption) -> CompactionResult:
        self.runs.append((path, self.clock.now))
        self.clock.now += self.takes
        self.clock.worked += self.works
        return self.results(path)

    def _wait(self, seconds: float | None = None) -> None:
        if seconds is None:
            self.compaction._ended.set()
        else:
            self.clock.now += seconds

    def run(self, *paths: TableIdentifier) -> list[tuple[TableIdentifier, float]]:
        """Note commits of these tables, and do all that becomes due."""
        for path in paths:
            self.compaction.note_commit(path, PROPERTIES, 1)
        self.compaction._ended.clear()
        self.compaction.run()
        return self.runs


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Running:
    clock = Clock()
    monkeypatch.setattr(background_compaction, "time", clock)
    return Running(clock)


def test_a_table_is_looked_at_after_its_first_commit_and_then_after_some(running: Running) -> None:
    assert len(running.run(PATH)) == 1
    assert len(running.run(*[PATH] * (COMMITS - 1))) == 1
    assert len(running.run(PATH)) == 2


def test_commits_that_are_noted_at_once_count_one_by_one(running: Running) -> None:
    running.run(PATH)
    running.compaction.note_commit(PATH, PROPERTIES, COMMITS)
    assert len(running.run()) == 2


@pytest.mark.parametrize(
    ("works", "of_tasks", "rest"),
    [(1.0, 0.0, 10.0), (7.0, 0.0, REST * 7.0), (1.0, 6.0, REST * 7.0)],
    ids=["waiting for a processor", "planning and committing", "rewriting"],
)
def test_compaction_takes_a_limited_share_of_the_processor_s_time(
    running: Running, works: float, of_tasks: float, rest: float
) -> None:
    debts = iter([5, 4, 3, 2, 1, 0])
    running.works = works
    running.results = lambda _: CompactionResult(commits=1, debt=next(debts), processor_seconds=of_tasks)
    times = [time for _, time in running.run(PATH)]
    assert len(times) == 6, "as long as there is a debt, no commit is needed"
    assert {after - before for before, after in pairwise(times)} == {running.takes + rest}


def test_what_was_not_committed_is_not_tried_again_without_a_commit(running: Running) -> None:
    running.results = lambda _: CompactionResult(dropped=1, debt=9)
    assert len(running.run(PATH)) == 1


def test_tables_take_turns(running: Running) -> None:
    debts = {PATH: [1, 1, 0], OTHER: [1, 0]}
    running.results = lambda path: CompactionResult(commits=1, debt=debts[path].pop(0))
    assert [path for path, _ in running.run(PATH, OTHER)] == [PATH, OTHER, PATH, OTHER, PATH]


def test_a_table_that_does_not_want_it_is_left_alone(running: Running) -> None:
    for properties in {}, {"flow.compaction.enabled": "false"}:
        running.compaction.note_commit(PATH, properties, 1)
    assert not running.run()


def test_a_failure_is_a_warning_with_its_consequence_and_is_not_repeated_at_once(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: TableIdentifier) -> CompactionResult:
        raise RetryableError("the storage does not answer")

    running.results = fail
    running.run(PATH)
    for _ in range(3):
        running.run(*[PATH] * COMMITS)
    times = [time for _, time in running.runs]
    pauses = [after - before - running.takes for before, after in pairwise(times)]
    assert pauses == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    [warning, *_] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "shop.orders: its small files were not compacted, so reads get slower" in warning
    assert "the storage does not answer" in warning


def test_commits_that_a_failed_run_was_to_look_at_count_in_the_next_one(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(facts, "report", told.append)

    def fail(_: TableIdentifier) -> CompactionResult:
        raise RetryableError("the storage does not answer")

    running.results = fail
    running.run(PATH)
    running.results = lambda _: CompactionResult()
    running.run(*[PATH] * COMMITS)
    assert [each.commits for each in told if isinstance(each, CompactionDebt)] == [1 + COMMITS]


def test_a_failure_of_one_table_delays_no_other(running: Running) -> None:
    running.results = lambda path: (
        CompactionResult(errors=("it failed",), debt=1) if path == PATH else CompactionResult()
    )
    running.run(PATH)
    running.run(*[PATH] * COMMITS, OTHER)
    assert [path for path, _ in running.runs] == [PATH, OTHER, PATH]


def test_a_group_that_fails_does_not_put_off_the_others(running: Running) -> None:
    debts = iter([2, 1, 1])
    running.results = lambda _: CompactionResult(
        commits=int((left := next(debts)) > 1), errors=("it failed",), debt=left
    )
    running.run(PATH)
    [(_, first), (_, second)] = running.runs
    assert second - first - running.takes == REST * running.works
    running.run(*[PATH] * COMMITS)
    assert running.runs[-1][1] - second - running.takes == FIRST_PAUSE, (
        "a run that committed nothing puts the table off"
    )


def test_a_debt_that_grows_is_a_warning_once(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    debts = [number * int(RUN.size) for number in (2, 3, 4, 5, 6, 7, 1, 0)]
    running.results = lambda _: CompactionResult(commits=1, debt=debts.pop(0))
    running.run(PATH)
    assert not debts
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "more come than are compacted" in warning
    assert f"`materialize-iceberg maintain compact --config CONFIG.json --table {PATH}`" in warning
    assert f"{(GROWING + 1) * RUN.size / 1e9:.1f} GB of its data files" in warning


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_table(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(DEFAULT_PROPERTIES | EAGER)
    return catalog


@pytest.fixture
def maintained(catalog: Catalog) -> Iterator[BackgroundMaintenance]:
    """A session's maintenance, with its compaction; the tasks of maintenance are done by `land`."""
    with run_compaction(TableCompactor(catalog, compact_here, catalog.load_table).compact) as compaction:
        yield BackgroundMaintenance(catalog, compaction.note_commit)


def land(catalog: Catalog, maintained: BackgroundMaintenance, *ids: int) -> None:
    [outcome] = try_commits(catalog, [stage_updates(catalog, dict.fromkeys(ids, "a"))])
    assert isinstance(outcome, Committed)
    maintained.note_outcome(outcome)
    maintained.finish()
    maintained.run()


def test_a_session_compacts_the_tables_that_the_connector_has_made(
    catalog: Catalog, maintained: BackgroundMaintenance
) -> None:
    for number in range(2 * COMMITS):
        land(catalog, maintained, number)
    assert wait_until(lambda: len(entries(catalog)) < 2 * COMMITS)
    assert values_of(catalog) == dict.fromkeys(range(2 * COMMITS), "a")


def compaction_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "maintenance-compaction"}


def test_of_several_shards_the_first_one_compacts() -> None:
    ran = threading.Event()

    def compact(*_: object) -> CompactionResult:
        ran.set()
        return CompactionResult()

    before = compaction_threads()
    with run_compaction(compact, "80000000-ffffffff") as second, run_compaction(compact, "00000000-7fffffff") as first:
        assert len(compaction_threads() - before) == 1
        second.note_commit(PATH, PROPERTIES, 1)
        assert second._accounts
        assert not ran.is_set()
        first.note_commit(PATH, PROPERTIES, 1)
        assert ran.wait(60)


def test_tables_of_table_buckets_are_left_to_the_service(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[int] = []
    maintained = BackgroundMaintenance(catalog, lambda _path, _properties, count: noted.append(count))
    land(catalog, maintained, 1)
    assert noted == [1]
    monkeypatch.setattr(table_directories, "BUCKET_SUFFIX", "")
    land(catalog, maintained, 2)
    assert noted == [1]


def test_commits_that_come_while_maintenance_is_busy_are_noted_together(catalog: Catalog) -> None:
    noted: list[tuple[TableIdentifier, int]] = []
    maintained = BackgroundMaintenance(catalog, lambda path, _properties, count: noted.append((path, count)))
    for number in range(3):
        [outcome] = try_commits(catalog, [stage_updates(catalog, {number: "a"})])
        assert isinstance(outcome, Committed)
        maintained.note_outcome(outcome)
    maintained.finish()
    maintained.run()
    assert noted == [(PATH, 3)]


class NotedLock:
    """A lock that notes when somebody has to wait for it."""

    def __init__(self) -> None:
        self.is_awaited = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.is_awaited.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_commit_waits_for_the_lock_of_its_table(catalog: Catalog) -> None:
    held = {PATH: NotedLock(), OTHER: NotedLock()}
    locks: Any = SimpleNamespace(of=held.__getitem__)
    writers = SnapshotWriters(locks=locks)

    def commit(row: int) -> None:
        try_commits(catalog, [stage_updates(catalog, {row: "a"})], writers=writers)

    with held[OTHER]:
        commit(1)
    thread = threading.Thread(target=commit, args=(2,))
    with held[PATH]:
        thread.start()
        assert held[PATH].is_awaited.wait(60)
        assert values_of(catalog) == {1: "a"}
    thread.join(60)
    assert values_of(catalog) == {1: "a", 2: "a"}
    assert not held[OTHER].is_awaited.is_set()


def test_the_session_does_not_wait_for_compaction_when_it_ends() -> None:
    hung, released = threading.Event(), threading.Event()

    def hang(*_: object) -> CompactionResult:
        hung.set()
        released.wait(60)
        return CompactionResult()

    before = compaction_threads()
    with run_compaction(hang) as compaction:
        compaction.note_commit(PATH, PROPERTIES, 1)
        assert hung.wait(60)
    assert compaction_threads() - before
    released.set()
