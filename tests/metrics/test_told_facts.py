"""Facts are told where things happen. (tests/process/test_metrics.py has the others.)"""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    RESTError,
    ServiceUnavailableError,
)
from pyiceberg.table.snapshots import Operation, Summary

from connector.config.catalog import RestCatalog
from connector.config.secret import Secret
from connector.evolution.property_changes import COMPACTION_PROPERTY
from connector.host import facts
from connector.host.errors import (
    ConnectorError,
    FencedError,
    OlderTableError,
    RetryableError,
    SignInError,
    UserError,
)
from connector.host.facts import (
    COMPACT_DATA_FILES,
    AttemptFailure,
    CommitFailure,
    CommittedRows,
    CompactionDebt,
    Delivery,
    EndedCommits,
    Fact,
    FailedCommit,
    FullSpool,
    MaintainedFiles,
    MaintenanceRun,
    RefreshedCredentials,
    RefreshFailure,
    TableState,
    WaitingNotifications,
)
from connector.host.refresh import Lease, Refreshed
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.commits import commit, commit_errors
from connector.iceberg.commits.commit_outcomes import Committed, Failed, TableCommit
from connector.iceberg.maintenance.background import run_maintenance
from connector.iceberg.maintenance.background_compaction import run_compaction
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.metadata.retention import MAX_AGE
from connector.model.state import StagedCommit, WriterId
from connector.notifications import notifier
from connector.session.commit_facts import report_outcome
from connector.spark.blocks.ledger import Ledger
from connector.spark.blocks.spool import Spool
from protocol.request import Store
from support.bindings import PATH
from support.rows.staged_files import stage
from support.rows.updated_rows import land, make_table, stage_updates
from support.servers.odd_servers import answering
from support.servers.webhook_server import Answer, webhook_server
from support.sessions.notified_sessions import shard
from support.sessions.processes import wait_until
from support.tables.local_tables import foreign_table, local_catalog
from support.tables.outcomes import try_commits

WRITER: Final = WriterId("acme/task", "orders.v1", "00000000-ffffffff")


@pytest.fixture
def told() -> Iterator[list[Fact]]:
    told: list[Fact] = []
    facts.report = told.append
    yield told
    facts.report = facts.drop


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (RetryableError("the token server does not answer"), RefreshFailure.NO_ANSWER),
        (TimeoutError(), RefreshFailure.NO_ANSWER),
        (UserError("the key was deleted"), RefreshFailure.REFUSED),
    ],
)
def test_credentials_that_are_fetched_or_not_are_told(
    error: Exception, failure: RefreshFailure, told: list[Fact]
) -> None:
    leases = iter([Lease("first", time.time() + 10, time.time())])

    def fetch() -> Lease[str]:
        try:
            return next(leases)
        except StopIteration:
            raise error from None

    token = Refreshed("a token", fetch)
    assert token.current().value == token.current().value == "first"
    assert told == [RefreshedCredentials(), RefreshedCredentials(failure)]


@pytest.mark.parametrize(
    ("status", "answer", "failure"),
    [
        (401, {"error": "invalid_client"}, RefreshFailure.REFUSED),
        (400, {"error": "invalid_scope"}, RefreshFailure.REFUSED),
        (503, {"error": "temporarily_unavailable"}, RefreshFailure.NO_ANSWER),
        (403, {}, RefreshFailure.NO_ANSWER),
    ],
)
def test_a_token_server_that_refuses_is_told_from_one_that_has_no_answer(
    status: int, answer: dict[str, str], failure: RefreshFailure, told: list[Fact]
) -> None:
    with answering(status, json.dumps(answer)) as server, pytest.raises(RESTError):
        open_rest(RestCatalog(uri=server.uri, credential=Secret("client:secret")), {})
    assert told == [RefreshedCredentials(failure)]


def test_the_time_for_which_a_full_spool_stops_the_input_is_told(told: list[Fact], tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", block_size=10, limit=10)
    ledger = Ledger(spool)
    task = ledger.begin_task()
    adding = threading.Thread(target=ledger.add, args=(Store(0, 1, 1, (b"x" * 20,)),))
    adding.start()
    assert wait_until(lambda: not spool.has_room)
    ledger.claim(task, None)
    ledger.claim(task, None, lambda: True)
    adding.join()
    spool.remove()
    [full] = [fact for fact in told if isinstance(fact, FullSpool)]
    assert 0 < full.seconds < 20
    sizes = [(fact.size, fact.limit) for fact in told if isinstance(fact, facts.SpoolSize)]
    assert sizes == [(20, 10), (0, 10)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CommitFailedException("stale"), AttemptFailure.CONFLICT),
        (CommitStateUnknownException("gateway"), AttemptFailure.UNKNOWN),
        (ServiceUnavailableError("busy"), AttemptFailure.UNKNOWN),
        (OSError("reset"), AttemptFailure.UNKNOWN),
        (ValueError("changed"), AttemptFailure.REFUSED),
    ],
)
def test_an_attempt_fails_for_a_reason(error: Exception, reason: AttemptFailure) -> None:
    assert commit_errors.classify(error) is reason


def runs_of(told: list[Fact]) -> list[MaintenanceRun]:
    return [fact for fact in told if isinstance(fact, MaintenanceRun)]


def test_maintenance_is_told_with_its_files(told: list[Fact], tmp_path: Path) -> None:
    catalog, path = local_catalog(tmp_path), PATH
    foreign_table(catalog, path, properties={MAX_AGE: "0"})
    with run_maintenance(catalog) as maintenance:
        for number in range(2):
            [landed] = try_commits(catalog, [stage(catalog, path, WRITER, number)])
            maintenance.note_outcome(landed)
        assert wait_until(lambda: facts.EXPIRE_SNAPSHOTS in {run.action for run in runs_of(told)})
    assert {(run.table, run.has_failed) for run in runs_of(told)} == {("shop.orders", False)}
    [files] = [fact for fact in told if isinstance(fact, MaintainedFiles)]
    assert (files.table, files.action) == ("shop.orders", facts.EXPIRE_SNAPSHOTS)
    assert files.files > 0


def land_two_rows(tmp_path: Path) -> tuple[Committed, TableCommit]:
    """Commit to a table of another program."""
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    [landed] = try_commits(catalog, [stage(catalog, PATH, WRITER, 1, 2)])
    assert isinstance(landed, Committed)
    return landed, landed.commit


def test_odd_numbers_of_another_engine_stop_no_report(told: list[Fact], tmp_path: Path) -> None:
    """The answer to a commit may already have a later one."""
    landed, made = land_two_rows(tmp_path)
    odd = dict.fromkeys(("added-files-size", "added-delete-files", "total-data-files", "total-delete-files"), "many")
    ours = made.after.snapshots[-1]
    later = ours.model_copy(update={"snapshot_id": 7, "summary": Summary(Operation.APPEND, **odd)})
    after = made.after.model_copy(update={"snapshots": [ours, later], "current_snapshot_id": 7})
    report_outcome(replace(landed, commit=replace(made, after=after)))
    [committed] = [fact for fact in told if isinstance(fact, CommittedRows)]
    assert (committed.rows, committed.files, committed.delete_files, committed.delete_size) == (2, 1, 0, 0)
    [state] = [fact for fact in told if isinstance(fact, TableState)]
    assert (state.snapshots, state.data_files, state.delete_files) == (2, 0, 0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FencedError("another process"), CommitFailure.FENCED),
        (OlderTableError("a replica, or a restored table"), CommitFailure.OTHER),
        (SignInError("401"), CommitFailure.SIGN_IN),
        (RetryableError("503"), CommitFailure.OTHER),
    ],
)
def test_only_another_process_fences_a_commit(told: list[Fact], error: ConnectorError, reason: CommitFailure) -> None:
    staged = StagedCommit(WRITER, "", "a" * 32, PATH, "a-uuid", 0, 0, ())
    report_outcome(Failed((staged,), error))
    assert told == [FailedCommit("shop.orders", reason)]


def test_the_numbers_of_a_later_commit_are_not_those_of_ours(told: list[Fact], tmp_path: Path) -> None:
    landed, made = land_two_rows(tmp_path)
    [ours] = made.after.snapshots
    of_another = Summary(Operation.APPEND, **{"added-delete-files": "5", "added-files-size": "1000000"})
    later = ours.model_copy(update={"snapshot_id": 7, "summary": of_another})
    after = made.after.model_copy(update={"snapshots": [ours, later], "current_snapshot_id": 7})
    report_outcome(replace(landed, commit=replace(made, after=after)))
    [committed] = [fact for fact in told if isinstance(fact, CommittedRows)]
    assert (committed.delete_files, committed.delete_size) == (0, 0)


def test_files_that_became_smaller_for_their_commit_are_no_delete_files_of_less_than_nothing(
    told: list[Fact], tmp_path: Path
) -> None:
    """Those that were staged before a column was converted are written again."""
    landed, made = land_two_rows(tmp_path)
    [ours] = made.after.snapshots
    assert ours.summary
    smaller = Summary(Operation.APPEND, **{**ours.summary.additional_properties, "added-files-size": "1"})
    after = made.after.model_copy(update={"snapshots": [ours.model_copy(update={"summary": smaller})]})
    report_outcome(replace(landed, commit=replace(made, after=after)))
    [committed] = [fact for fact in told if isinstance(fact, CommittedRows)]
    assert (committed.rows, committed.delete_size) == (2, 0)


def test_what_an_earlier_process_has_added_is_not_told_again(told: list[Fact], tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    make_table(catalog)
    land(catalog, {1: "a", 4: "e"})
    first = stage_updates(catalog, {2: "b", 3: "c"})
    second = stage_updates(catalog, {1: "d"}, after=[first])
    commit.commit_all_or_raise(catalog, [first])
    [landed] = try_commits(catalog, [replace(each, is_recovered=True) for each in (first, second)])
    report_outcome(landed)
    [committed] = [fact for fact in told if isinstance(fact, CommittedRows)]
    [delete_file] = catalog.load_table(PATH).inspect.delete_files()["file_size_in_bytes"].to_pylist()
    assert (committed.rows, committed.files, committed.size) == (1, 1, second.size)
    assert (committed.deleted_rows, committed.delete_files, committed.delete_size) == (1, 1, delete_file)
    assert EndedCommits("shop.orders", (first.next, second.next)) in told


def test_compaction_is_told_with_its_debt(told: list[Fact], tmp_path: Path) -> None:
    catalog, path = local_catalog(tmp_path), PATH
    foreign_table(catalog, path, properties={COMPACTION_PROPERTY: "true"})
    results = iter([CompactionResult(commits=1, files_before=7, bytes_before=70, debt=0, seconds=0.5)])
    [landed] = try_commits(catalog, [stage(catalog, path, WRITER, 1)])
    assert isinstance(landed, Committed)
    with run_compaction(lambda *_: next(results)) as compaction:
        compaction.note_commit(path, landed.commit.after.properties, 3)
        assert wait_until(lambda: len(told) == 3)
    assert told == [
        MaintenanceRun("shop.orders", COMPACT_DATA_FILES, 0.5, has_failed=False),
        MaintainedFiles("shop.orders", COMPACT_DATA_FILES, 7, 70),
        CompactionDebt("shop.orders", 0, 3),
    ]


def test_deliveries_are_told_and_since_when_messages_wait(
    told: list[Fact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "FIRST_PAUSE", 0.01)
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    with webhook_server() as server:
        server.answers.append(Answer(500))
        with shard(catalog, server.url) as session:
            session.commit(1)
            server.wait_for_accepted(1)
            session.wait_until_told()
    committed = catalog.load_table(PATH).metadata.last_updated_ms / 1000
    assert [fact for fact in told if isinstance(fact, Delivery)] == [
        Delivery("shop.orders", has_failed=True),
        Delivery("shop.orders", has_failed=False),
    ]
    since = [fact.since for fact in told if isinstance(fact, WaitingNotifications) and fact.table == "shop.orders"]
    assert committed in since
    assert since[-1] is None
