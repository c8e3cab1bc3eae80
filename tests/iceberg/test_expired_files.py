"""Files of expired snapshots are deleted although some of them, or their lists, cannot be reached at first."""

import logging
import time
from functools import partial
from posixpath import basename
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from connector.host import facts
from connector.iceberg.maintenance import background, expired_files
from connector.iceberg.maintenance.background import BackgroundMaintenance, run_maintenance
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots, plan_expiry
from connector.iceberg.maintenance.expired_files import UnfinishedExpiryError
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.metadata.old_metadata import DELETE_OLD_METADATA
from connector.iceberg.metadata.retention import GC_ENABLED
from connector.storage import stored_files
from connector.storage.file_access import S3_EXPIRES_AT_MS
from connector.storage.file_io import StoreFileIO
from connector.storage.stored_files import keep_io_fresh
from support.bindings import PATH
from support.engines.snapshot_refs import tag
from support.rows.staged_files import land, leave_behind, place_of, stage
from support.rows.staged_rows import WRITER
from support.sessions.processes import wait_until
from support.tables.expiring_tables import NOTHING_OLD, left, referred_to
from support.tables.local_tables import foreign_table, table_of
from support.tables.outcomes import try_commits


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """Its table has snapshots that are due to expire."""
    foreign_table(catalog, PATH, properties=NOTHING_OLD)
    for number in range(5):
        land(catalog, number)
    return catalog


class Store:
    """Deletes files, and fails at some deletions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failing: int) -> None:
        """`failing` are the numbers of the deletions that fail."""
        self.tried: list[str] = []
        self.failing = {*failing}
        self.locked = ""  # a file that cannot be deleted
        delete = StoreFileIO.delete

        def delete_or_fail(io: StoreFileIO, location: Any) -> None:
            self.tried.append(location)
            if len(self.tried) in self.failing or location == self.locked:
                raise OSError("503 SlowDown")
            delete(io, location)

        monkeypatch.setattr(StoreFileIO, "delete", delete_or_fail)
        monkeypatch.setattr(stored_files, "map_in_threads", lambda call, things, _: [*map(call, things)])


def test_a_deletion_that_fails_keeps_no_other_file_and_is_made_up_for(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    planned = len(plan_expiry(table_of(catalog)).locations)
    store = Store(monkeypatch, 3)
    with pytest.raises(UnfinishedExpiryError) as error:
        expire_snapshots(catalog, PATH)
    assert f"table shop.orders: expired 4 snapshot(s), deleted {planned - 1} file(s)" in caplog.messages
    files = error.value.files
    files.delete()
    assert store.tried[planned:] == [store.tried[2]]
    assert (files.deleted, left(catalog)) == (planned, referred_to(catalog))


def test_a_store_that_has_failed_is_not_asked_for_each_file(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer may take minutes. The files that were not tried come first next time."""
    monkeypatch.setattr(stored_files, "MOST_FAILURES", 2)
    planned = len(plan_expiry(table_of(catalog)).locations)
    store = Store(monkeypatch, 2, 3)
    with pytest.raises(UnfinishedExpiryError) as error:
        expire_snapshots(catalog, PATH)
    assert len(store.tried) == 3
    error.value.files.delete()
    assert len(store.tried) == 3 + planned - 1
    assert store.tried[-2:] == store.tried[1:3]
    assert left(catalog) == referred_to(catalog)


def test_files_that_could_not_be_found_are_looked_for_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    expiry = _expire_unfound(catalog, monkeypatch)
    land(catalog, 5)
    expiry.files.delete()
    assert left(catalog) == referred_to(catalog)


def test_files_are_not_looked_for_again_if_a_snapshot_that_stays_lacks_its_list(catalog: Catalog) -> None:
    """Each expiry would keep the metadata of before and after until the session ends."""
    snapshot = table_of(catalog).snapshots()[0]
    tag(catalog, PATH, "audit", snapshot.snapshot_id, 10**12)
    table_of(catalog).io.delete(snapshot.manifest_list)
    with pytest.raises(UnfinishedExpiryError) as error:
        expire_snapshots(catalog, PATH)
    assert isinstance(error.value.__cause__, FileNotFoundError)
    before = left(catalog)
    error.value.files.delete()
    assert left(catalog) == before


def _expire_unfound(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> UnfinishedExpiryError:
    """The files of the expired snapshots cannot be found meanwhile."""

    def fail(_: object, after: Table, *__: object) -> list[str]:
        del after.io  # its credentials have expired by the next time
        raise OSError("503 SlowDown")

    with monkeypatch.context() as patch:
        patch.setattr(expired_files, "find_unreachable", fail)
        with pytest.raises(UnfinishedExpiryError) as error:
            expire_snapshots(catalog, PATH)
    return error.value


@pytest.mark.parametrize("change", ["dropped", "another table", "kept", "restored"])
def test_files_stay_that_may_not_be_deleted_any_more(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A dropped table may be another one in another catalog, and the metadata of before may be registered again."""
    table, store = table_of(catalog), Store(monkeypatch, 1)
    with pytest.raises(UnfinishedExpiryError) as error:
        expire_snapshots(catalog, PATH)
    if change == "kept":
        with table_of(catalog).transaction() as transaction:
            transaction.set_properties({GC_ENABLED: "false"})
    else:
        catalog.drop_table(PATH)
    if change == "another table":
        foreign_table(catalog, PATH)
    if change == "restored":
        catalog.register_table(PATH, table.metadata_location)
    for _ in range(2):
        error.value.files.delete()
    assert table.io.new_input(store.tried[0]).exists()


def test_a_copy_from_before_several_unfinished_expiries_loses_no_file(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has snapshots of the first expiry only, and the second one would delete manifests that they share."""
    one_version = {DELETE_OLD_METADATA: "true", "write.metadata.previous-versions-max": "1"}
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties(one_version)
    copy = table_of(catalog).metadata_location
    land(catalog, 5)
    expiries = [_expire_only(catalog, monkeypatch)]
    land(catalog, 6)
    expiries.append(_expire_only(catalog, monkeypatch))
    catalog.drop_table(PATH)
    catalog.register_table(PATH, copy)
    for expiry in expiries:
        expiry.files.delete()
    assert table_of(catalog).metadata_location == copy
    assert referred_to(catalog) <= left(catalog)


def _expire_only(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> UnfinishedExpiryError:
    """The store deletes no file meanwhile."""
    with monkeypatch.context() as patch:
        Store(patch, *range(1000))
        with pytest.raises(UnfinishedExpiryError) as error:
            expire_snapshots(catalog, PATH)
    return error.value


def test_files_that_were_not_found_stay_in_the_newest_copy_if_an_older_one_is_restored_for_a_time(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = table_of(catalog).metadata_location
    land(catalog, 5)
    expiry = _expire_unfound(catalog, monkeypatch)
    newest = table_of(catalog).metadata_location
    for copy in (old, newest):
        catalog.drop_table(PATH)
        catalog.register_table(PATH, copy)
        expiry.files.delete()
        assert referred_to(catalog) <= left(catalog)


def test_a_session_deletes_what_it_could_not_delete_an_hour_before(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = list[bool]()

    def note(fact: facts.Fact) -> None:
        if isinstance(fact, facts.MaintenanceRun) and fact.action == facts.EXPIRE_SNAPSHOTS:
            ended.append(fact.has_failed)

    monkeypatch.setattr(facts, "report", note)
    monkeypatch.setattr(background, "PAUSE", 0.0)
    Store(monkeypatch, 3)
    with run_maintenance(catalog) as maintenance:
        [outcome] = try_commits(catalog, [stage(catalog, PATH, WRITER, 5)])
        maintenance.note_outcome(outcome)
        assert wait_until(lambda: len(ended) == 2)
    assert ended == [True, False]
    assert left(catalog) == referred_to(catalog)
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning == "table shop.orders: files of expired snapshots were not deleted: OSError: 503 SlowDown"


def test_one_attempt_an_hour_deletes_what_all_expiries_of_a_table_have_left(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may refuse for days, and a session has hundreds of tables. A file that stays locked keeps no other."""
    maintenance, ended = BackgroundMaintenance(catalog), list[bool]()

    def note(fact: facts.Fact) -> None:
        if isinstance(fact, facts.MaintenanceRun) and fact.action == facts.EXPIRE_SNAPSHOTS:
            ended.append(fact.has_failed)
            maintenance.finish()  # each run ends after one attempt

    monkeypatch.setattr(facts, "report", note)
    monkeypatch.setattr(background, "PAUSE", 0.0)
    store = Store(monkeypatch, *range(1000))
    for number in (5, 6):
        [outcome] = try_commits(catalog, [stage(catalog, PATH, WRITER, number)])
        maintenance.note_outcome(outcome)
        maintenance.run()
    store.failing, store.locked = set(), store.tried[0]
    for _ in range(2):
        maintenance.run()
    assert left(catalog) - referred_to(catalog) == {basename(store.locked)}
    store.locked = ""
    maintenance.run()
    assert left(catalog) == referred_to(catalog)
    assert ended == [True, True, True, True, False]
    assert not maintenance._failed, "both expiries had one task"


def test_each_deletion_has_credentials_that_are_valid_then(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many files may take longer than the credentials last that a catalog vends with a table."""
    loads, used, load_table, delete = list[Table](), list[FileIO](), catalog.load_table, StoreFileIO.delete

    def load(path: Any) -> Table:
        table = load_table(path)
        now = str(int(time.time() * 1000))
        table.io = StoreFileIO({**table.io.properties, S3_EXPIRES_AT_MS: now, "number": str(len(loads))})
        loads.append(table)
        return table

    def note(io: StoreFileIO, location: Any) -> None:
        used.append(io)
        delete(io, location)

    monkeypatch.setattr(catalog, "load_table", load)
    monkeypatch.setattr(StoreFileIO, "delete", note)
    assert expire_snapshots(catalog, PATH) == len(used) > 5
    assert len({io.properties["number"] for io in used}) == len(used)


def test_credentials_for_another_table_of_the_name_are_not_used(catalog: Catalog) -> None:
    expired = table_of(catalog)
    expired.io = StoreFileIO({**expired.io.properties, S3_EXPIRES_AT_MS: str(int(time.time() * 1000))})
    find_io = keep_io_fresh(PATH, expired, partial(table_of, catalog))
    assert find_io() is not expired.io
    catalog.drop_table(PATH)
    foreign_table(catalog, PATH)
    find_io = keep_io_fresh(PATH, expired, partial(table_of, catalog))
    with pytest.raises(NoSuchTableError, match="another table"):
        find_io()


def test_an_orphan_file_that_cannot_be_deleted_keeps_no_other_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphans = [leave_behind(table_of(catalog), WRITER) for _ in range(3)]
    Store(monkeypatch, 2)
    with pytest.raises(OSError, match="503 SlowDown"):
        remove_task_orphans(catalog, PATH, WRITER, [])
    assert [place_of(location).exists() for location in sorted(orphans)] == [False, True, False]
    assert remove_task_orphans(catalog, PATH, WRITER, []) == 1
