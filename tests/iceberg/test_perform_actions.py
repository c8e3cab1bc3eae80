"""The actions of `maintain` beside a task that goes on, within a budget, with the rows as they were."""

import logging
import threading
import time
from collections.abc import Callable, Container, Generator, Iterable
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table

from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.file_groups import FileGroup, GroupOutcome
from connector.host.errors import UserError
from connector.host.refresh import Refreshed
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.maintenance import perform_actions
from connector.iceberg.maintenance.action_outcomes import (
    ActionOutcome,
    ExpiryOutcome,
    Unfinished,
    is_finished,
)
from connector.iceberg.maintenance.actions import Action
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.maintenance.compaction_plan import CompactionPlan
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.find_orphan_files import OrphanFiles
from connector.iceberg.maintenance.perform_actions import Budget, Maintainer, OrphanChoice, TableInTurn
from connector.iceberg.maintenance.rewrite_manifests import ManifestPlan
from connector.iceberg.metadata.manifests import read_entries
from connector.iceberg.metadata.retention import MAX_AGE
from connector.model.properties import Properties
from connector.model.table_identifier import OWNER_PROPERTY, Owner
from connector.storage import stored_files
from connector.storage.file_access import S3_EXPIRES_AT_MS
from connector.storage.file_io import StoreFileIO
from support.bindings import PATH
from support.rows.staged_files import leave_behind
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import land, make_table, stage_updates, values_of
from support.tables.altered_tables import current_manifests
from support.tables.compacting import EAGER, compact_here
from support.tables.local_tables import record_property

OWNER: Final = Owner(WRITER.materialization, WRITER.state_key)
UNLIMITED: Final = Budget(None, None)


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_table(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({**EAGER, MAX_AGE: "0", OWNER_PROPERTY: OWNER.encode()})
    return catalog


def perform(
    catalog: Catalog,
    action: Action,
    budget: Budget = UNLIMITED,
    meanwhile: Callable[[], object] = lambda: None,
    *,
    is_dry_run: bool = False,
) -> ActionOutcome:
    """Performs an action. Before the commit of a compaction, something happens."""

    def compact(
        target: TargetFiles, groups: Iterable[FileGroup], access: Refreshed[Properties]
    ) -> Generator[GroupOutcome, None, None]:
        yield from list(compact_here(target, groups, access))
        meanwhile()

    new_compactor = partial(TableCompactor, catalog, compact, catalog.load_table)
    maintainer = Maintainer(catalog, new_compactor, budget, OrphanChoice(), is_dry_run=is_dry_run)
    return maintainer.perform(action, TableInTurn(catalog, PATH, OWNER, None))


def test_a_dry_run_plans_what_a_compaction_then_does(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {3: "b"}, removed=[5])
    before = catalog.load_table(PATH).metadata_location
    planned = perform(catalog, Action.COMPACT, is_dry_run=True)
    assert catalog.load_table(PATH).metadata_location == before
    done = perform(catalog, Action.COMPACT)
    assert isinstance(planned, CompactionPlan)
    assert isinstance(done, CompactionResult)
    assert (planned.files, planned.size) == (done.files_before, done.bytes_before)
    assert planned.rows == done.rows + done.deleted_rows
    assert done.deleted_rows == 2
    assert planned.files > 0
    again = perform(catalog, Action.COMPACT, is_dry_run=True)
    assert isinstance(again, CompactionPlan)
    assert again.groups == ()


@pytest.mark.parametrize("is_dry_run", [True, False], ids=["planned", "performed"])
def test_a_property_with_which_no_commit_is_possible_is_named(catalog: Catalog, *, is_dry_run: bool) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    record_property(catalog.load_table(PATH), "write.metadata.previous-versions-max", "many")
    with pytest.raises(UserError, match="many"):
        perform(catalog, Action.COMPACT, is_dry_run=is_dry_run)


def test_a_running_task_goes_on_after_each_action(catalog: Catalog) -> None:
    """Its rows are staged before the action, with the positions of the rows that they replace, and committed after."""
    expected = dict.fromkeys(range(10), 0)
    land(catalog, expected)
    for number, action in enumerate([*Action, *Action], start=1):
        staged = stage_updates(catalog, {number: number}, removed=[0] if number == 1 else ())
        perform(catalog, action)
        commit_all_or_raise(catalog, [staged])
        expected |= {number: number}
        expected.pop(0, None)
        assert values_of(catalog) == expected


def test_what_is_committed_while_files_are_compacted_is_kept(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, {number: "a", 10 + number: "a"})
    result = perform(catalog, Action.COMPACT, meanwhile=lambda: land(catalog, {1: "b", 9: "b"}, removed=[2]))
    assert isinstance(result, CompactionResult)
    assert result.commits > 0
    assert result.dropped == 0
    assert values_of(catalog) == {0: "a", 1: "b", 3: "a", 9: "b", 10: "a", 11: "a", 12: "a", 13: "a"}


def test_the_bytes_of_a_budget_are_shared_by_the_actions(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    planned = perform(catalog, Action.COMPACT, is_dry_run=True)
    assert isinstance(planned, CompactionPlan)
    budget = Budget(None, planned.size)
    for is_dry_run, kind in ((True, CompactionPlan), (False, CompactionResult)):
        budget = Budget(None, planned.size)
        outcome = perform(catalog, Action.COMPACT, budget, is_dry_run=is_dry_run)
        assert isinstance(outcome, kind)
        assert budget.bytes_left == 0
    for is_dry_run in (True, False):
        for action in (Action.COMPACT, Action.MANIFESTS):
            assert isinstance(perform(catalog, action, budget, is_dry_run=is_dry_run), Unfinished)
    # Deletions write nothing.
    assert isinstance(perform(catalog, Action.EXPIRE, budget), ExpiryOutcome)
    assert isinstance(perform(catalog, Action.ORPHANS, budget), OrphanFiles)


def test_the_manifests_of_a_table_are_read_once_to_plan_its_compaction_and_to_begin_it(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    manifests = {each.manifest_path for each in current_manifests(catalog.load_table(PATH))}
    read = list[str]()

    def note(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
        read.append(manifest.manifest_path)
        return read_entries(io, manifest)

    monkeypatch.setattr("connector.iceberg.metadata.listed_files.read_entries", note)
    perform(catalog, Action.COMPACT)
    assert sorted(path for path in read if path in manifests) == sorted(manifests)


def test_files_that_are_rewritten_for_nothing_count_for_the_budget(catalog: Catalog) -> None:
    """Another engine replaces them meanwhile."""
    for number in range(4):
        land(catalog, {number: "a"})

    def replace_files() -> None:
        table = catalog.load_table(PATH)
        table.overwrite(table.scan().to_arrow())

    planned = perform(catalog, Action.COMPACT, is_dry_run=True)
    assert isinstance(planned, CompactionPlan)
    budget = Budget(None, planned.size)
    result = perform(catalog, Action.COMPACT, budget, replace_files)
    assert isinstance(result, CompactionResult)
    assert (result.dropped, result.bytes_before, budget.bytes_left) == (1, 0, 0)


def test_many_deleted_files_are_reported_while_they_are_deleted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(perform_actions, "DELETED_AT_ONCE", 1)
    for number in range(3):
        land(catalog, {number: "a"})
    with caplog.at_level(logging.INFO, perform_actions.log.name):
        perform(catalog, Action.EXPIRE)
    reported = [record.getMessage() for record in caplog.records if record.name == perform_actions.log.name]
    assert reported == [f"table {PATH}: deleted {done} of 2 files" for done in (1, 2)]


DELETING: Final = (Action.EXPIRE, Action.ORPHANS)


def find_deletable(catalog: Catalog, action: Action) -> list[str]:
    """Make files that an action deletes, and return their locations."""
    for number in range(5):
        if action is Action.ORPHANS:
            leave_behind(catalog.load_table(PATH), WRITER)
        land(catalog, {number: "a"})
    planned = perform(catalog, action, is_dry_run=True)
    files = planned.deleted if isinstance(planned, ExpiryOutcome) else getattr(planned, "deletable", ())
    assert len(files) > 3
    return [file.location for file in files]


def refuse_deletions(monkeypatch: pytest.MonkeyPatch, kept: Container[str]) -> list[str]:
    """Let the store delete none of these files. Returns the files that are to be deleted from then on."""
    asked, delete = list[str](), StoreFileIO.delete

    def delete_or_fail(io: StoreFileIO, location: Any) -> None:
        asked.append(location)
        if location in kept:
            raise PermissionError("a legal hold")
        delete(io, location)

    monkeypatch.setattr(StoreFileIO, "delete", delete_or_fail)
    return asked


def remaining(catalog: Catalog, locations: Iterable[str]) -> list[str]:
    io = catalog.load_table(PATH).io
    return [location for location in locations if io.new_input(location).exists()]


@pytest.mark.parametrize("action", DELETING)
def test_a_file_that_cannot_be_deleted_keeps_no_other_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    locations = find_deletable(catalog, action)
    monkeypatch.setattr(perform_actions, "DELETED_AT_ONCE", 2)
    refuse_deletions(monkeypatch, {locations[1]})
    with pytest.raises(PermissionError, match="a legal hold"):
        perform(catalog, action)
    assert remaining(catalog, locations) == [locations[1]]


@pytest.mark.parametrize("action", DELETING)
def test_a_store_that_deletes_nothing_is_not_asked_for_each_file(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    """Each answer may take minutes."""
    locations = find_deletable(catalog, action)
    monkeypatch.setattr(stored_files, "MOST_FAILURES", 2)
    monkeypatch.setattr(stored_files, "map_in_threads", lambda call, things, _: [*map(call, things)])
    monkeypatch.setattr(perform_actions, "DELETED_AT_ONCE", 3)
    asked = refuse_deletions(monkeypatch, locations)
    with pytest.raises(PermissionError, match="a legal hold"):
        perform(catalog, action)
    assert asked == locations[:2]


def test_files_of_expired_snapshots_are_deleted_though_they_cannot_be_measured(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else says which files these are."""
    locations = find_deletable(catalog, Action.EXPIRE)

    def fail(*_: object) -> None:
        raise OSError("503 SlowDown")

    monkeypatch.setattr(perform_actions, "measure_files", fail)
    with caplog.at_level(logging.INFO, perform_actions.log.name):
        done = perform(catalog, Action.EXPIRE)
    assert isinstance(done, ExpiryOutcome)
    assert [(file.location, file.size) for file in done.deleted] == [(location, 0) for location in locations]
    assert remaining(catalog, locations) == []
    assert f"table {PATH}: the sizes of its expired files are not known: 503 SlowDown" in caplog.messages


def let_credentials_expire(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[FileIO]:
    """A catalog vends them with a table, and many files take longer than they last. These expire at once. Returns the
    FileIO of each table that is loaded."""
    vended, load_table = list[FileIO](), catalog.load_table

    def load(path: Any) -> Table:
        table = load_table(path)
        table.io = StoreFileIO({**table.io.properties, S3_EXPIRES_AT_MS: str(int(time.time() * 1000))})
        vended.append(table.io)
        return table

    monkeypatch.setattr(catalog, "load_table", load)
    return vended


@pytest.mark.parametrize("action", DELETING)
def test_files_are_deleted_with_credentials_that_are_valid_then(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    locations = find_deletable(catalog, action)
    vended, used, delete = let_credentials_expire(catalog, monkeypatch), list[int](), StoreFileIO.delete

    def note(io: StoreFileIO, location: Any) -> None:
        used.append(next(number for number, each in enumerate(vended) if each is io))
        delete(io, location)

    monkeypatch.setattr(StoreFileIO, "delete", note)
    perform(catalog, action)
    assert remaining(catalog, locations) == []
    assert len({*used}) == len(used) == len(locations)


@pytest.mark.parametrize("is_dry_run", [True, False], ids=["planned", "performed"])
def test_files_are_measured_with_credentials_that_are_valid_then(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, *, is_dry_run: bool
) -> None:
    locations = find_deletable(catalog, Action.EXPIRE)
    vended, numbers = let_credentials_expire(catalog, monkeypatch), list[int]()

    def measure(find_io: Callable[[], FileIO], locations: Iterable[str]) -> list[stored_files.StoredFile]:
        files = stored_files.measure_files(find_io, locations)
        numbers.append(len(vended))
        return files

    monkeypatch.setattr(perform_actions, "measure_files", measure)
    perform(catalog, Action.EXPIRE, is_dry_run=is_dry_run)
    assert numbers[0] > len(locations)


def test_files_are_compacted_though_a_property_of_the_manifests_is_invalid(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "many"})
    result = perform(catalog, Action.COMPACT)
    assert isinstance(result, CompactionResult)
    assert result.commits == 1


def test_a_group_that_is_larger_than_the_budget_is_left(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    result = perform(catalog, Action.COMPACT, Budget(None, 1))
    assert isinstance(result, CompactionResult)
    assert (result.commits, result.debt > 0) == (0, True)
    planned = perform(catalog, Action.COMPACT, Budget(None, 1), is_dry_run=True)
    assert isinstance(planned, CompactionPlan)
    assert planned.groups == ()


@pytest.mark.parametrize("action", Action)
def test_an_action_does_not_begin_when_the_time_is_over(catalog: Catalog, action: Action) -> None:
    land(catalog, {1: "a"})
    before = catalog.load_table(PATH).metadata_location
    assert isinstance(perform(catalog, action, Budget(0.0, None)), Unfinished)
    assert catalog.load_table(PATH).metadata_location == before


def test_what_is_compacted_when_the_time_ends_is_committed(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    late, monotonic = list[float](), time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + sum(late))
    budget = Budget(600.0, None)
    result = perform(catalog, Action.COMPACT, budget, lambda: late.append(601.0))
    assert isinstance(result, CompactionResult)
    assert result.commits == 1
    assert isinstance(perform(catalog, Action.MANIFESTS, budget), Unfinished)


def test_a_merge_of_some_manifests_is_not_finished(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    table = catalog.load_table(PATH)
    snapshot = table.current_snapshot()
    assert snapshot
    size = snapshot.manifests(table.io)[0].manifest_length
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": str(2 * size + 100)})
    assert is_finished(perform(catalog, Action.MANIFESTS, Budget(None, 1), is_dry_run=True))
    assert not is_finished(perform(catalog, Action.MANIFESTS, Budget(None, 1)))
    assert is_finished(perform(catalog, Action.MANIFESTS))


def test_time_that_ends_while_manifests_are_planned_merges_none(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    before, answers = catalog.load_table(PATH).metadata_location, iter([False, True])
    monkeypatch.setattr(Budget, "is_late", lambda _: next(answers))
    assert isinstance(perform(catalog, Action.MANIFESTS), Unfinished)
    assert catalog.load_table(PATH).metadata_location == before


def test_time_that_ends_while_it_turns_out_that_no_manifests_are_to_be_merged_does_not_matter(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(catalog, {1: "a"})
    answers = chain([False], repeat(True))
    monkeypatch.setattr(Budget, "is_late", lambda _: next(answers))
    assert is_finished(perform(catalog, Action.MANIFESTS))


def test_an_expiry_that_is_committed_when_the_time_ends_deletes_its_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    planned = perform(catalog, Action.EXPIRE, is_dry_run=True)
    answers = chain([False, False], repeat(True))  # before the action and before its commit
    monkeypatch.setattr(Budget, "is_late", lambda _: next(answers))
    done = perform(catalog, Action.EXPIRE)
    assert isinstance(planned, ExpiryOutcome)
    assert isinstance(done, ExpiryOutcome)
    assert [file.location for file in done.deleted] == [file.location for file in planned.deleted] != []
    assert not any(Path(file.location.removeprefix("file://")).exists() for file in done.deleted)


def test_manifests_are_merged_after_a_compaction(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    outcomes = [perform(catalog, action) for action in Action]
    assert [type(outcome) for outcome in outcomes] == [CompactionResult, ManifestPlan, ExpiryOutcome, OrphanFiles]
    assert values_of(catalog) == dict.fromkeys(range(4), "a")


def test_a_table_that_is_not_written_lets_no_later_table_overtake_an_earlier_one(catalog: Catalog) -> None:
    first = TableInTurn(catalog, PATH, OWNER, None)
    idle = TableInTurn(catalog, PATH, OWNER, first)
    last = TableInTurn(catalog, PATH, OWNER, idle)
    idle.end_turn()
    entered = threading.Event()

    def write() -> None:
        with last.written_in_turn():
            entered.set()

    writing = threading.Thread(target=write)
    writing.start()
    overtook = entered.wait(0.5)
    first.end_turn()
    writing.join()
    assert entered.is_set()
    assert not overtook
