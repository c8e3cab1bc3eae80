"""A session looks after its tables in the background: however many commits they get, they stay small."""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log2
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, ServiceUnavailableError
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetPropertiesUpdate

from connector.evolution.property_changes import DEFAULT_PROPERTIES
from connector.host import facts
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.commits import commit, snapshot
from connector.iceberg.commits.commit_outcomes import Committed
from connector.iceberg.maintenance import background, expire_snapshots
from connector.iceberg.maintenance.background import BackgroundMaintenance, run_maintenance
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.metadata.retention import GC_ENABLED, MAX_AGE
from connector.model.binding import RowSettings
from connector.storage.file_io import StoreFileIO, write_list
from protocol.flow import FieldSelection, Materialization, MaterializationBinding
from support.bindings import PATH
from support.rows.staged_files import leave_behind, stage
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import make_table, stage_updates, values_of
from support.sessions.processes import wait_until
from support.tables.local_tables import foreign_table, ids_of, local_catalog, prepend_to_log, table_of
from support.tables.outcomes import try_commits
from support.tables.planted_faults import Send, do_first, plant_always

FOLDED_AT: Final = 10
PREVIOUS_VERSIONS: Final = 5
MINUTE: Final = 60_000  # milliseconds
NOTHING_OLD: Final = {
    MAX_AGE: "0",
    "commit.manifest.min-count-to-merge": str(FOLDED_AT),
    "write.metadata.previous-versions-max": str(PREVIOUS_VERSIONS),
}


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH, properties=DEFAULT_PROPERTIES | NOTHING_OLD)
    return catalog


def metadata_files(catalog: Catalog) -> list[Path]:
    return list(Path(table_of(catalog).location().removeprefix("file://"), "metadata").iterdir())


def land(maintenance: BackgroundMaintenance, catalog: Catalog, *ids: int) -> Committed:
    [outcome] = try_commits(catalog, [stage(catalog, PATH, WRITER, *ids)])
    assert isinstance(outcome, Committed)
    maintenance.note_outcome(outcome)
    return outcome


def do_all(maintenance: BackgroundMaintenance) -> None:
    maintenance.finish()
    maintenance.run()


def bound(catalog: Catalog) -> list[BoundTable]:
    binding = MaterializationBinding(
        resource_path=PATH, state_key=WRITER.state_key, field_selection=FieldSelection(keys=("id",))
    )
    task = Materialization(name=WRITER.materialization, bindings=(binding,))
    return bind_all(catalog, task, WRITER.key_range, [RowSettings()])


@pytest.fixture
def in_background(catalog: Catalog) -> Iterator[BackgroundMaintenance]:
    """A session's, which is let do all that it has begun with."""
    with run_maintenance(catalog) as running:
        yield running


def wait_until_done(running: BackgroundMaintenance) -> None:
    running.finish()
    for thread in threading.enumerate():
        if thread.name == "maintenance":
            thread.join()


@dataclass(frozen=True)
class Size:
    """What a table has grown to."""

    snapshots: int
    manifests: int
    metadata_json_bytes: int
    metadata_files: int

    @classmethod
    def of(cls, catalog: Catalog) -> "Size":
        table = table_of(catalog)
        current = table.current_snapshot()
        assert current
        length = len(table.io.new_input(table.metadata_location))
        return cls(len(table.snapshots()), len(current.manifests(table.io)), length, len(metadata_files(catalog)))


def test_a_table_grows_no_more_once_its_first_snapshots_have_expired(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One a minute, each kept for twenty."""
    with table_of(catalog).transaction() as change:
        change.set_properties({MAX_AGE: str(20 * MINUTE)})
    maintenance, sizes, now = BackgroundMaintenance(catalog), [], time.time_ns()
    for module in (expire_snapshots, snapshot, background):
        monkeypatch.setattr(module, "time", SimpleNamespace(time_ns=lambda: now, monotonic=time.monotonic))
    for number in range(120):
        now += MINUTE * 10**6
        land(maintenance, catalog, number)
        do_all(maintenance)
        if number >= 40:
            sizes.append(Size.of(catalog))
    early, late = sizes[:40], sizes[40:]
    assert max(size.snapshots for size in late) == max(size.snapshots for size in early) <= 20 * 1.25 + 2
    assert max(size.manifests for size in late) < FOLDED_AT + log2(120)
    assert max(size.metadata_json_bytes for size in late) < 1.02 * max(size.metadata_json_bytes for size in early)
    assert max(size.metadata_files for size in late) < 1.1 * max(size.metadata_files for size in early)
    assert ids_of(catalog, PATH) == list(range(120))


def test_an_expiry_makes_no_commit_of_its_session_fail(catalog: Catalog) -> None:
    """It holds the lock that the session's commits wait for."""
    locks, held = snapshot.TableLocks(), []
    maintenance = BackgroundMaintenance(catalog, locks=locks)
    for number in range(2):
        land(maintenance, catalog, number)
    plant_always(catalog, do_first(lambda: held.append(locks.of(PATH).locked())))
    do_all(maintenance)
    assert held == [True]
    assert len(table_of(catalog).snapshots()) == 1


def test_a_table_that_keeps_one_snapshot_has_no_other_files(catalog: Catalog) -> None:
    maintenance = BackgroundMaintenance(catalog)
    for number in range(3 * FOLDED_AT):
        land(maintenance, catalog, number)
        do_all(maintenance)
    size = Size.of(catalog)
    assert size.snapshots == len(table_of(catalog).metadata.snapshot_log) == 1
    # The newest metadata file and those that it names, a manifest list, and the manifests.
    assert size.metadata_files == 1 + PREVIOUS_VERSIONS + 1 + size.manifests


def test_of_the_metadata_files_those_stay_that_the_table_names_though_it_expires_nothing(catalog: Catalog) -> None:
    with table_of(catalog).transaction() as change:
        change.set_properties({GC_ENABLED: "false"})
    maintenance = BackgroundMaintenance(catalog)
    for number in range(12):
        land(maintenance, catalog, number)
    do_all(maintenance)
    table = table_of(catalog)
    named = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    assert len(named) == 1 + PREVIOUS_VERSIONS
    assert {f"file://{file}" for file in metadata_files(catalog) if file.name.endswith(".json")} == named


def test_metadata_files_stay_where_the_table_says_so(catalog: Catalog) -> None:
    with table_of(catalog).transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "false"})
    maintenance, before = (
        BackgroundMaintenance(catalog),
        len([f for f in metadata_files(catalog) if f.name.endswith(".json")]),
    )
    for number in range(8):
        land(maintenance, catalog, number)
    do_all(maintenance)
    expiry = 1
    assert len([f for f in metadata_files(catalog) if f.name.endswith(".json")]) == before + 8 + expiry


@pytest.fixture
def foreign_file(catalog: Catalog) -> Path:
    """The metadata file of another table, which the log of the first one names in two ways."""
    others = foreign_table(catalog, ("shop", "others"))
    file = Path(others.metadata_location.removeprefix("file://"))
    own = table_of(catalog).location()
    for location in (f"file://{file}", f"{own}/../others/metadata/{file.name}"):
        prepend_to_log(table_of(catalog), location)
    assert Path(f"{own.removeprefix('file://')}/../others/metadata/{file.name}").exists()
    return file


def test_no_file_of_another_table_goes_because_the_log_has_named_it(catalog: Catalog, foreign_file: Path) -> None:
    """Anyone who can commit to the table writes its log."""
    first = table_of(catalog).metadata_location
    maintenance = BackgroundMaintenance(catalog)
    for number in range(2 * PREVIOUS_VERSIONS):
        land(maintenance, catalog, number)
        do_all(maintenance)
    named = [entry.metadata_file for entry in table_of(catalog).metadata.metadata_log]
    assert not any(location.endswith(foreign_file.name) for location in named)
    assert not Path(first.removeprefix("file://")).exists()
    assert foreign_file.exists()


def test_no_file_of_another_table_goes_with_a_commit_of_pyiceberg(catalog: Catalog, foreign_file: Path) -> None:
    for number in range(2 * PREVIOUS_VERSIONS):
        with table_of(catalog).transaction() as change:
            change.set_properties({"number": str(number)})
    assert foreign_file.exists()


def test_metadata_that_lost_a_race_goes_once_no_commit_can_be_waiting_for_it(catalog: Catalog) -> None:
    maintenance = BackgroundMaintenance(catalog)
    stale = table_of(catalog)
    land(maintenance, catalog, 0)
    before = set(metadata_files(catalog))
    with pytest.raises(CommitFailedException):
        catalog.commit_table(stale, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    [lost] = set(metadata_files(catalog)) - before
    do_all(maintenance)
    assert lost.exists()
    for number in range(1, 2 * PREVIOUS_VERSIONS):
        land(maintenance, catalog, number)
        do_all(maintenance)
    assert not lost.exists()


def test_metadata_of_a_renamed_table_stay_though_its_name_and_its_directory_are_taken(catalog: Catalog) -> None:
    maintenance = BackgroundMaintenance(catalog)
    land(maintenance, catalog, 0)
    catalog.rename_table(PATH, ("shop", "renamed"))
    foreign_table(catalog, PATH, properties=DEFAULT_PROPERTIES | NOTHING_OLD)
    for number in range(1, 2 * PREVIOUS_VERSIONS):
        land(maintenance, catalog, number)
        do_all(maintenance)
    assert table_of(catalog).location() == catalog.load_table(("shop", "renamed")).location()
    assert ids_of(catalog, ("shop", "renamed")) == [0]


def test_a_session_does_what_earlier_ones_have_left_undone(
    catalog: Catalog, in_background: BackgroundMaintenance
) -> None:
    left = leave_behind(table_of(catalog), WRITER)
    for number in range(3):
        land(BackgroundMaintenance(catalog), catalog, number)
    in_background.finish_earlier_work(bound(catalog), [])
    wait_until_done(in_background)
    assert not table_of(catalog).io.new_input(left).exists()
    assert len(table_of(catalog).snapshots()) == 1


def test_what_follows_a_commit_is_done_before_what_earlier_sessions_have_left(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In many tables with a long history, that may take hours, and no table would be compacted before."""
    actions = list[str]()

    def note(fact: facts.Fact) -> None:
        if isinstance(fact, facts.MaintenanceRun):
            actions.append(fact.action)

    monkeypatch.setattr(facts, "report", note)
    maintenance = BackgroundMaintenance(catalog, lambda *_: actions.append(facts.COMPACT_DATA_FILES))
    maintenance.finish_earlier_work(bound(catalog), [])
    land(maintenance, catalog, 1)
    land(maintenance, catalog, 2)
    do_all(maintenance)
    after_commit = [facts.COMPACT_DATA_FILES, facts.EXPIRE_SNAPSHOTS]
    assert actions == [*after_commit, facts.REMOVE_ORPHAN_FILES, facts.EXPIRE_SNAPSHOTS]


def test_a_failure_is_a_warning_and_keeps_nothing_else_from_being_done(
    catalog: Catalog,
    in_background: BackgroundMaintenance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object) -> int:
        raise ServiceUnavailableError("503")

    monkeypatch.setattr(background, "remove_task_orphans", refuse)
    for number in range(3):
        land(BackgroundMaintenance(catalog), catalog, number)
    in_background.finish_earlier_work(bound(catalog), [])
    wait_until_done(in_background)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [("shop.orders" in warning, "503" in warning) for warning in warnings] == [(True, True)]
    assert len(table_of(catalog).snapshots()) == 1


def test_a_failure_to_find_out_what_is_due_is_not_one_of_the_commit(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The table has the rows. The expiry, which reads the same metadata, says what is wrong."""

    def fail(*_: object) -> None:
        raise LookupError("odd metadata")

    for module in (background, expire_snapshots):
        monkeypatch.setattr(module, "find_due", fail)
    maintenance = BackgroundMaintenance(catalog)
    land(maintenance, catalog, 1)
    maintenance.finish()
    maintenance.run()
    assert "old snapshots were not expired: LookupError: odd metadata" in caplog.text


def test_orphans_that_could_not_be_removed_are_tried_again_by_the_same_session(
    catalog: Catalog, in_background: BackgroundMaintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session may last for weeks, and each failure counts for the alarm."""
    ended = list[bool]()
    answers = iter([ServiceUnavailableError("503"), ServiceUnavailableError("503"), None])

    def fail_twice(*arguments: Any) -> int:
        if error := next(answers):
            raise error
        return remove_task_orphans(*arguments)

    def note(fact: facts.Fact) -> None:
        if isinstance(fact, facts.MaintenanceRun) and fact.action == facts.REMOVE_ORPHAN_FILES:
            ended.append(fact.has_failed)

    monkeypatch.setattr(background, "remove_task_orphans", fail_twice)
    monkeypatch.setattr(background, "PAUSE", 0.0)
    monkeypatch.setattr(facts, "report", note)
    left = leave_behind(table_of(catalog), WRITER)
    land(BackgroundMaintenance(catalog), catalog, 1)
    land(BackgroundMaintenance(catalog), catalog, 2)
    in_background.finish_earlier_work(bound(catalog), [])
    assert wait_until(lambda: ended == [True, True, False])
    assert not table_of(catalog).io.new_input(left).exists()


def test_a_property_that_makes_no_sense_is_a_warning_and_the_commit_lands(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    with table_of(catalog).transaction() as change:
        change.set_properties({MAX_AGE: "a while"})
    maintenance = BackgroundMaintenance(catalog)
    assert land(maintenance, catalog, 1).attempts == 1
    do_all(maintenance)
    assert ids_of(catalog, PATH) == [1]
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "shop.orders: old snapshots were not expired" in warning
    assert MAX_AGE in warning


@pytest.fixture
def expiries(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each expiry has failed."""
    ended = list[bool]()

    def note(fact: facts.Fact) -> None:
        if isinstance(fact, facts.MaintenanceRun) and fact.action == facts.EXPIRE_SNAPSHOTS:
            ended.append(fact.has_failed)

    monkeypatch.setattr(facts, "report", note)
    return ended


def test_an_invalid_property_of_expiry_is_a_failure_of_expiry_that_is_not_repeated_with_each_commit(
    catalog: Catalog, expiries: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    with table_of(catalog).transaction() as change:
        change.set_properties({MAX_AGE: "-1"})
    maintenance = BackgroundMaintenance(catalog)
    for number in range(3):
        land(maintenance, catalog, number)
        do_all(maintenance)
    assert expiries == [True]
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert MAX_AGE in warning


def test_an_expiry_that_the_catalog_refuses_for_good_has_failed_and_pauses(
    catalog: Catalog, expiries: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    maintenance, refused = BackgroundMaintenance(catalog), list[int]()

    def forbid(send: Send) -> Any:
        if any(isinstance(update, RemoveSnapshotsUpdate) for update in send.args[-1]):
            refused.append(1)
            raise ForbiddenError("not allowed")
        return send()

    plant_always(catalog, forbid)
    for number in range(4):
        land(maintenance, catalog, number)
        do_all(maintenance)
    assert (len(refused), expiries) == (1, [True])
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "old snapshots were not expired" in warning
    assert "the catalog forbids a commit to expire snapshots (not allowed)" in warning
    maintenance._expiry_pauses.clear()
    land(maintenance, catalog, 5)
    do_all(maintenance)
    assert len(refused) == 2


def test_a_table_whose_expired_files_cannot_be_deleted_does_not_expire_again_at_once(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, expiries: list[bool]
) -> None:
    """Each expiry would leave more files in memory, which are tried again each hour."""

    def refuse(*_: object) -> None:
        raise OSError("403 Forbidden")

    monkeypatch.setattr(StoreFileIO, "delete", refuse)
    maintenance = BackgroundMaintenance(catalog)
    for number in range(4):
        land(maintenance, catalog, number)
        do_all(maintenance)
    assert expiries == [True]


def test_a_session_that_ends_waits_for_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    hung, released = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        hung.set()
        released.wait(60)

    monkeypatch.setattr(background, "remove_task_orphans", hang)
    with run_maintenance(catalog) as running:
        running.finish_earlier_work(bound(catalog), [])
        hung.wait()
    assert "maintenance" in {thread.name for thread in threading.enumerate()}
    released.set()


@pytest.mark.parametrize("max_age", ["1000", "a while"], ids=str)
def test_located_rows_are_deleted_after_their_commit(tmp_path: Path, max_age: str) -> None:
    """Also if nothing can be said of the table's snapshots."""
    catalog = local_catalog(tmp_path)
    make_table(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({MAX_AGE: max_age})
    commit.commit_all_or_raise(catalog, [stage_updates(catalog, {1: "a", 2: "a"})])
    staged = stage_updates(catalog, {1: "b"})
    [outcome] = try_commits(catalog, [staged])
    assert isinstance(outcome, Committed)
    assert len(list(tmp_path.rglob("*-located.parquet"))) == 1
    maintenance = BackgroundMaintenance(catalog)
    maintenance.note_outcome(outcome)
    do_all(maintenance)
    assert not list(tmp_path.rglob("*-located.parquet"))
    assert values_of(catalog) == {1: "b", 2: "a"}


def test_lists_of_data_files_are_deleted_after_the_next_commit_of_their_table(catalog: Catalog) -> None:
    """The state names the list of the last commit until it has the next one, also if the session ends before."""
    maintenance, lists = BackgroundMaintenance(catalog), list[str]()

    def land_listed(number: int) -> None:
        staged = stage(catalog, PATH, WRITER, number)
        assert isinstance(staged.files, tuple)
        lists.append(f"{staged.files[0].path}-files.json")
        listed = write_list(table_of(catalog).io, lists[-1], staged.files)
        for outcome in try_commits(catalog, [replace(staged, files=listed)]):
            maintenance.note_outcome(outcome)

    def left() -> list[str]:
        do_all(maintenance)
        return [location for location in lists if Path(location.removeprefix("file://")).exists()]

    land_listed(1)
    assert left() == lists
    land_listed(2)
    land_listed(3)  # before the maintenance has looked at the one before
    assert left() == lists[2:]
    land(maintenance, catalog, 4)
    assert left() == []
    assert ids_of(catalog, PATH) == [1, 2, 3, 4]
