"""One bad table is retried, reported and limited, and holds up no other."""

import logging
import signal
import sys
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from connector.host import facts
from connector.host.errors import ConnectorError, FencedError, LostColumnError, RetryableError, SignInError, UserError
from connector.host.facts import Fact, WaitingState
from connector.host.logs import FIELDS
from connector.host.signals import Stopped
from connector.host.threads import AT_ONCE
from connector.iceberg.commits.commit import try_commits
from connector.iceberg.commits.commit_outcomes import AlreadyCommitted, Committed, Failed, Outcome, TableCommit, Tell
from connector.iceberg.fences.fence import property_name
from connector.iceberg.maintenance.background import BackgroundMaintenance
from connector.model.state import ChainId, DataFile, StagedCommit, WriterId, encode_added
from connector.model.table_identifier import TableIdentifier
from connector.session import backlog
from connector.session.backlog import Backlog, Limit
from connector.session.commit_facts import report_outcome
from connector.session.committer import ENDING, Committer, run_retries
from support.bindings import PATH
from support.rows.staged_files import stage, stage_chain
from support.rows.staged_rows import WRITER
from support.sessions.processes import DEADLINE, wait_until
from support.snapshots import check_text
from support.tables.local_tables import foreign_table, local_catalog
from support.tables.planted_faults import lose_answer, plant, refuse

WHOLE, LEFT, RIGHT = "00000000-ffffffff", "00000000-7fffffff", "80000000-ffffffff"
NO_TABLE: Any = None  # nothing looks at it
GENEROUS = Limit(commits=100, size=1 << 40)


def staged(table: str, next: str, prev: str = "", size: int = 1000, key_range: str = WHOLE) -> StagedCommit:
    writer = WriterId("acme/task", f"{table}.v1", key_range)
    files = (DataFile(f"file:///{next}.parquet", 10, size, (4,), ()),)
    return StagedCommit(writer, prev, next, TableIdentifier("shop", table), "a-uuid", 0, 0, files)


BOUND = frozenset(staged(table, "").chain_id for table in ("good", "bad", "worse"))


@dataclass
class Tables:
    """Tables that take commits, or fail with these errors."""

    errors: dict[str, ConnectorError] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    tried: list[list[str]] = field(default_factory=list)
    without_retry: Collection[ChainId] = ()
    is_holding: threading.Event = field(default_factory=threading.Event)
    _held: str = ""
    _released: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def held(self, table: str) -> Iterator[None]:
        """Attempts for this table do not end before this does."""
        self._held = table
        yield
        self._held = ""
        self._released.set()

    def attempt(self, staged: Sequence[StagedCommit], *, without_retry: Collection[ChainId], tell: Tell) -> None:
        self.tried.append([commit.next for commit in staged])
        self.without_retry = without_retry
        for chain in dict.fromkeys(commit.chain_id for commit in staged):
            if chain[0][0][1] == self._held:
                self.is_holding.set()
                assert self._released.wait(DEADLINE)
            commits = tuple(commit for commit in staged if commit.chain_id == chain)
            if error := self.errors.get(chain[0][0][1]):
                tell(Failed(commits, error))
            else:
                self.taken += [commit.next for commit in commits]
                tell(Committed(commits, commits, 1, 0.0, TableCommit(NO_TABLE, NO_TABLE)))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 0.0)


@pytest.fixture
def tables() -> Tables:
    return Tables({"bad": RetryableError("table shop.bad: no.")})


def test_the_others_land_and_the_bad_ones_chain_waits(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    good, bad = staged("good", "g1"), staged("bad", "b1")
    assert committer.commit([good, bad]) == [good]
    assert committer.find_pending(bad.table_id, WHOLE) == [bad]
    assert committer.find_pending(good.table_id, WHOLE) == []


def test_what_waits_is_retried_between_transactions_and_reported_with_the_next(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    bad = staged("bad", "b1")
    committer.commit([bad])
    tables.errors.clear()
    assert committer.wait_for_retry()
    committer.retry()
    assert tables.taken == ["b1"]
    assert committer.commit([]) == [bad]
    assert committer.commit([]) == []


def test_each_outcome_is_told_also_of_a_commit_that_the_table_had_already(catalog: Catalog) -> None:
    table = foreign_table(catalog, PATH)
    told: list[Outcome] = []
    committer = Committer(partial(try_commits, catalog), GENEROUS, [told.append])
    first = stage(catalog, PATH, WRITER, 1)
    for _ in range(2):
        assert committer.commit([first]) == [first]
    committed, already = told
    assert isinstance(committed, Committed)
    commit = committed.commit
    before = table.metadata.current_snapshot_id, catalog.load_table(PATH).metadata.current_snapshot_id
    assert (commit.before.metadata.current_snapshot_id, commit.after.current_snapshot_id) == before
    assert (committed.staged, already) == ((first,), AlreadyCommitted((first,)))


def test_an_outcome_is_told_before_another_thread_may_commit_to_the_table(tables: Tables) -> None:
    """That thread's outcome would be told first. And the session could end before the last outcomes are told."""
    commit = staged("good", "g1")
    pending: list[list[StagedCommit]] = []
    committer = Committer(
        tables.attempt, GENEROUS, [lambda _: pending.append(committer.find_pending(commit.table_id, WHOLE))]
    )
    committer.commit([commit])
    assert pending == [[commit]]


def test_the_metadata_of_a_table_is_not_kept_until_all_tables_have_committed(catalog: Catalog) -> None:
    """That of hundreds of tables, each with its snapshots of days, would take gigabytes."""
    paths = [TableIdentifier("shop", f"table{number}") for number in range(3 * AT_ONCE)]
    for path in paths:
        foreign_table(catalog, path)
    told: list[weakref.ref[TableCommit]] = []
    kept: list[int] = []

    def note(outcome: Outcome) -> None:
        assert isinstance(outcome, Committed)
        told.append(weakref.ref(outcome.commit))
        kept.append(sum(each() is not None for each in told))

    maintenance = BackgroundMaintenance(catalog)
    committer = Committer(partial(try_commits, catalog), GENEROUS, [maintenance.note_outcome, note])
    committer.commit([stage(catalog, path, WRITER, 1) for path in paths])
    assert max(kept) <= AT_ONCE
    assert [each() for each in told] == [None] * len(paths)


def test_a_commit_whose_answer_was_lost_is_handed_on_and_told_to_the_metrics(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.iceberg.commits.retry_commits.FIRST_PAUSE", 0.001)
    told: list[facts.Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    foreign_table(catalog, PATH)
    staged = stage(catalog, PATH, WRITER, 1, 2)
    plant(catalog, [refuse(CommitStateUnknownException("500")), lose_answer(CommitStateUnknownException("500"))])
    outcomes: list[Outcome] = []
    Committer(partial(try_commits, catalog), GENEROUS, [outcomes.append, report_outcome]).commit([staged])
    [committed] = outcomes
    assert isinstance(committed, Committed)
    assert committed.attempts == 2
    assert committed.commit.before.metadata.current_snapshot() is None
    assert committed.commit.after == catalog.load_table(PATH).metadata
    assert [fact.rows for fact in told if isinstance(fact, facts.CommittedRows)] == [2]


def test_how_commits_end_is_told_to_the_metrics(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[facts.Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    foreign_table(catalog, PATH)
    committer = Committer(partial(try_commits, catalog), GENEROUS, [report_outcome])
    committer.commit([stage(catalog, PATH, WRITER, 1, 2)])
    assert [(fact.table, fact.rows) for fact in told if isinstance(fact, facts.CommittedRows)] == [("shop.orders", 2)]


def test_rows_that_an_earlier_process_has_added_are_not_logged_again(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    foreign_table(catalog, PATH)
    chain = [replace(each, is_recovered=True) for each in stage_chain(catalog, PATH, WRITER)]
    try_commits(catalog, chain[:1], tell=lambda _: None)
    with caplog.at_level(logging.INFO):
        assert Committer(partial(try_commits, catalog), GENEROUS).commit(chain) == chain
    [logged] = [each for each in (getattr(record, FIELDS, {}) for record in caplog.records) if "attempts" in each]
    assert {"event": "recovered", "transactions": 1, "rows": 1, "files": 1, "attempts": 1}.items() <= logged.items()


def test_rows_whose_commit_got_no_answer_are_told_with_the_next_commit(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[facts.Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    monkeypatch.setattr("connector.iceberg.commits.commit.RETRY_FOR", 0.0)
    foreign_table(catalog, PATH)
    first, second = stage_chain(catalog, PATH, WRITER)
    plant(catalog, [lose_answer(CommitStateUnknownException("500"))])
    committer = Committer(partial(try_commits, catalog), GENEROUS, [report_outcome])
    assert committer.commit([first]) == []
    assert committer.commit([second]) == [first, second]
    assert [fact.rows for fact in told if isinstance(fact, facts.CommittedRows)] == [3]


def test_a_table_has_the_last_fence_value_of_its_commits_and_none_of_those_that_wait(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it had them before."""
    monkeypatch.setattr("connector.iceberg.commits.commit.RETRY_FOR", 0.0)
    foreign_table(catalog, PATH)
    first, second = stage_chain(catalog, PATH, WRITER)
    try_commits(catalog, [first], tell=lambda _: None)
    committer = Committer(partial(try_commits, catalog), GENEROUS)
    plant(catalog, [refuse(CommitFailedException("409"))])
    assert committer.commit([first]) == [first]
    assert committer.commit([second]) == []
    assert committer.fences.find(first.table_id) == {property_name(WRITER): first.next}
    committer.finish(60)
    committer.fences.note_opened(first.table_id, {property_name(WRITER): first.next}, WRITER)  # from an older answer
    assert committer.fences.find(first.table_id) == {property_name(WRITER): second.next}


def test_a_retry_that_succeeds_is_the_new_status(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    committer.commit([staged("bad", "b1")])
    with caplog.at_level(logging.INFO):
        committer.log_running()
        tables.errors.clear()
        assert committer.wait_for_retry()
        committer.retry()
    texts = {record.getMessage(): getattr(record, FIELDS).get("refusing") for record in caplog.records}
    assert {text: refusing for text, refusing in texts.items() if text.startswith("running")} == {
        "running, but 1 table(s) refuse commits, and their rows stay staged: shop.bad": 1,
        "running: all committed transactions are in their tables": 0,
    }


def test_a_table_is_tried_by_one_attempt_at_a_time(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    first, second = staged("bad", "b1"), staged("bad", "b2", prev="b1")
    committer.commit([first])
    tables.errors.clear()
    with tables.held("bad"):
        retry = threading.Thread(target=committer.retry)
        retry.start()
        assert tables.is_holding.wait(DEADLINE)
        assert committer.commit([second, staged("good", "g1")]) == [staged("good", "g1")]
    retry.join()
    assert tables.tried == [["b1"], ["b1"], ["g1"]]
    committer.retry()
    assert tables.tried[-1] == ["b2"]
    assert committer.commit([]) == [first, second]


def test_commits_of_a_table_are_reported_in_their_order_while_a_retry_waits_for_another_table(tables: Tables) -> None:
    """A state without a later commit that still names an earlier one can never be opened."""
    tables.errors["worse"] = tables.errors["bad"]
    committer = Committer(tables.attempt, GENEROUS)
    first, second, worse = staged("bad", "b1"), staged("bad", "b2", prev="b1"), staged("worse", "w1")
    committer.commit([first, worse])
    tables.errors.clear()
    with ThreadPoolExecutor() as threads, tables.held("worse"):
        retrying = threads.submit(committer.retry)
        assert tables.is_holding.wait(DEADLINE)
        assert committer.commit([second]) == [first, second]
    assert retrying.result() is None
    assert committer.commit([]) == [worse]


@pytest.mark.parametrize("is_last", [True, False], ids=["afterwards", "before"])
def test_what_a_retry_has_committed_is_reported_although_another_table_ends_the_session(
    tables: Tables, is_last: bool
) -> None:
    """The answer to a transaction that is acknowledged in this moment may still be sent."""
    tables.errors["worse"] = tables.errors["bad"]
    committer = Committer(tables.attempt, GENEROUS)
    first, second, worse = staged("bad", "b1"), staged("bad", "b2", prev="b1"), staged("worse", "w1")
    committer.commit([first, worse] if is_last else [worse, first])
    tables.errors = {"worse": FencedError("fenced")}
    with pytest.raises(FencedError):
        committer.retry()
    tables.errors["worse"] = RetryableError("no.")
    assert committer.commit([second]) == [first, second]


def test_rows_that_came_during_a_retry_are_not_said_to_be_in_their_table(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    committer.commit([staged("bad", "b1")])
    tables.errors.clear()
    with caplog.at_level(logging.INFO):
        with tables.held("bad"):
            retry = threading.Thread(target=committer.retry)
            retry.start()
            assert tables.is_holding.wait(DEADLINE)
            committer.commit([staged("bad", "b2", prev="b1")])
        retry.join()
    running = [record.getMessage() for record in caplog.records if record.getMessage().startswith("running")]
    assert running == ["running, and 1 table(s) are still being committed: shop.bad"]


def test_a_retry_waits_for_a_table_that_is_being_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even for what was staged for another key range, which is not being tried itself."""
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 1000.0)
    waiting, left, right = Backlog(GENEROUS), staged("bad", "l1", key_range=LEFT), staged("bad", "r1", key_range=RIGHT)
    waiting.add([left])
    waiting.take(0.0)
    waiting.add([right])
    assert waiting.next_due is None
    waiting.record_failure(left.chain_id, RetryableError("no."), 0.0)
    assert waiting.next_due
    assert waiting.next_due >= 500.0
    assert waiting.take(waiting.next_due) == [left, right]


def test_nothing_is_waited_for_once_the_session_has_ended(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    waiting = threading.Thread(target=committer.wait_for_retry)
    waiting.start()
    committer.end()
    waiting.join(DEADLINE)
    assert not waiting.is_alive()
    assert not committer.wait_for_retry()


def test_the_end_of_the_session_is_a_last_attempt_that_heeds_no_pause(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 1000.0)
    committer = Committer(tables.attempt, GENEROUS)
    committer.commit([staged("bad", "b1")])
    tables.errors.clear()
    committer.finish(DEADLINE)
    assert tables.taken == ["b1"]
    committer.finish(DEADLINE)


def test_the_end_of_the_session_waits_for_a_last_attempt_that_begins_late(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer, is_waited_for = Committer(tables.attempt, GENEROUS), threading.Event()
    committer.commit([staged("bad", "b1")])
    tables.errors.clear()
    wait, retry = committer._changed.wait, committer.retry

    def note(timeout: float | None = None) -> bool:
        is_waited_for.set()
        return wait(timeout)

    def retry_late() -> None:
        assert is_waited_for.wait(DEADLINE)
        retry()

    monkeypatch.setattr(committer._changed, "wait", note)
    monkeypatch.setattr(committer, "retry", retry_late)
    committer.finish(DEADLINE)
    assert tables.taken == ["b1"]


def test_rows_that_wait_when_the_session_has_ended_are_an_error_that_names_them(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 1000.0)
    committer = Committer(tables.attempt, GENEROUS)
    committer.commit([staged("bad", "b1")])
    with pytest.raises(RetryableError) as error:
        committer.finish(DEADLINE)
    check_text("commit_errors", "rows wait at the end of the input", str(error.value))
    assert tables.tried == [["b1"], ["b1"]]


def test_a_defect_in_the_last_attempt_is_not_said_to_be_a_silent_catalog(tables: Tables) -> None:
    attempt = tables.attempt

    def fail_later(staged: Sequence[StagedCommit], *, without_retry: Collection[ChainId], tell: Tell) -> None:
        if tables.tried:
            raise LookupError("no such table")
        attempt(staged, without_retry=without_retry, tell=tell)

    committer = Committer(fail_later, GENEROUS)
    committer.commit([staged("bad", "b1")])
    with pytest.raises(LookupError, match="no such table"):
        committer.finish(1.0)


def test_a_defect_in_a_retry_that_outlasts_the_input_is_not_said_to_be_a_silent_catalog(tables: Tables) -> None:
    attempt, began, is_last = tables.attempt, threading.Event(), threading.Event()

    def fail_late(staged: Sequence[StagedCommit], *, without_retry: Collection[ChainId], tell: Tell) -> None:
        if not staged:  # the last attempt finds nothing to do
            is_last.set()
        elif tables.tried:
            began.set()
            assert is_last.wait(DEADLINE)
            raise LookupError("no such table")
        else:
            attempt(staged, without_retry=without_retry, tell=tell)

    committer = Committer(fail_late, GENEROUS)
    committer.commit([staged("bad", "b1")])
    with pytest.raises(LookupError, match="no such table"), run_retries(committer, lambda _: None):
        assert began.wait(DEADLINE)


def test_the_last_attempt_ends_in_time_where_a_catalog_is_silent(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    with tables.held("bad"):
        threading.Thread(target=committer.commit, args=([staged("bad", "b1")],), daemon=True).start()
        assert tables.is_holding.wait(DEADLINE)
        with pytest.raises(RetryableError) as error:
            committer.finish(0.01)
    check_text("commit_errors", "rows wait for a silent catalog at the end of the input", str(error.value))


def test_the_end_of_the_session_waits_for_an_attempt_that_is_running(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    with ThreadPoolExecutor() as threads, tables.held("good"):
        committing = threads.submit(committer.commit, [staged("good", "g1")])
        assert tables.is_holding.wait(DEADLINE)
        finishing = threads.submit(committer.finish, DEADLINE)
        assert wait_until(lambda: [] in tables.tried), "the last attempt has found nothing to do"
    assert finishing.result() is None
    assert committing.result() == [staged("good", "g1")]


def test_what_fails_while_nothing_is_due_is_retried_too(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    committer, is_waiting = Committer(tables.attempt, GENEROUS), threading.Event()
    wait = committer._changed.wait

    def note(timeout: float | None = None) -> bool:
        is_waiting.set()
        return wait(timeout)

    monkeypatch.setattr(committer._changed, "wait", note)
    with run_retries(committer, lambda _: None):
        assert is_waiting.wait(DEADLINE)
        committer.commit([staged("bad", "b1")])
        tables.errors.clear()
        assert wait_until(lambda: tables.taken == ["b1"])


def test_an_error_that_no_retry_can_mend_interrupts_the_session(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    committer.commit([staged("bad", "b1")])
    tables.errors["bad"] = FencedError("fenced")
    interruptions: SimpleQueue[Exception] = SimpleQueue()
    with pytest.raises(RetryableError, match=r"shop\.bad"), run_retries(committer, interruptions.put):
        assert isinstance(interruptions.get(timeout=DEADLINE), FencedError)


def test_a_session_that_is_stopped_says_what_is_in_no_table(
    tables: Tables, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 1000.0)
    committer = Committer(tables.attempt, GENEROUS)
    committer.commit([staged("bad", "b1")])
    caplog.clear()
    with suppress(Stopped), run_retries(committer, lambda _: None), caplog.at_level(logging.WARNING):
        raise Stopped(signal.SIGTERM)
    assert [getattr(record, FIELDS)["event"] for record in caplog.records] == ["waiting"]


def test_what_waits_for_a_table_that_was_made_anew_is_not_forgotten_when_the_new_one_takes_its_rows(
    tmp_path: Path,
) -> None:
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    old = stage(catalog, PATH, WRITER, 1)
    catalog.rename_table(PATH, ("shop", "away"))
    foreign_table(catalog, PATH)
    new = stage(catalog, PATH, WRITER, 2)
    committer = Committer(partial(try_commits, catalog), GENEROUS)
    assert committer.commit([old, new]) == [new]
    assert committer.find_pending(old.table_id, WHOLE) == [old]
    assert isinstance(committer.find_error(old.chain_id), UserError)


@pytest.mark.parametrize("error", [FencedError("fenced"), LostColumnError("lost"), SignInError("expired")])
def test_what_no_later_attempt_can_mend_ends_the_session(tables: Tables, error: ConnectorError) -> None:
    tables.errors["bad"] = error
    committer = Committer(tables.attempt, GENEROUS, ending=(*ENDING, SignInError))
    with pytest.raises(type(error)):
        committer.commit([staged("bad", "b1"), staged("good", "g1")])
    assert tables.taken == ["g1"]


def test_the_whole_chain_is_tried_again_and_lands_when_the_table_recovers(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    first, second = staged("bad", "b1"), staged("bad", "b2", prev="b1")
    committer.commit([first])
    committer.commit([second])
    assert committer.find_pending(first.table_id, WHOLE) == [first, second]
    tables.errors.clear()
    assert committer.commit([]) == [first, second]
    assert tables.tried == [["b1"], ["b1", "b2"], ["b1", "b2"]]
    assert committer.commit([]) == []


def test_a_table_that_failed_is_tried_once_a_time(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    bad = staged("bad", "b1")
    committer.commit([bad])
    assert not tables.without_retry
    committer.commit([staged("good", "g1")])
    assert tables.without_retry == {bad.chain_id}


def test_a_table_that_failed_is_left_alone_in_its_pause(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 1000.0)
    committer = Committer(tables.attempt, GENEROUS)
    committer.commit([staged("bad", "b1")])
    committer.commit([staged("good", "g1"), staged("bad", "b2", prev="b1")])
    assert tables.tried[1] == ["g1"]


def test_the_table_whose_pause_ends_first_is_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 5.0)
    waiting, commits = Backlog(GENEROUS), [staged("bad", "b1"), staged("worse", "w1")]
    waiting.add(commits)
    assert waiting.take(0.0) == commits
    for commit, now in zip(commits, (0.0, 100.0), strict=True):
        waiting.record_failure(commit.chain_id, RetryableError("no."), now)
    due = waiting.next_due
    assert due is not None
    assert waiting.take(due) == commits[:1]


def test_the_pause_of_a_table_grows_while_it_goes_on_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 5.0)
    waiting, bad, now = Backlog(GENEROUS), staged("bad", "b1"), 0.0
    waiting.add([bad])
    for number in range(10):
        pause = min(5.0 * 2**number, 300.0)
        assert waiting.take(now) == [bad]
        waiting.record_failure(bad.chain_id, RetryableError("no."), now)
        assert waiting.take(now + 0.49 * pause) == []
        now += pause


def test_only_what_overlaps_a_key_range_waits_for_it(tables: Tables) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    left, right = staged("bad", "l1", key_range=LEFT), staged("bad", "r1", key_range=RIGHT)
    committer.commit([left, right])
    assert committer.find_pending(left.table_id, LEFT) == [left]
    assert committer.find_pending(left.table_id, WHOLE) == [left, right]


def test_what_waits_can_be_looked_at_while_a_retry_commits_it() -> None:
    """The views of Loads do so, in the main thread."""
    committer, chains = Committer(Tables().attempt, GENEROUS), [staged(f"table{number}", "c1") for number in range(100)]
    has_ended, failures = threading.Event(), list[Exception]()

    def look() -> None:
        while not has_ended.is_set() and not failures:
            try:
                committer.find_pending(chains[0].table_id, WHOLE)
            except Exception as error:  # noqa: BLE001 - the test reports it
                failures.append(error)

    switching = sys.getswitchinterval()
    looking = threading.Thread(target=look)
    sys.setswitchinterval(1e-5)
    try:
        looking.start()
        for _ in range(5):
            committer.commit(chains)
    finally:
        sys.setswitchinterval(switching)
        has_ended.set()
        looking.join()
    assert failures == []


def test_a_table_in_its_pause_is_not_asked_for_another_range_either(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has refused comes first."""
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 1000.0)
    committer = Committer(tables.attempt, GENEROUS)
    committer.commit([staged("bad", "p1")])
    of_its_successor = replace(staged("good", "n1"), path=TableIdentifier("shop", "bad"), table_uuid="another")
    committer.commit([staged("bad", "c1", key_range=LEFT), of_its_successor])
    assert tables.tried == [["p1"], ["n1"]]


def test_every_progress_report_tells_what_waits_and_why(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    committer = Committer(tables.attempt, GENEROUS)
    with caplog.at_level(logging.WARNING):
        committer.commit([staged("bad", "b1")])
        committer.commit([staged("bad", "b2", prev="b1")])
    assert [record.getMessage() for record in caplog.records] == [
        "table shop.bad: 1 transaction(s), 10 rows, 1.0 kB staged and waiting: table shop.bad: no.",
        "table shop.bad: 2 transaction(s), 20 rows, 2.0 kB staged and waiting: table shop.bad: no.",
    ]
    waiting = {"event": "waiting", "table": "shop.bad", "transactions": 2, "rows": 20, "bytes": 2000}
    assert getattr(caplog.records[-1], FIELDS) == waiting


def test_a_retry_tells_only_of_the_tables_that_it_has_tried(
    tables: Tables, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many tables has a pause of its own."""
    tables.errors["worse"] = RetryableError("table shop.worse: no.")
    committer = Committer(tables.attempt, GENEROUS)
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 1000.0)
    committer.commit([staged("worse", "w1")])
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 0.0)
    committer.commit([staged("bad", "b1")])
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        committer.retry()
    assert [getattr(record, FIELDS)["table"] for record in caplog.records] == ["shop.bad"]


@pytest.mark.parametrize("event", ["committed", "recovered"])
def test_what_a_table_has_taken_is_told_in_numbers(event: str, caplog: pytest.LogCaptureFixture) -> None:
    chain = [staged("good", "g1"), staged("good", "g2", prev="g1")]
    with caplog.at_level(logging.INFO):
        Committer(Tables().attempt, GENEROUS).commit(
            [replace(commit, is_recovered=event == "recovered") for commit in chain]
        )
    [record] = caplog.records
    assert record.getMessage() == f"table shop.good: {event} 20 rows in 2 data file(s), 0.00 s"
    assert getattr(record, FIELDS) == {
        "event": event,
        "table": "shop.good",
        "transactions": 2,
        "rows": 20,
        "files": 2,
        "bytes": 2000,
        "attempts": 1,
        "seconds": 0.0,
    }


@pytest.mark.parametrize("limit", [Limit(commits=2, size=1 << 40), Limit(commits=100, size=2000)])
def test_more_than_the_limit_is_an_error_that_says_what_waits(tables: Tables, limit: Limit) -> None:
    committer = Committer(tables.attempt, limit)
    committer.commit([staged("bad", "b1")])
    committer.commit([staged("bad", "b2", prev="b1")])
    committer.check_limit(BOUND)
    committer.commit([staged("good", "g1"), staged("bad", "b3", prev="b2")])
    with pytest.raises(UserError) as error:
        committer.check_limit(BOUND)
    check_text("commit_errors", "more than may wait", str(error.value))
    assert "g1" in tables.taken
    committer.check_limit(BOUND - {staged("bad", "").chain_id})  # nothing adds to it


def test_commits_that_have_not_failed_do_not_count_for_the_limit() -> None:
    """The first attempt may still be running."""
    waiting = Backlog(Limit(commits=1, size=1))
    waiting.add([staged("good", "g1"), staged("good", "g2", prev="g1")])
    waiting.check_limit(BOUND)


def test_a_state_that_no_message_could_hold_is_an_error(tables: Tables) -> None:
    tables.errors["worse"] = tables.errors["bad"]
    entry = len(msgspec.json.encode(encode_added([staged("bad", "b1")])))
    committer = Committer(tables.attempt, Limit(commits=100, size=1 << 40, state=4 * entry + entry // 2))
    for number in range(2):
        committer.commit([staged("bad", f"b{number}"), staged("good", f"g{number}")])
        committer.commit([staged("worse", f"w{number}")])
    committer.check_limit(BOUND)
    committer.commit([staged("bad", "b2", prev="b1"), staged("good", "g2")])
    with pytest.raises(UserError) as error:
        committer.check_limit(BOUND)
    check_text("commit_errors", "more than the state may hold", str(error.value))
    assert "g2" in tables.taken


def test_how_much_of_the_state_waits_is_told_until_the_table_takes_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    entry = len(msgspec.json.encode(encode_added([staged("bad", "b1")])))
    committer = Committer(tables.attempt, Limit(commits=100, size=1 << 40, state=1 << 20))
    for first, second in (("g1", "b1"), ("g2", "b2")):
        committer.commit([staged("good", first), staged("bad", second)])
        committer.check_limit(BOUND)
    del tables.errors["bad"]
    committer.finish(DEADLINE)
    sizes = [fact for fact in told if isinstance(fact, WaitingState)]
    assert sizes == [WaitingState(size, 1 << 20) for size in (entry, 2 * entry, 0)]


@pytest.mark.parametrize("error", [None, RetryableError("table shop.worse: no.")])
def test_a_state_that_is_too_large_is_an_error_once_a_bound_table_would_add_to_it(error: ConnectorError | None) -> None:
    tables = Tables({"bad": RetryableError("table shop.bad: no.")} | ({"worse": error} if error else {}))
    committer = Committer(tables.attempt, Limit(commits=100, size=1 << 40, state=1))
    committer.commit([staged("bad", "b1"), staged("worse", "w1")])
    bound = BOUND - {staged("bad", "").chain_id}
    if error is None:
        committer.check_limit(bound)
    else:
        with pytest.raises(UserError, match=r"^table shop\.worse: no\. By now 2 commits wait for 2 table\(s\)"):
            committer.check_limit(bound)


def test_a_process_that_was_replaced_stops_after_the_others_were_tried() -> None:
    tables = Tables({"bad": FencedError("replaced")})
    committer = Committer(tables.attempt, GENEROUS)
    with pytest.raises(FencedError):
        committer.commit([staged("bad", "b1"), staged("good", "g1")])
    assert tables.taken == ["g1"]
