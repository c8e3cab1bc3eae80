"""How much one run of compaction takes, which groups it leaves out, and what it logs."""

import itertools
import logging
import re
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from connector.encoding.live_rows import deleted_rows
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.file_groups import CompactedGroup, FailedGroup, FileGroup, GroupOutcome
from connector.host import facts
from connector.host.errors import RetryableError, SignInError, UserError
from connector.host.facts import Fact
from connector.host.interruption import InterruptedMaintenanceError, Interruption
from connector.host.logs import FIELDS
from connector.iceberg.commits import compaction_commit
from connector.iceberg.maintenance import compact_table as compact_table_module
from connector.iceberg.maintenance import failure_pauses
from connector.iceberg.maintenance.background_compaction import RUN
from connector.iceberg.maintenance.compact_table import CompactionBudget, TableCompactor
from connector.iceberg.maintenance.compaction_thresholds import check_compaction
from connector.iceberg.maintenance.failure_pauses import FIRST_PAUSE, LONGEST_PAUSE, FailurePauses
from connector.model.table_identifier import TableIdentifier
from connector.spark.jobs.compaction_job import compact_in
from connector.storage.file_access import S3_EXPIRES_AT_MS
from support.bindings import PATH
from support.engines.snapshot_refs import point
from support.rows.updated_rows import BY_PART, land, values_of
from support.snapshots import check_text
from support.tables.compacting import compact, compact_here
from support.tables.eager_compaction import delete_files, files, make_eager
from support.tables.expiring_tables import head

pytestmark = pytest.mark.long


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_eager(catalog)
    return catalog


def test_a_budget_of_bytes_takes_the_best_groups(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    result = TableCompactor(catalog, compact_here, catalog.load_table).compact(PATH, CompactionBudget(size=10))
    assert (result.commits, len(files(catalog))) == (0, 3)
    assert result.debt > 10
    assert (
        TableCompactor(catalog, compact_here, catalog.load_table).compact(PATH, CompactionBudget(seconds=0)).commits
        == 0
    )


def test_a_budget_may_allow_a_larger_group(catalog: Catalog) -> None:
    """In a session, no file is too large to get rid of its deleted rows."""
    for number in range(3):
        land(catalog, {number: "a"})
    budget = replace(RUN, size=10)
    assert TableCompactor(catalog, compact_here, catalog.load_table).compact(PATH, budget).commits == 1
    assert len(files(catalog)) == 1


def test_a_session_s_run_ends_although_new_files_keep_coming(catalog: Catalog) -> None:
    """Otherwise a table with quick transactions would never give another table its turn."""
    numbers = itertools.count()

    def land_more() -> None:
        for number in itertools.islice(numbers, 6):
            land(catalog, {number: "a"})

    def compact_beside_commits(*arguments: Any) -> Generator[GroupOutcome, None, None]:
        assert next(numbers) < 30, "the run goes on"
        yield from list(compact_here(*arguments))
        land_more()

    land_more()
    result = TableCompactor(catalog, compact_beside_commits, catalog.load_table).compact(PATH, RUN)
    assert result.commits == 1
    assert result.debt > 0, "the new files are left for the next run"


def test_the_processor_time_of_a_compaction_counts_groups_that_were_given_up(catalog: Catalog) -> None:
    catalog.drop_table(PATH)
    make_eager(catalog, BY_PART)
    for number in range(4):
        land(catalog, {number: "a", number + 10: "b"})

    def compact_late(*arguments: Any) -> Generator[GroupOutcome, None, None]:
        compacted = [*compact_here(*arguments)]
        catalog.load_table(PATH).delete("part = 'a'")
        for outcome in compacted:
            assert isinstance(outcome, CompactedGroup)
            yield replace(outcome, processor_seconds=2.5)

    result = TableCompactor(catalog, compact_late, catalog.load_table).compact(PATH)
    assert (result.groups, result.dropped, result.processor_seconds) == (1, 1, 5.0)


def test_the_processor_time_of_a_compaction_counts_groups_that_have_failed(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, {number: "a"})

    def fail(_: TargetFiles, groups: Iterable[FileGroup], __: Any) -> Generator[GroupOutcome, None, None]:
        return (FailedGroup(group, RetryableError("the storage does not answer"), 2.5) for group in groups)

    assert TableCompactor(catalog, fail, catalog.load_table).compact(PATH).processor_seconds == 2.5


def test_a_group_that_fails_leaves_the_others(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    catalog.drop_table(PATH)
    make_eager(catalog, BY_PART)
    for number in range(4):
        land(catalog, {number: "a", number + 10: "b"})

    def fail_first(
        target: TargetFiles, groups: Iterable[FileGroup], access: Any
    ) -> Generator[GroupOutcome, None, None]:
        first, *others = groups
        yield FailedGroup(first, RetryableError("the storage does not answer"))
        yield from compact_here(target, others, access)

    result = TableCompactor(catalog, fail_first, catalog.load_table).compact(PATH)
    assert (result.commits, result.failed, result.files_after) == (1, 1, 1)
    assert len(values_of(catalog)) == 8
    assert "4 data file(s) were not compacted: the storage does not answer" in caplog.text


def test_new_credentials_that_the_catalog_refuses_fail_a_group_with_its_reason(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    catalog.properties[S3_EXPIRES_AT_MS] = "1"
    told: list[Fact] = []

    def reload(_: TableIdentifier) -> Table:
        raise SignInError("the catalog does not accept the sign-in")

    facts.report = told.append
    try:
        jobs: Any = SimpleNamespace(maintenance_tasks=1, maintain=pytest.fail)
        result = TableCompactor(catalog, compact_in(jobs), reload).compact(PATH)
    finally:
        facts.report = facts.drop
    assert (result.failed, result.errors) == (1, ("the catalog does not accept the sign-in",))
    assert facts.RefreshedCredentials(facts.RefreshFailure.REFUSED) in told


class SomeFail:
    """Compaction of a table with some files in each of these partitions. The groups of those in `failing` fail."""

    def __init__(self, catalog: Catalog, partitions: str) -> None:
        catalog.drop_table(PATH)
        make_eager(catalog, BY_PART)
        for first in (0, 100, 200, 300):
            land(catalog, {first + number: part for number, part in enumerate(partitions)})
        self.failing = set(partitions)
        self.begun: list[str] = []

    def __call__(
        self, target: TargetFiles, groups: Iterable[FileGroup], access: Any
    ) -> Generator[GroupOutcome, None, None]:
        for group in groups:
            [(_, partition)] = group.partition_values
            self.begun.append(partition)
            if partition in self.failing:
                yield FailedGroup(group, RetryableError("the storage does not answer"))
            else:
                yield from compact_here(target, [group], access)


def test_groups_that_keep_failing_keep_no_other_from_being_compacted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run takes three, and the first three fail."""
    now, some = [0.0], SomeFail(catalog, "abcdefg")
    monkeypatch.setattr(failure_pauses, "time", SimpleNamespace(monotonic=lambda: now[0]))
    compactor = TableCompactor(catalog, some, catalog.load_table)
    [group, *_] = compactor.plan(catalog.load_table(PATH)).groups
    budget = CompactionBudget(size=3.5 * group.size, commits=1)
    assert compactor.compact(PATH, budget).failed == 3
    failing, some.failing = some.begun[:], set(some.begun)
    assert [compactor.compact(PATH, budget).groups for _ in range(3)] == [3, 1, 0]
    assert not {*failing}.intersection(some.begun[3:])
    for pause in FIRST_PAUSE, 2 * FIRST_PAUSE:
        now[0] += pause - 1
        assert compactor.compact(PATH, budget).failed == 0
        now[0] += 1
        assert compactor.compact(PATH, budget).failed == 3
    some.failing.clear()
    now[0] += LONGEST_PAUSE
    assert (compactor.compact(PATH, budget).groups, compactor.plan(catalog.load_table(PATH)).size) == (3, 0)


def test_a_file_that_has_not_failed_for_long_has_the_first_pause_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a long session would remember all files that have ever failed."""
    now, pauses = [0.0], FailurePauses()
    monkeypatch.setattr(failure_pauses, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def fail_after(seconds: float) -> float:
        """Return how long the pause of the file is."""
        now[0] += seconds
        pauses.begin(["a"])
        began = now[0]
        while not pauses.are_over(["a"]):
            now[0] += FIRST_PAUSE
        return now[0] - began

    assert fail_after(0) == FIRST_PAUSE
    assert fail_after(LONGEST_PAUSE) == 2 * FIRST_PAUSE
    assert fail_after(LONGEST_PAUSE + 1) == FIRST_PAUSE


def test_groups_that_were_not_committed_let_others_go_first(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, because the tasks took more than an hour."""
    some = SomeFail(catalog, "ab")
    some.failing.clear()
    compactor = TableCompactor(catalog, some, catalog.load_table)
    budget = CompactionBudget(size=1.5 * compactor.plan(catalog.load_table(PATH)).groups[0].size, commits=1)
    with monkeypatch.context() as late:
        late.setattr(compaction_commit, "MAX_AGE", -1)
        with pytest.raises(RetryableError, match="took more than"):
            compactor.compact(PATH, budget)
    assert compactor.compact(PATH, budget).groups == 1
    assert compactor.compact(PATH, budget).groups == 0
    assert sorted(some.begun) == ["a", "b"]


def test_groups_are_tried_though_all_of_one_commit_have_failed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = SomeFail(catalog, "abcde")
    monkeypatch.setattr(compact_table_module, "COMMIT_SIZE", 10)
    compactor = TableCompactor(catalog, some, catalog.load_table)
    some.failing = {group.group.partition_values[0][1] for group in compactor.plan(catalog.load_table(PATH)).groups[:2]}
    result = compactor.compact(PATH)
    assert (result.failed, result.groups, len(some.begun)) == (2, 3, 5)


def damage_pages(content: bytes) -> bytes:
    return content[:60] + bytes(40) + content[100:]


def damage_footer(content: bytes) -> bytes:
    return content[:-60] + bytes(40) + content[-20:]


@pytest.mark.parametrize("damage", [lambda _: b"PAR1 nothing PAR1", lambda _: b"", damage_pages, damage_footer])
def test_a_file_that_cannot_be_read_is_left_out_and_its_neighbours_are_compacted(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes]
) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    damaged = files(catalog)[1]
    file = Path(damaged.removeprefix("file://"))
    file.write_bytes(damage(file.read_bytes()))
    compactor = TableCompactor(catalog, compact_here, catalog.load_table)
    result = compactor.compact(PATH)
    assert (result.commits, result.failed, result.files_before, result.debt) == (1, 1, 3, 0)
    assert damaged in files(catalog)
    assert caplog.text.count("1 data file(s) were not compacted") == 1
    for number in range(4, 8):
        land(catalog, {number: "a"})
    result = compactor.compact(PATH)
    assert (result.commits, result.failed, len(files(catalog))) == (1, 0, 2)


def test_an_unreadable_file_is_forgotten_when_the_table_no_longer_has_it(catalog: Catalog) -> None:
    """A long session would remember all of them. If another engine brings it back, it is tried once more."""
    land(catalog, {0: "a"})
    land(catalog, {1: "a"})
    before, readable = files(catalog), head(catalog)
    land(catalog, {2: "a"})
    [damaged] = {*files(catalog)}.difference(before)
    with_damaged = head(catalog)
    Path(damaged.removeprefix("file://")).write_bytes(b"")
    compactor = TableCompactor(catalog, compact_here, catalog.load_table)
    assert [compactor.compact(PATH).failed for _ in range(2)] == [1, 0]
    point(catalog, PATH, MAIN_BRANCH, readable)
    assert compactor.compact(PATH).failed == 0
    point(catalog, PATH, MAIN_BRANCH, with_damaged)
    assert [compactor.compact(PATH).failed for _ in range(2)] == [1, 0]


def test_a_file_whose_deleted_rows_are_unknown_is_left_out(catalog: Catalog) -> None:
    for number in range(6):
        land(catalog, {number: "a", number + 10: "a"})
    land(catalog, {}, removed=[2, 3])
    for path in delete_files(catalog):
        pq.write_table(pa.table({"file_path": ["a"], "pos": [None]}), path.removeprefix("file://"))
    deleted_rows._written.clear()  # as in the process of a worker, which has not written them
    before = set(files(catalog))
    result = TableCompactor(catalog, compact_here, catalog.load_table).compact(PATH)
    assert (result.failed, result.files_before, len(before & set(files(catalog)))) == (2, 4, 2)


def test_what_takes_longer_than_a_commit_may_wait_is_compacted_by_further_ones(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them begins one group at least."""
    catalog.drop_table(PATH)
    make_eager(catalog, BY_PART)
    for number in range(4):
        land(catalog, {number: "a", number + 10: "b", number + 20: "c"})
    monkeypatch.setattr(compact_table_module, "COMMIT_SECONDS", 0.0)
    result = TableCompactor(catalog, compact_here, catalog.load_table).compact(PATH)
    assert (result.commits, result.groups, result.files_before, result.debt) == (3, 3, 12, 0)


def test_a_group_that_is_larger_than_a_commit_should_be_has_one_of_its_own(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.drop_table(PATH)
    make_eager(catalog, BY_PART)
    for number in range(4):
        land(catalog, {number: "a", number + 10: "b"})
    monkeypatch.setattr(compact_table_module, "COMMIT_SIZE", 10)
    assert (
        TableCompactor(catalog, compact_here, catalog.load_table).compact(PATH, CompactionBudget(size=10)).commits == 0
    )
    result = TableCompactor(catalog, compact_here, catalog.load_table).compact(PATH)
    assert (result.commits, result.groups, result.files_before, result.debt) == (2, 2, 8, 0)


def test_a_compaction_is_logged_with_its_gain(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "connector")
    for number in range(3):
        land(catalog, {number: "a"})
    compact(catalog, PATH)
    [record] = [record for record in caplog.records if getattr(record, FIELDS, {}).get("event") == "compacted"]
    values = getattr(record, FIELDS)
    assert (values["table"], values["files"], values["newFiles"], values["rows"]) == ("shop.orders", 3, 1, 3)
    assert values["bytes"] > values["newBytes"]
    assert [name for name in values if not re.fullmatch("[a-z]+([A-Z][a-z]+)*", name)] == []


def test_an_interrupted_compaction_commits_nothing(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    with pytest.raises(InterruptedMaintenanceError):
        TableCompactor(catalog, compact_here, catalog.load_table).compact(PATH, interruption=Interruption(lambda: True))
    assert len(files(catalog)) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min-input-files", "few"),
        ("min-input-files", "1"),
        ("delete-ratio-threshold", "0"),
        ("delete-ratio-threshold", "nan"),
        ("max-file-size-bytes", "1"),
    ],
)
def test_an_invalid_threshold_is_named(catalog: Catalog, name: str, value: str) -> None:
    make_property(catalog, f"flow.compaction.{name}", value)
    land(catalog, {1: "a"})
    with pytest.raises(UserError) as caught:
        TableCompactor(catalog, compact_here, catalog.load_table).compact(PATH)
    check_text("compaction_errors", f"{name} {value}", str(caught.value))


def test_a_switch_that_is_neither_on_nor_off_is_named() -> None:
    with pytest.raises(ValueError, match="must be true or false") as caught:
        check_compaction({"flow.compaction.enabled": "maybe"})
    check_text("compaction_errors", "enabled", str(caught.value))


def make_property(catalog: Catalog, name: str, value: str) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({name: value})
