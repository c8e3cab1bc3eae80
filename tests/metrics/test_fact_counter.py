"""What facts change in the metrics: counters only grow, gauges say what waits, and tables are bounded."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from connector.host import facts
from connector.host.facts import AttemptFailure, CommitFailure, Fact, RefreshFailure
from connector.metrics.counts import Counts, Labels
from connector.metrics.definitions import ALL, Kind, Metric
from connector.metrics.fact_counter import FactCounter
from connector.metrics.text_file import try_to_write
from support.sessions.scraping import Scraped, read_file

ORDERS = "shop.orders"
ENDED = facts.EndedTransaction(1, 0.5)
COMMIT = facts.CommittedRows(ORDERS, 3, 1, 900, 2, 1, 50, 0.3)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Counted:
    """A counter of facts, and what a scraper would read."""

    def __init__(self, directory: Path, max_tables: int = 100) -> None:
        self.clock = Clock()
        self._counts = Counts({"task": "acme/task"})
        self._counter = FactCounter(self._counts, max_tables, self.clock)
        self._file = directory / "counted.prom"

    def tell(self, *told: Fact) -> Scraped:
        for fact in told:
            self._counter.count(fact)
        try_to_write(self._file, self._counts.make_registry(self._counter.show_waiting))
        return read_file(self._file.read_text())


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def test_every_fact_is_counted() -> None:
    counted = vars(FactCounter)["_count"].dispatcher.registry
    assert set(counted) == {object, *Fact.__subclasses__()}


def test_what_waits_is_added_up_when_it_is_read_and_not_for_each_fact() -> None:
    """Otherwise the facts of a transaction with many tables would cost the square of their number."""

    class Watched(Counts):
        replaced = 0

        def replace(self, metric: Metric, values: Mapping[Labels, float]) -> None:
            self.replaced += 1
            super().replace(metric, values)

    counts = Watched({"task": "acme/task"})
    counter = FactCounter(counts)
    counter.count(facts.OpenedSession((ORDERS,), 100, 1 << 30))
    counter.count(facts.ReceivedRows(ORDERS, 1, 10, 1.0))
    counter.count(facts.StagedRows(ORDERS, "1", 1, 10))
    counter.count(ENDED)
    counter.count(facts.FailedCommit(ORDERS, CommitFailure.OTHER))
    counter.count(facts.EndedCommits(ORDERS, ("1",)))
    assert counts.replaced == 0
    counter.show_waiting()
    assert counts.replaced > 0


def test_a_misspelt_metric_is_not_0(counted: Counted) -> None:
    seen = counted.tell(facts.OpenedSession((ORDERS,), 100, 1 << 30))
    for name in ("rows_comitted_total", "rows_committed", "commit_duration_seconds", "spool_bytes_total"):
        with pytest.raises(AssertionError, match=name):
            seen.value(name)


def test_a_counter_of_a_table_begins_with_0(counted: Counted) -> None:
    seen = counted.tell(facts.OpenedSession((ORDERS,), 100, 1 << 30))
    for metric in ALL:
        if metric.kind is Kind.COUNTER and metric.labels == ("table",):
            name = f"{metric.name}_total"
            assert [*seen.values(name, table=ORDERS).values()] == [0.0], name
    assert seen.value("commit_duration_seconds_count", table=ORDERS) == 0
    assert seen.value("waiting_bytes", table=ORDERS) == 0


def test_the_limits_of_what_may_wait_are_shown(counted: Counted) -> None:
    seen = counted.tell(facts.OpenedSession((ORDERS,), 7, 900), facts.WaitingState(60, 70))
    assert seen.value("waiting_transactions_limit") == 7
    assert seen.value("waiting_limit_bytes") == 900
    assert (seen.value("waiting_state_bytes"), seen.value("waiting_state_limit_bytes")) == (60, 70)


def test_what_is_committed_is_added(counted: Counted) -> None:
    seen = counted.tell(COMMIT, COMMIT)
    assert seen.value("rows_committed_total", table=ORDERS) == 6
    assert seen.value("rows_deleted_total") == 4
    assert seen.value("data_file_bytes_total") == 1800
    assert seen.value("delete_files_total") == 2
    assert seen.value("delete_file_bytes_total") == 100
    assert seen.value("commits_total") == 2


def test_the_time_of_the_last_commit_is_that_of_one_that_added_rows(counted: Counted) -> None:
    """What a table had already, or never gets because of a backfill, waits no more, without a commit."""
    last, ended = "last_commit_timestamp_seconds", facts.EndedCommits(ORDERS, ("1",))
    assert not counted.tell(facts.StagedRows(ORDERS, "1", 1, 10), ended).values(last)
    counted.clock.now = 1010.0
    assert counted.tell(COMMIT, ended).value(last) == 1010
    counted.clock.now = 1020.0
    assert counted.tell(ended).value(last) == 1010


def test_a_histogram_counts_in_each_bucket_what_is_not_above_its_bound(counted: Counted) -> None:
    bound = facts.CommittedRows(ORDERS, 1, 1, 1, 0, 0, 0, 0.5)
    seen = counted.tell(COMMIT, bound, facts.CommittedRows(ORDERS, 1, 1, 1, 0, 0, 0, 1000.0))
    buckets = {dict(labels)["le"]: value for labels, value in seen.values("commit_duration_seconds_bucket").items()}
    assert (buckets["0.25"], buckets["0.5"], buckets["120.0"], buckets["+Inf"]) == (0, 2, 2, 3)
    assert seen.value("commit_duration_seconds_sum") == pytest.approx(1000.8)


def test_transactions_are_counted_by_their_rows_and_by_what_their_steps_took(counted: Counted) -> None:
    seen = counted.tell(
        facts.LoadedTransaction(40.0, 2.0), facts.EndedTransaction(1000, 61.0), facts.EndedTransaction(1001, 5.0)
    )
    assert (seen.value("loads_duration_seconds_count"), seen.value("loads_duration_seconds_sum")) == (1, 40)
    assert (seen.value("search_duration_seconds_count"), seen.value("search_duration_seconds_sum")) == (1, 2)
    assert (seen.value("staging_duration_seconds_count"), seen.value("staging_duration_seconds_sum")) == (2, 66)
    assert (seen.value("transaction_rows_count"), seen.value("transaction_rows_sum")) == (2, 2001)
    assert [seen.value("transaction_rows_bucket", le=bound) for bound in ("100.0", "1000.0", "10000.0")] == [0, 1, 2]


def test_a_histogram_of_the_task_begins_with_0(counted: Counted) -> None:
    seen = counted.tell()
    for metric in ALL:
        if metric.kind is Kind.HISTOGRAM and not metric.labels:
            assert seen.value(f"{metric.name}_count") == 0, metric.name


def test_the_oldest_row_waits_from_its_receipt_until_its_commit(counted: Counted) -> None:
    oldest = "oldest_waiting_row_timestamp_seconds"
    assert counted.tell(facts.ReceivedRows(ORDERS, 1, 10, 995.0)).value(oldest) == 995
    assert counted.tell(facts.StagedRows(ORDERS, "1", 1, 10)).value(oldest) == 995
    counted.clock.now = 1010.0
    counted.tell(ENDED, facts.ReceivedRows(ORDERS, 1, 10, 1009.0))
    assert counted.tell().value(oldest) == 995, "the first transaction waits on"
    seen = counted.tell(facts.EndedCommits(ORDERS, ("1",)))
    assert seen.value(oldest) == 1009
    counted.tell(facts.StagedRows(ORDERS, "2", 1, 10), ENDED)
    assert not counted.tell(facts.EndedCommits(ORDERS, ("2",))).values(oldest), "also while no acknowledgement is sent"


def test_rows_whose_transaction_staged_nothing_for_their_table_wait_no_more(counted: Counted) -> None:
    """All of them were rejected, for instance."""
    counted.tell(facts.ReceivedRows(ORDERS, 1, 10, 995.0), facts.StagedRows("shop.rejected", "1", 1, 10))
    seen = counted.tell(ENDED, facts.EndedCommits("shop.rejected", ("1",)))
    assert not seen.values("oldest_waiting_row_timestamp_seconds")


def test_rows_of_an_earlier_session_wait_since_the_session_began_and_are_not_staged_again(counted: Counted) -> None:
    seen = counted.tell(facts.StagedRows(ORDERS, "1", 5, 10, is_recovered=True))
    assert seen.value("oldest_waiting_row_timestamp_seconds") == 1000
    assert seen.value("waiting_rows") == 5
    assert seen.value("rows_staged_total") == 0


def test_a_table_that_fails_is_marked_until_it_takes_a_commit(counted: Counted) -> None:
    counted.tell(facts.OpenedSession((ORDERS, "shop.other"), 100, 1 << 30), facts.StagedRows(ORDERS, "1", 1, 10))
    seen = counted.tell(facts.FailedCommit(ORDERS, CommitFailure.SIGN_IN))
    assert (seen.value("commit_failing", table=ORDERS), seen.value("sign_in_refused", table=ORDERS)) == (1, 1)
    assert seen.value("commit_failing", table="shop.other") == 0
    seen = counted.tell(facts.FailedCommit(ORDERS, CommitFailure.OTHER))
    assert (seen.value("commit_failing"), seen.value("sign_in_refused")) == (1, 0)
    seen = counted.tell(facts.EndedCommits(ORDERS, ("1",)))
    assert (seen.value("commit_failing"), seen.value("waiting_transactions")) == (0, 0)
    assert seen.value("commits_failed_total") == 2


def test_attempts_are_counted_by_their_reason(counted: Counted) -> None:
    seen = counted.tell(*(facts.FailedAttempt(ORDERS, reason) for reason in AttemptFailure))
    assert seen.value("commit_retries_total") == 3
    assert seen.value("commit_conflicts_total") == seen.value("commit_outcomes_unknown_total") == 1


def test_a_commit_that_is_fenced_is_counted_as_such(counted: Counted) -> None:
    seen = counted.tell(facts.FailedCommit(ORDERS, CommitFailure.FENCED))
    assert seen.value("commits_fenced_total", table=ORDERS) == 1


def test_the_other_tables_share_a_label(tmp_path: Path) -> None:
    counted = Counted(tmp_path, max_tables=2)
    counted.tell(*(facts.ReceivedRows(f"shop.table{number}", 1, 10, 990.0 + number) for number in range(5)))
    seen = counted.tell(
        facts.TableState("shop.table4", 1, 2, 3),
        facts.CompactionDebt("shop.table4", 500, 1),
        facts.FailedCommit("shop.table3", CommitFailure.SIGN_IN),
        facts.FailedCommit("shop.table4", CommitFailure.OTHER),
    )
    received = {dict(labels)["table"]: rows for labels, rows in seen.values("rows_received_total").items()}
    assert received == {"shop.table0": 1, "shop.table1": 1, "other": 3}
    assert seen.value("oldest_waiting_row_timestamp_seconds", table="other") == 992
    assert not seen.values("table_snapshots"), "the other tables would take turns"
    assert not seen.values("compaction_debt_bytes")
    assert seen.value("commit_failing", table="other") == seen.value("sign_in_refused", table="other") == 1


def test_maintenance_and_credentials_are_counted(counted: Counted) -> None:
    seen = counted.tell(
        facts.MaintenanceRun(ORDERS, facts.EXPIRE_SNAPSHOTS, 0.2, has_failed=False),
        facts.MaintenanceRun(ORDERS, facts.EXPIRE_SNAPSHOTS, 0.2, has_failed=True),
        facts.MaintainedFiles(ORDERS, facts.EXPIRE_SNAPSHOTS, 7, 70),
        facts.RefreshedCredentials(RefreshFailure.NO_ANSWER),
        facts.RefreshedCredentials(),
    )
    assert seen.value("maintenance_runs_total", action="expire_snapshots") == 2
    assert seen.value("maintenance_failures_total", action="expire_snapshots") == 1
    assert seen.value("maintenance_duration_seconds_count") == 2
    assert seen.value("maintenance_files_total", table=ORDERS) == 7
    assert seen.value("maintenance_file_bytes_total", table=ORDERS) == 70
    assert seen.value("credential_refreshes_total") == 1
    assert seen.value("credential_refresh_failures_total", reason="no_answer") == 1
    assert seen.value("credential_refresh_failures_total", reason="refused") == 0


def test_loads_treated_values_spool_and_acknowledgements_are_counted(counted: Counted) -> None:
    seen = counted.tell(
        facts.AnsweredLoads(ORDERS, 5, 3),
        *(facts.TreatedValues(ORDERS, treatment, 2) for treatment in ("clamped", "nulled", "rejected")),
        facts.SpoolSize(100, 1000),
        facts.FullSpool(2.5),
        facts.AcknowledgedTransaction(1.5, has_rows=True),
        facts.AcknowledgedTransaction(0.0, has_rows=False),
    )
    assert (seen.value("loads_total"), seen.value("loads_found_total")) == (5, 3)
    assert seen.value("rows_rejected_total") == seen.value("values_nulled_total") == 2
    assert seen.value("values_clamped_total") == 2
    assert (seen.value("spool_bytes"), seen.value("spool_limit_bytes")) == (100, 1000)
    assert seen.value("spool_full_seconds_total") == 2.5
    assert seen.value("held_seconds_total") == 1.5
    assert seen.value("transactions_total") == 1


def test_until_when_an_acknowledgement_is_held_is_shown_and_then_when_it_was_sent(counted: Counted) -> None:
    held = "held_until_timestamp_seconds"
    assert not counted.tell(facts.AcknowledgedTransaction(0.0, has_rows=True)).values(held)
    assert counted.tell(facts.HeldTransaction(15400.0)).value(held) == 15400
    counted.clock.now = 1300.0
    seen = counted.tell(facts.AcknowledgedTransaction(300.0, has_rows=True))
    assert seen.value(held) == 1300, "a flush has ended it earlier"


def test_messages_are_counted_and_the_oldest_one_waits_since_its_commit(tmp_path: Path) -> None:
    counted, oldest = Counted(tmp_path, max_tables=1), "oldest_waiting_notification_timestamp_seconds"
    seen = counted.tell(
        facts.Delivery(ORDERS, has_failed=False),
        facts.Delivery(ORDERS, has_failed=True),
        facts.WaitingNotifications(ORDERS, 900.0),
        facts.WaitingNotifications("shop.second", 950.0),
        facts.WaitingNotifications("shop.third", 940.0),
    )
    assert (seen.value("notifications_total"), seen.value("notification_failures_total")) == (1, 1)
    assert (seen.value(oldest, table=ORDERS), seen.value(oldest, table="other")) == (900, 940)
    seen = counted.tell(facts.WaitingNotifications(ORDERS, None), facts.WaitingNotifications("shop.third", None))
    assert not seen.values(oldest, table=ORDERS)
    assert seen.value(oldest, table="other") == 950
