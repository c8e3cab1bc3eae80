"""An expiry beside commits, new references, other expiries and a replaced table: nothing is lost or told wrongly."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException, ForbiddenError, ServiceUnavailableError
from pyiceberg.table.refs import SnapshotRefType

from connector.host.errors import UserError
from connector.host.logs import FIELDS
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from support.bindings import PATH
from support.engines.snapshot_refs import set_ref, tag
from support.rows.staged_files import land, leave_behind
from support.rows.staged_rows import WRITER
from support.tables.expiring_tables import NOTHING_OLD, head, ids_at, left, referred_to
from support.tables.local_tables import foreign_table, ids_of, table_of
from support.tables.planted_faults import Send, do_after, do_first, lose_answer, no_fault, plant, refuse


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH, properties=NOTHING_OLD)
    return catalog


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_reference_that_is_made_in_that_moment_is_not_lost(catalog: Catalog, kind: str) -> None:
    land(catalog, 1)
    old = head(catalog)
    land(catalog, 2)

    def refer() -> None:
        manage = table_of(catalog).manage_snapshots()
        (manage.create_tag(old, "late") if kind == "tag" else manage.create_branch(old, "late")).commit()

    plant(catalog, [do_first(refer)])
    assert expire_snapshots(catalog, PATH) == 0
    assert table_of(catalog).refs()["late"].snapshot_id == old
    assert ids_at(catalog, old) == [1]


@pytest.mark.parametrize("kind", [SnapshotRefType.TAG, SnapshotRefType.BRANCH])
def test_an_old_reference_that_moves_in_that_moment_stays(catalog: Catalog, kind: SnapshotRefType) -> None:
    land(catalog, 1)
    update = set_ref("release", head(catalog), kind).model_copy(update={"max_ref_age_ms": 1})
    catalog.commit_table(table_of(catalog), (), (update,))
    land(catalog, 2)
    moved = update.model_copy(update={"snapshot_id": head(catalog)})

    plant(catalog, [do_first(lambda: catalog.commit_table(table_of(catalog), (), (moved,)))])
    assert expire_snapshots(catalog, PATH) == 0
    assert table_of(catalog).refs()["release"].snapshot_id == moved.snapshot_id


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_about_a_reference_is_looked_for_in_the_table(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, landed: bool
) -> None:
    caplog.set_level(logging.INFO)
    land(catalog, 1)
    tag(catalog, PATH, "release", head(catalog), max_ref_age_ms=1)
    time.sleep(0.01)

    plant(catalog, [(lose_answer if landed else refuse)(CommitStateUnknownException("500"))])
    assert expire_snapshots(catalog, PATH) == 0
    assert ("release" not in table_of(catalog).refs()) is landed
    removed = "table shop.orders: removed branches or tags at their maximum age: release"
    assert (removed in caplog.messages) is landed
    assert ("table shop.orders: no snapshot was expired: 500" in caplog.messages) is not landed


def test_of_two_that_expire_at_once_the_slower_one_finds_it_done(catalog: Catalog) -> None:
    for number in range(5):
        land(catalog, number)
    faster = []

    plant(catalog, [do_first(lambda: faster.append(expire_snapshots(catalog, PATH)))])
    assert expire_snapshots(catalog, PATH) == 0
    assert faster[0] > 0
    assert left(catalog) == referred_to(catalog)
    assert ids_of(catalog, PATH) == list(range(5))


def test_a_commit_that_an_expiry_overtakes_lands_all_the_same(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        land(catalog, number)
    append = SnapshotWriter.append

    def overtaken(writer: SnapshotWriter, *arguments: Any) -> Any:
        snapshot = append(writer, *arguments)
        expire_snapshots(catalog, PATH)
        return snapshot

    monkeypatch.setattr(SnapshotWriter, "append", overtaken)
    land(catalog, 5)
    assert ids_of(catalog, PATH) == list(range(6))


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_is_looked_for_in_the_table(catalog: Catalog, landed: bool) -> None:
    for number in range(3):
        land(catalog, number)
    before = left(catalog)

    plant(catalog, [(lose_answer if landed else refuse)(CommitStateUnknownException("500"))])
    assert (expire_snapshots(catalog, PATH) > 0) is landed
    assert (left(catalog) < before) is landed
    assert left(catalog) == referred_to(catalog)


def test_an_expiry_that_the_catalog_refuses_for_good_is_an_error(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, number)
    plant(catalog, [refuse(ForbiddenError("not allowed"))])
    with pytest.raises(UserError, match="forbids a commit to expire snapshots"):
        expire_snapshots(catalog, PATH)


def test_an_expiry_that_was_not_committed_is_not_told_as_done(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(3):
        land(catalog, number)
    plant(catalog, [refuse(CommitStateUnknownException("500"))])
    expire_snapshots(catalog, PATH)
    assert "table shop.orders: no snapshot was expired: 500" in caplog.messages
    assert not [record for record in caplog.records if getattr(record, FIELDS, {}).get("event") == "expired"]


def test_snapshots_that_expire_under_the_eyes_of_one_who_reads_them_do_not_stop_it(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, number)

    expired = do_after(lambda: expire_snapshots(catalog, PATH))
    plant(catalog, [no_fault, expired], "load_table")  # the collector judges by the second
    remove_task_orphans(catalog, PATH, WRITER, [])
    assert left(catalog) == referred_to(catalog)


def test_files_of_a_table_that_was_renamed_meanwhile_are_not_judged_by_the_one_that_took_its_name(
    catalog: Catalog,
) -> None:
    leave_behind(table_of(catalog), WRITER)  # to find it unreferenced, every snapshot has to be read
    for number in range(3):
        land(catalog, number)
    manifest_list = table_of(catalog).snapshots()[0].manifest_list

    def rename_and_replace() -> None:
        Path(manifest_list.removeprefix("file://")).unlink()
        catalog.rename_table(PATH, ("shop", "renamed"))
        foreign_table(catalog, PATH)

    plant(catalog, [no_fault, do_after(rename_and_replace)], "load_table")  # the collector judges by the second
    with pytest.raises(FileNotFoundError):
        remove_task_orphans(catalog, PATH, WRITER, [])
    assert ids_of(catalog, ("shop", "renamed")) == [0, 1, 2]


def test_a_file_that_is_gone_without_an_expiry_is_an_error(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, number)
    Path(table_of(catalog).snapshots()[-1].manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(FileNotFoundError):
        remove_task_orphans(catalog, PATH, WRITER, [])


def test_a_table_that_was_replaced_meanwhile_keeps_its_files(catalog: Catalog) -> None:
    land(catalog, 1)
    land(catalog, 2)

    def replaced(send: Send) -> Any:
        send()
        catalog.drop_table(PATH)
        foreign_table(catalog, PATH)
        raise ServiceUnavailableError("503")

    before = left(catalog)
    plant(catalog, [replaced])
    assert expire_snapshots(catalog, PATH) == 0
    assert left(catalog) == before
