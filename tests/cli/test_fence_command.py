"""A person finds out why a task is fenced, decides what is right, and lets it go on: only then, and only so far."""

import json
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.exceptions import BadRequestError, CommitStateUnknownException, ForbiddenError, UnauthorizedError
from sqlalchemy.exc import OperationalError

from connector.cli.commands import fence_command
from connector.cli.commands.fence_command import FenceArguments, reset, show
from connector.cli.flow.flow_files import ConfigFile
from connector.cli.texts.table_texts import NO_STATE
from connector.host.errors import (
    CommitUnknownError,
    ConnectorError,
    FencedError,
    RetryableError,
    SignInError,
    UserError,
)
from connector.iceberg.commits import commit
from connector.iceberg.commits.reset import Decision, perform_reset, plan_reset
from connector.iceberg.commits.writers import RESET_PREFIX
from connector.iceberg.fences import fence
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.model import state
from connector.model.state import FileList, StagedCommit, WriterId
from connector.model.table_identifier import Generation, TableIdentifier
from support.bindings import PATH
from support.rows import staged_files
from support.rows.staged_files import stage
from support.snapshots import check_text
from support.tables.local_tables import foreign_table, ids_of, local_catalog
from support.tables.planted_faults import lose_answer, no_fault, plant, refuse

pytestmark = pytest.mark.long

WHOLE = WriterId("acme/task", "orders.v1", "00000000-ffffffff")
land = partial(staged_files.land, writer=WHOLE)


@dataclass(frozen=True)
class Fenced:
    """A task whose state was restored from before its last transactions: the table has moved on to 1, 2, 3."""

    directory: Path
    catalog: Catalog
    landed: StagedCommit  # what the state names: the table has had it
    lost: StagedCommit  # the same, had the restored task written something else

    def place(self, *staged: StagedCommit) -> FenceArguments:
        return place(self.directory, staged)


def place(directory: Path, staged: Sequence[StagedCommit]) -> FenceArguments:
    config, restored = directory / "config.json", directory / "state.json"
    warehouse = {"catalog_type": "Local", "warehouse": str(directory)}
    config.write_text(json.dumps({"namespace": "shop", "catalog": warehouse}))
    restored.write_text(json.dumps(state.encode_added(staged)))
    return FenceArguments(ConfigFile(str(config)), "shop.orders", WHOLE.materialization, str(restored))


@pytest.fixture
def fenced(tmp_path: Path) -> Fenced:
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    first = land(catalog, 1)
    lost = stage(catalog, PATH, WHOLE, 20, prev=first.next)
    second = land(catalog, 2, prev=first.next)
    land(catalog, 3, prev=second.next)
    return Fenced(tmp_path, catalog, second, lost)


@pytest.fixture
def stays_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that lacks transactions is not loaded again for half a minute: nobody brings them back."""
    monkeypatch.setattr(commit, "RETRY_FOR", 0.0)


def finish(catalog: Catalog, staged: StagedCommit) -> None:
    commit.commit_all_or_raise(catalog, [staged])


def recover(catalog: Catalog, staged: StagedCommit) -> None:
    """What opening the task does with its state."""
    finish(catalog, replace(staged, is_recovered=True))


def recorded(catalog: Catalog) -> str:
    return fence.read_value(catalog.load_table(PATH).properties, WHOLE)


def confirmed(place: FenceArguments, decision: Decision, *, yes: bool = True) -> str:
    return reset(place, (WHOLE.state_key, WHOLE.key_range), decision, "restored a backup", is_confirmed=yes)


def shown(place: FenceArguments) -> Any:
    return json.loads(show(place, as_json=True))


# Going on


def test_without_a_reset_a_fenced_task_stays_fenced(fenced: Fenced) -> None:
    before = fenced.catalog.load_table(PATH).metadata
    show(fenced.place(fenced.lost), as_json=False)
    confirmed(fenced.place(fenced.lost), Decision.ADD, yes=False)
    with pytest.raises(FencedError):
        recover(fenced.catalog, fenced.lost)
    assert fenced.catalog.load_table(PATH).metadata == before


def test_after_a_reset_the_task_adds_what_it_had_staged_and_goes_on(fenced: Fenced) -> None:
    confirmed(fenced.place(fenced.lost), Decision.ADD)
    recover(fenced.catalog, fenced.lost)
    assert ids_of(fenced.catalog, PATH) == [1, 2, 3, 20]
    land(fenced.catalog, 21, prev=recorded(fenced.catalog))
    assert ids_of(fenced.catalog, PATH) == [1, 2, 3, 20, 21]


def test_after_a_reset_the_task_leaves_out_what_it_had_staged_and_goes_on(fenced: Fenced) -> None:
    confirmed(fenced.place(fenced.lost), Decision.SKIP)
    recover(fenced.catalog, fenced.lost)
    assert ids_of(fenced.catalog, PATH) == [1, 2, 3]
    land(fenced.catalog, 21, prev=recorded(fenced.catalog))
    assert ids_of(fenced.catalog, PATH) == [1, 2, 3, 21]


def test_a_first_transaction_that_was_fenced_can_be_added(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    first = stage(catalog, PATH, WHOLE, 1)
    land(catalog, 2)
    confirmed(place(tmp_path, [first]), Decision.ADD)
    recover(catalog, first)
    assert ids_of(catalog, PATH) == [1, 2]


@pytest.mark.usefixtures("stays_older")
@pytest.mark.parametrize("decision", Decision)
def test_a_process_that_still_runs_stays_fenced(fenced: Fenced, decision: Decision) -> None:
    """The files of one that has been stale for long may have been deleted: it could ruin the table."""
    on_the_same = stage(fenced.catalog, PATH, WHOLE, 666, prev=fenced.lost.prev)
    on_the_next = stage(fenced.catalog, PATH, WHOLE, 666, prev=fenced.lost.next)
    on_closed = stage(fenced.catalog, PATH, WHOLE, 666, prev=f"closed:{fenced.lost.next}")
    confirmed(fenced.place(fenced.lost), decision)
    for stale in (on_the_same, on_the_next, on_closed):
        with pytest.raises(FencedError):
            finish(fenced.catalog, stale)
    assert ids_of(fenced.catalog, PATH) == [1, 2, 3]


# A fence that was changed by hand


@pytest.fixture(params=["zz", ""])
def spoilt(request: pytest.FixtureRequest, fenced: Fenced) -> Fenced:
    """A task with a staged transaction that would be committed, but for its property."""
    waiting = stage(fenced.catalog, PATH, WHOLE, 20, prev=recorded(fenced.catalog))
    set_fence(fenced.catalog, request.param)
    return replace(fenced, lost=waiting)


def set_fence(catalog: Catalog, value: str) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({fence.property_name(WHOLE): value})


def test_a_fence_that_was_changed_by_hand_takes_nothing(spoilt: Fenced) -> None:
    before = spoilt.catalog.load_table(PATH).metadata
    with pytest.raises(FencedError) as error:
        recover(spoilt.catalog, spoilt.lost)
    values = {fence.property_name(WHOLE): "PROPERTY", repr(recorded(spoilt.catalog)): "VALUE"}
    check_text("commit_errors", "a fence that was changed by hand", str(error.value), values)
    assert spoilt.catalog.load_table(PATH).metadata == before
    assert [entry["verdict"] for entry in shown(spoilt.place(spoilt.lost))["staged"]] == ["fenced"]


def test_the_last_value_is_in_the_newest_snapshot_and_can_be_set_again(spoilt: Fenced) -> None:
    snapshot = spoilt.catalog.load_table(PATH).current_snapshot()
    assert snapshot
    assert snapshot.summary
    set_fence(spoilt.catalog, str(snapshot.summary["flow.fence"]))
    recover(spoilt.catalog, spoilt.lost)
    assert ids_of(spoilt.catalog, PATH) == [1, 2, 3, 20]


def test_a_reset_mends_a_fence_that_was_changed_by_hand(spoilt: Fenced) -> None:
    confirmed(spoilt.place(spoilt.lost), Decision.ADD)
    recover(spoilt.catalog, spoilt.lost)
    assert ids_of(spoilt.catalog, PATH) == [1, 2, 3, 20]


def test_a_property_with_a_name_that_was_changed_by_hand_is_shown(fenced: Fenced) -> None:
    for name in ("flow.fence.zz", "flow.fence.0.1.2"):
        with fenced.catalog.load_table(PATH).transaction() as transaction:
            transaction.set_properties({name: "zz"})
        assert name in {writer["property"] for writer in shown(fenced.place())["writers"]}


# What it costs is said before


def test_rows_that_are_lost_are_counted(fenced: Fenced) -> None:
    said = confirmed(fenced.place(fenced.lost), Decision.SKIP, yes=False)
    assert "1 row(s) of 1 staged transaction(s) are in no snapshot that the table still has" in said
    assert "Nothing was changed." in said


def test_rows_that_are_in_the_table_are_not_called_lost(fenced: Fenced) -> None:
    assert "none is lost" in confirmed(fenced.place(fenced.landed), Decision.SKIP, yes=False)


def test_rows_that_are_in_the_table_are_not_added_again(fenced: Fenced) -> None:
    with pytest.raises(UserError) as error:
        confirmed(fenced.place(fenced.landed), Decision.ADD)
    check_text("commit_errors", "rows that are in the table", str(error.value))


def test_rows_that_may_be_in_a_table_of_nessie_are_not_added(fenced: Fenced) -> None:
    """It does not show the snapshots that would tell."""
    table = fenced.catalog.load_table(PATH)
    table.catalog.properties["nessie.is-nessie-catalog"] = "true"
    with pytest.raises(UserError) as error:
        plan_reset(table, [fenced.lost], Decision.ADD)
    check_text("commit_errors", "fence reset: rows that may be in a table of Nessie", str(error.value))
    skipped = plan_reset(table, [fenced.lost], Decision.SKIP).consequences[0]
    assert skipped.startswith("1 row(s) of 1 staged transaction(s) may be in the table or not: Nessie does not show")


def list_of_oldest(catalog: Catalog) -> Path:
    """The manifest list of the oldest snapshot: expiry has deleted it before an older copy of the table came back."""
    return Path(catalog.load_table(PATH).snapshots()[0].manifest_list.removeprefix("file://"))


@pytest.fixture(params=["gone", "damaged"])
def partly_unreadable(request: pytest.FixtureRequest, fenced: Fenced) -> Fenced:
    oldest = list_of_oldest(fenced.catalog)
    oldest.unlink()
    if request.param == "damaged":
        oldest.write_bytes(b"not Avro")
    return fenced


def test_a_task_can_leave_rows_out_though_an_older_snapshot_cannot_be_read(partly_unreadable: Fenced) -> None:
    said = confirmed(partly_unreadable.place(partly_unreadable.lost), Decision.SKIP)
    assert said.startswith(
        "1 row(s) of 1 staged transaction(s) may be in the table or not: not all of the table's snapshots"
    )
    recover(partly_unreadable.catalog, partly_unreadable.lost)
    assert ids_of(partly_unreadable.catalog, PATH) == [1, 2, 3]


@pytest.mark.parametrize("name", ["lost", "landed"])
def test_rows_that_may_be_in_a_snapshot_that_cannot_be_read_are_not_added(partly_unreadable: Fenced, name: str) -> None:
    oldest, before = list_of_oldest(partly_unreadable.catalog), recorded(partly_unreadable.catalog)
    with pytest.raises(UserError) as error:
        confirmed(partly_unreadable.place(getattr(partly_unreadable, name)), Decision.ADD)
    told = re.sub(r"\(\w+Error: .*?\)", "(ERROR: MESSAGE)", str(error.value))
    assert str(oldest.name) in str(error.value)
    check_text("commit_errors", "fence reset: a snapshot cannot be read", told)
    assert recorded(partly_unreadable.catalog) == before


def test_rows_that_the_fence_does_not_have_are_lost_though_an_older_snapshot_cannot_be_read(
    partly_unreadable: Fenced,
) -> None:
    newest = stage(partly_unreadable.catalog, PATH, WHOLE, 4, prev=recorded(partly_unreadable.catalog))
    [location] = newest.locations
    Path(location.removeprefix("file://")).unlink()
    said = confirmed(partly_unreadable.place(newest), Decision.SKIP, yes=False)
    assert said.startswith("1 row(s) of 1 staged transaction(s) are in no snapshot that the table still has")


def test_a_catalog_that_fails_while_a_reset_is_planned_is_named(
    fenced: Fenced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a list that is gone, the table is loaded again: its snapshot may have expired in that moment."""
    list_of_oldest(fenced.catalog).unlink()
    place = fenced.place(fenced.lost)
    monkeypatch.setattr(fence_command, "open_existing_catalog", lambda _: fenced.catalog)
    failed = OperationalError("SELECT", {}, Exception("disk I/O error"))
    plant(fenced.catalog, [no_fault, refuse(failed)], "load_table")
    with pytest.raises(ConnectorError, match="disk I/O error"):
        confirmed(place, Decision.SKIP)


def test_a_store_that_fails_while_a_reset_is_planned_is_named(fenced: Fenced) -> None:
    oldest = list_of_oldest(fenced.catalog)
    oldest.unlink()
    oldest.mkdir()
    with pytest.raises(RetryableError, match=re.escape(fenced.catalog.load_table(PATH).location())):
        confirmed(fenced.place(fenced.lost), Decision.SKIP)


def test_a_table_whose_newest_snapshot_is_damaged_is_not_reset(fenced: Fenced) -> None:
    table = fenced.catalog.load_table(PATH)
    newest = table.current_snapshot()
    assert newest
    Path(newest.manifest_list.removeprefix("file://")).write_bytes(b"not Avro")
    before = recorded(fenced.catalog)
    with pytest.raises(RetryableError) as error:
        confirmed(fenced.place(fenced.lost), Decision.SKIP)
    told = re.sub(r"\(.*\)", "(ERROR: MESSAGE)", str(error.value), flags=re.DOTALL)
    check_text("commit_errors", "fence reset: the newest snapshot is damaged", told)
    assert recorded(fenced.catalog) == before


def test_rows_that_are_in_the_table_are_known_after_another_engine_has_rewritten_them(fenced: Fenced) -> None:
    table = fenced.catalog.load_table(PATH)
    table.overwrite(table.scan().to_arrow())
    assert "none is lost" in confirmed(fenced.place(fenced.landed), Decision.SKIP, yes=False)


def test_rows_whose_list_is_deleted_are_in_a_table_that_has_later_ones(tmp_path: Path) -> None:
    """A session deletes a list after the next commit of its table. The state may name both then."""
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    first = land(catalog, 1)
    second = land(catalog, 2, prev=first.next)
    land(catalog, 3, prev=second.next)
    [data_file] = first.locations
    listed = replace(first, files=FileList(f"{data_file}-files.json", 1, first.rows, 1))
    assert "none is lost" in confirmed(place(tmp_path, [listed, second]), Decision.SKIP, yes=False)


def test_files_that_were_deleted_meanwhile_cannot_be_added(fenced: Fenced) -> None:
    assert remove_task_orphans(fenced.catalog, PATH, WHOLE, []) == 1
    with pytest.raises(UserError) as error:
        confirmed(fenced.place(fenced.lost), Decision.ADD)
    [deleted] = fenced.lost.locations
    check_text("commit_errors", "a staged file that was deleted", str(error.value), {deleted: "FILE"})


def test_a_commit_whose_files_are_gone_can_be_left_out_also_if_it_is_not_fenced(fenced: Fenced) -> None:
    newest = stage(fenced.catalog, PATH, WHOLE, 4, prev=recorded(fenced.catalog))
    [location] = newest.locations
    Path(location.removeprefix("file://")).unlink()
    confirmed(fenced.place(newest), Decision.SKIP)
    recover(fenced.catalog, newest)
    land(fenced.catalog, 5, prev=recorded(fenced.catalog))
    assert ids_of(fenced.catalog, PATH) == [1, 2, 3, 5]


def test_what_is_not_fenced_is_not_reset(fenced: Fenced) -> None:
    newest = stage(fenced.catalog, PATH, WHOLE, 4, prev=recorded(fenced.catalog))
    with pytest.raises(UserError) as error:
        confirmed(fenced.place(newest), Decision.SKIP)
    check_text("commit_errors", "nothing to reset", str(error.value))


def test_a_table_that_changes_in_that_moment_is_looked_at_again(fenced: Fenced) -> None:
    table = fenced.catalog.load_table(PATH)
    planned = plan_reset(table, [fenced.lost], Decision.SKIP)
    land(fenced.catalog, 4, prev=recorded(fenced.catalog))
    before = recorded(fenced.catalog)
    with pytest.raises(RetryableError) as error:
        perform_reset(table, planned, "too late")
    check_text("commit_errors", "a table that changes in that moment", re.sub(r"\d{9,}", "ID", str(error.value)))
    assert recorded(fenced.catalog) == before


def read_half_an_answer() -> Exception:
    with pytest.raises(ValidationError) as error:
        TableResponse.model_validate_json('{"metadata": {')
    return error.value


@pytest.mark.parametrize(
    "answer", [CommitStateUnknownException("504"), read_half_an_answer()], ids=["no answer", "half an answer"]
)
def test_a_reset_whose_answer_is_lost_is_looked_up(fenced: Fenced, answer: Exception) -> None:
    table = fenced.catalog.load_table(PATH)
    planned = plan_reset(table, [fenced.lost], Decision.SKIP)
    plant(table.catalog, [lose_answer(answer)])
    with pytest.raises(CommitUnknownError) as error:
        perform_reset(table, planned, "restored a backup")
    told = re.sub(r"\(.*\)", "(ERROR: MESSAGE)", str(error.value), flags=re.DOTALL)
    check_text("commit_errors", "a reset whose answer is lost", told)
    assert recorded(fenced.catalog) == planned.value


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (ForbiddenError("ForbiddenException: may not change it"), UserError),
        (BadRequestError("BadRequestException: no such property"), UserError),
        (UnauthorizedError("NotAuthorizedException: the token is too old"), SignInError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_a_reset_that_the_catalog_refuses_is_not_called_unknown(
    fenced: Fenced, answer: Exception, kind: type[ConnectorError]
) -> None:
    table = fenced.catalog.load_table(PATH)
    planned = plan_reset(table, [fenced.lost], Decision.SKIP)
    before = recorded(fenced.catalog)
    plant(table.catalog, [refuse(answer)])
    with pytest.raises(kind) as error:
        perform_reset(table, planned, "restored a backup")
    check_text("commit_errors", f"a reset that the catalog refuses: {type(answer).__name__}", str(error.value))
    assert recorded(fenced.catalog) == before


def test_the_fence_of_a_table_that_cannot_be_written_is_not_reset(fenced: Fenced) -> None:
    before = recorded(fenced.catalog)
    with fenced.catalog.load_table(PATH).transaction() as changes:
        changes.set_properties({"encryption.key-id": "key-1"})
    with pytest.raises(UserError, match=r"encryption\.key-id is set"):
        confirmed(fenced.place(fenced.lost), Decision.SKIP)
    assert recorded(fenced.catalog) == before


# What is recorded, and shown


def test_the_reason_is_recorded_in_the_table(fenced: Fenced) -> None:
    before = recorded(fenced.catalog)
    confirmed(fenced.place(fenced.lost), Decision.SKIP)
    table = fenced.catalog.load_table(PATH)
    snapshot = table.current_snapshot()
    assert snapshot
    assert snapshot.summary
    assert snapshot.summary["flow.fence-reset"] == "restored a backup"
    assert snapshot.summary["total-records"] == "3"
    [writer] = shown(fenced.place())["writers"]
    noted = {name: value for name, value in writer["lastReset"].items() if name != "at"}
    assert noted == {"from": before, "to": recorded(fenced.catalog), "reason": "restored a backup"}


def test_a_reason_that_somebody_has_changed_is_shown_as_it_is(fenced: Fenced) -> None:
    confirmed(fenced.place(fenced.lost), Decision.SKIP)
    table = fenced.catalog.load_table(PATH)
    (name,) = (name for name in table.properties if name.startswith(RESET_PREFIX))
    with table.transaction() as changes:
        changes.set_properties({name: "by hand"})
    [writer] = shown(fenced.place())["writers"]
    assert writer["lastReset"] == "by hand"


def test_a_reset_moves_main(fenced: Fenced) -> None:
    """A commit that has read the fence before asserts main: it must not land on the reset fence."""
    before = fenced.catalog.load_table(PATH)
    confirmed(fenced.place(fenced.lost), Decision.SKIP)
    after = fenced.catalog.load_table(PATH)
    assert after.metadata.current_snapshot_id != before.metadata.current_snapshot_id


def test_every_writer_is_shown_with_whose_it_is_and_when_it_last_committed(fenced: Fenced) -> None:
    last = fenced.catalog.load_table(PATH).current_snapshot()
    assert last
    other = fence.property_name(WriterId("acme/gone", "orders.v1", "00000000-7fffffff"))
    with fenced.catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({other: "closed:v1"})
    by_name = {writer.pop("property"): writer for writer in shown(fenced.place())["writers"]}
    own = by_name[fence.property_name(WHOLE)]
    assert (own["materialization"], own["stateKey"], own["keyRange"]) == ("acme/task", "orders.v1", WHOLE.key_range)
    assert (own["value"], own["isClosed"]) == (recorded(fenced.catalog), False)
    assert datetime.fromisoformat(own["lastCommit"]).timestamp() * 1000 == pytest.approx(last.timestamp_ms, abs=1)
    assert by_name[other] == {
        "keyRange": "00000000-7fffffff",
        "value": "closed:v1",
        "isClosed": True,
        "materialization": None,
        "stateKey": None,
        "lastCommit": None,
        "lastReset": None,
    }


def test_every_staged_commit_is_shown_with_what_would_become_of_it(fenced: Fenced) -> None:
    catalog = fenced.catalog
    last = land(catalog, 4, prev=recorded(catalog))
    pending = stage(catalog, PATH, WHOLE, 5, 6, prev=last.next)
    elsewhere = replace(stage(catalog, PATH, WHOLE, 7), path=TableIdentifier("shop", "customers"))
    replaced = replace(fenced.lost, table_uuid="00000000-0000-4000-8000-000000000000")

    def verdicts(*staged: StagedCommit) -> list[tuple[int, str]]:
        return [(entry["rows"], entry["verdict"]) for entry in shown(fenced.place(*staged))["staged"]]

    assert verdicts(last, pending, elsewhere) == [(1, "committed"), (2, "will be committed")]
    assert verdicts(fenced.lost) == [(1, "fenced")]
    assert verdicts(replaced) == [(1, "other_table")]


def test_without_the_state_nobody_is_told_that_nothing_is_staged(fenced: Fenced) -> None:
    known, unknown = fenced.place(), replace(fenced.place(), state=None)
    assert (shown(known)["staged"], shown(unknown)["staged"]) == ([], None)
    lines = [show(place, as_json=False).splitlines()[-1] for place in (known, unknown)]
    assert lines == ["staged in the state: none", f"staged in the state: {NO_STATE}"]


def test_a_commit_that_was_staged_before_a_backfill_is_shown_as_superseded(fenced: Fenced) -> None:
    table = fenced.catalog.load_table(PATH)
    begun = Generation(str(uuid.uuid4()), (str(table.metadata.table_uuid),), fenced.lost.writer.materialization)
    with table.transaction() as transaction:
        transaction.set_properties(begun.encode())
    place = fenced.place(fenced.lost)
    assert [entry["verdict"] for entry in shown(place)["staged"]] == ["superseded"]
    assert "1 row in 1 file: superseded: a backfill came after it" in show(place, as_json=False)


def restored(fenced: Fenced, lost: str, uuid_of_table: str | None = None) -> FenceArguments:
    """The table's last value is that of its third transaction; the state has a later one."""
    of_table = uuid_of_table or str(fenced.catalog.load_table(PATH).metadata.table_uuid)
    kept = {"finished": {WHOLE.state_key: {WHOLE.key_range: {of_table: lost}}}}
    (fenced.directory / "restored.json").write_text(json.dumps(kept))
    return replace(fenced.place(), state=str(fenced.directory / "restored.json"))


def test_transactions_that_a_restored_table_lacks_are_shown(fenced: Fenced) -> None:
    lost = f"{5:08x}{'b' * 24}"
    place = restored(fenced, lost)
    assert shown(place)["lost"] == [
        {"stateKey": "orders.v1", "keyRange": "00000000-ffffffff", "value": lost, "transactions": 2, "isInTable": False}
    ]
    assert show(place, as_json=False).splitlines()[-3:] == [
        "lost: the table had these, and was restored from an older copy",
        "  state key orders.v1, key range 00000000-ffffffff",
        f"    2 transaction(s), up to {lost}",
    ]
    assert shown(restored(fenced, recorded(fenced.catalog)))["lost"] == []


def test_transactions_of_another_table_or_of_before_a_backfill_are_not_called_lost(fenced: Fenced) -> None:
    place = restored(fenced, f"{5:08x}{'b' * 24}", "00000000-0000-4000-8000-000000000000")
    assert shown(place)["lost"] == []


def test_lost_transactions_cannot_be_added(fenced: Fenced) -> None:
    with pytest.raises(UserError) as error:
        confirmed(restored(fenced, f"{5:08x}{'b' * 24}"), Decision.ADD)
    check_text("commit_errors", "lost transactions that are to be added", str(error.value))


def test_lost_transactions_are_given_up_once_that_is_confirmed(fenced: Fenced) -> None:
    place = restored(fenced, f"{5:08x}{'b' * 24}")
    assert "has lost the rows of 2 transaction(s)" in confirmed(place, Decision.SKIP, yes=False)
    assert len(shown(place)["lost"]) == 1
    confirmed(place, Decision.SKIP)
    assert shown(place)["lost"] == []
    assert recorded(fenced.catalog).endswith(f"{5:08x}{'b' * 24}")


# A fence property that was removed by hand: the table has its rows


def remove_fence(catalog: Catalog) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.remove_properties(fence.property_name(WHOLE))


@pytest.mark.parametrize("decision", Decision)
def test_a_property_that_was_removed_has_lost_no_rows(fenced: Fenced, decision: Decision) -> None:
    last = recorded(fenced.catalog)
    place = restored(fenced, last)
    remove_fence(fenced.catalog)
    title = "not lost: a snapshot of the table has these, and only its fence property was removed or changed"
    assert show(place, as_json=False).splitlines()[-3] == title
    assert [each["isInTable"] for each in shown(place)["lost"]] == [True]
    said = confirmed(place, decision)
    assert said.startswith("The table has the rows of the 3 transaction(s)")
    assert "None is lost." in said
    assert recorded(fenced.catalog).endswith(last)
    assert shown(place)["lost"] == []


def test_what_was_staged_before_its_property_was_removed_can_be_added(fenced: Fenced) -> None:
    waiting = stage(fenced.catalog, PATH, WHOLE, 20, prev=recorded(fenced.catalog))
    remove_fence(fenced.catalog)
    confirmed(fenced.place(waiting), Decision.ADD)
    recover(fenced.catalog, waiting)
    assert ids_of(fenced.catalog, PATH) == [1, 2, 3, 20]


def test_what_was_staged_before_its_property_was_removed_is_all_that_is_given_up(fenced: Fenced) -> None:
    waiting = stage(fenced.catalog, PATH, WHOLE, 20, prev=recorded(fenced.catalog))
    remove_fence(fenced.catalog)
    said = confirmed(fenced.place(waiting), Decision.SKIP)
    assert said.startswith("1 row(s) of 1 staged transaction(s) are in no snapshot that the table still has")


def test_rows_that_were_rolled_back_are_lost_though_a_snapshot_has_them(fenced: Fenced) -> None:
    table, last = fenced.catalog.load_table(PATH), recorded(fenced.catalog)
    with table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(table.snapshots()[0].snapshot_id)
    remove_fence(fenced.catalog)
    assert "has lost the rows of 3 transaction(s)" in confirmed(restored(fenced, last), Decision.SKIP, yes=False)


def restored_with_staged(fenced: Fenced) -> tuple[FenceArguments, StagedCommit]:
    """The table has lost its transactions 4 and 5. The state names the next one as staged."""
    lost = stage(fenced.catalog, PATH, WHOLE, 5, prev=f"{4:08x}{'b' * 24}")
    staged = stage(fenced.catalog, PATH, WHOLE, 6, prev=lost.next)
    return fenced.place(staged), staged


@pytest.mark.usefixtures("stays_older")
def test_a_task_with_a_staged_transaction_is_told_that_the_table_lacks_those_before(fenced: Fenced) -> None:
    place, staged = restored_with_staged(fenced)
    with pytest.raises(FencedError) as error:
        recover(fenced.catalog, staged)
    values = {fence.property_name(WHOLE): "PROPERTY", staged.prev: "PREV", recorded(fenced.catalog): "RECORDED"}
    check_text(
        "commit_errors", "a staged commit to a table that was restored from an older copy", str(error.value), values
    )
    assert [(each["transactions"], each["value"]) for each in shown(place)["lost"]] == [(2, staged.prev)]


def test_what_was_staged_on_lost_transactions_is_not_added_without_them(fenced: Fenced) -> None:
    place, _ = restored_with_staged(fenced)
    with pytest.raises(UserError, match=r"has lost 2 transaction\(s\)"):
        confirmed(place, Decision.ADD)


def test_what_was_staged_on_lost_transactions_is_given_up_with_them(fenced: Fenced) -> None:
    place, staged = restored_with_staged(fenced)
    told = confirmed(place, Decision.SKIP)
    assert "has lost the rows of 2 transaction(s)" in told
    assert "1 row(s) of 1 staged transaction(s) are in no snapshot" in told
    recover(fenced.catalog, staged)
    assert ids_of(fenced.catalog, PATH) == [1, 2, 3]
    assert shown(place)["lost"] == []


@pytest.mark.parametrize("table", ["shop.nothing", "orders", ".orders", "shop."])
def test_a_table_that_is_not_there_is_said_to_be_missing(fenced: Fenced, table: str) -> None:
    with pytest.raises(UserError) as error:
        show(replace(fenced.place(), table=table), as_json=False)
    check_text("commit_errors", f"table {table}", str(error.value))


def test_the_error_of_a_fenced_task_names_a_command_that_can_be_run(fenced: Fenced) -> None:
    with pytest.raises(FencedError) as caught:
        recover(fenced.catalog, fenced.lost)
    values = {str(fenced.lost.prev): "PREV", fenced.lost.next: "NEXT", recorded(fenced.catalog): "RECORDED"}
    check_text("commit_errors", "a fenced task", str(caught.value), values)
    command = re.search("`materialize-iceberg (fence show [^`]*)`", str(caught.value))
    assert command
    where = fenced.place(fenced.lost)
    arguments = command[1].replace("CONFIG.json", where.source.file).replace("STATE.json", str(where.state)).split()
    completed = subprocess.run(
        [sys.executable, "-m", "connector", *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    assert f"{fenced.lost.prev} -> {fenced.lost.next}: 1 row in 1 file: fenced" in completed.stdout


@pytest.mark.usefixtures("stays_older")
def test_the_error_of_a_table_that_lacks_transactions_names_a_command_that_can_be_run(fenced: Fenced) -> None:
    place, staged = restored_with_staged(fenced)
    with pytest.raises(FencedError) as caught:
        recover(fenced.catalog, staged)
    command = re.search("`materialize-iceberg (fence reset [^`]*)`", str(caught.value))
    assert command
    arguments = command[1].replace("CONFIG.json", place.source.file).replace("STATE.json", str(place.state))
    completed = subprocess.run(
        [sys.executable, "-m", "connector", *shlex.split(arguments)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "has lost the rows of 2 transaction(s)" in completed.stdout
    assert "Nothing was changed." in completed.stdout


def test_the_command_does_what_is_asked_only_with_yes(fenced: Fenced) -> None:
    where = fenced.place(fenced.lost)
    assert where.state
    command = [
        sys.executable,
        "-m",
        "connector",
        "fence",
        "reset",
        "--config",
        where.source.file,
        "--table",
        where.table,
    ]
    command += ["--materialization", WHOLE.materialization, "--state", where.state, "--state-key", WHOLE.state_key]
    command += ["--staged", "add", "--reason", "two instances"]
    before = recorded(fenced.catalog)
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "repeat the command with --yes" in said
    assert recorded(fenced.catalog) == before
    said = subprocess.run([*command, "--yes"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"The fence was reset to {recorded(fenced.catalog)}." in said
    again = subprocess.run([*command, "--yes"], capture_output=True, text=True, check=False, timeout=60)
    assert again.returncode == 1
    assert "there is nothing to reset" in again.stderr


def test_the_task_of_a_flow_specification_is_shown_without_naming_it_again(fenced: Fenced) -> None:
    where = fenced.place(fenced.lost)
    flow = fenced.directory / "flow.yaml"
    flow.write_text(
        "materializations:\n  acme/task:\n    endpoint: {connector: {image: lake, config: config.json}}\n"
        "    bindings: [{source: acme/not-defined-here, resource: {table: orders}}]\n"
    )
    assert where.state
    command = [sys.executable, "-m", "connector", "fence", "show", "--flow", str(flow), "--table", where.table]
    said = subprocess.run([*command, "--state", where.state, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == shown(where)


def test_a_reset_is_told_as_json(fenced: Fenced) -> None:
    where, writer = fenced.place(fenced.lost), (WHOLE.state_key, WHOLE.key_range)
    said = reset(where, writer, Decision.ADD, "restored a backup", is_confirmed=True, as_json=True)
    told = json.loads(said)
    assert (told["isReset"], told["value"]) == (True, recorded(fenced.catalog))
    assert "will be added when the task opens again" in told["consequences"][0]
