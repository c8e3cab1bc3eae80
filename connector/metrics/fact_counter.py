"""Counts facts: what each fact changes in which metric."""

import threading
import time
from collections.abc import Callable
from functools import singledispatchmethod
from typing import Final

from connector.host import facts
from connector.host.facts import AttemptFailure, CommitFailure, Fact, RefreshFailure
from connector.metrics import definitions
from connector.metrics.counts import MAX_TABLES, OTHER_TABLES, Counts, TableLabels
from connector.metrics.definitions import REASON, TABLE, Kind
from connector.metrics.waiting_commits import WaitingCommits

OF_TREATMENT: Final = {
    "clamped": definitions.VALUES_CLAMPED,
    "nulled": definitions.VALUES_NULLED,
    "rejected": definitions.ROWS_REJECTED,
}


class FactCounter:
    """Counts the facts of one session. Any thread may tell one."""

    def __init__(self, counts: Counts, max_tables: int = MAX_TABLES, now: Callable[[], float] = time.time) -> None:
        self._counts = counts
        self._labels = TableLabels(max_tables)
        self._now = now
        self._waiting = WaitingCommits(counts, self._labels.find, now())
        self._counting = threading.Lock()
        counts.set(definitions.SESSION_START, now())
        self._begin(())
        for reason in RefreshFailure:
            self._begin(REASON, reason)

    def count(self, fact: Fact) -> None:
        """Count one fact."""
        with self._counting:
            self._count(fact)

    def show_waiting(self) -> None:
        """Set the gauges of what waits. Call this before the numbers are read."""
        with self._counting:
            self._waiting.show()

    def _admit(self, table: str) -> str:
        """Return the label of a table. The metrics of a new label begin."""
        is_new, label = self._labels.admit(table), self._labels.find(table)
        if is_new:
            self._begin(TABLE, label)
            self._waiting.begin(table)
        return label

    def _begin(self, labels: tuple[str, ...], *values: str) -> None:
        for metric in definitions.ALL:
            if metric.kind is not Kind.GAUGE and metric.labels == labels:
                self._counts.begin(metric, *values)

    @singledispatchmethod
    def _count(self, fact: Fact) -> None:
        raise AssertionError(f"no metric counts {type(fact).__name__}")

    @_count.register
    def _(self, fact: facts.OpenedSession) -> None:
        for table in fact.tables:
            self._admit(table)
        self._counts.set(definitions.WAITING_TRANSACTIONS_LIMIT, fact.max_transactions)
        self._counts.set(definitions.WAITING_BYTES_LIMIT, fact.max_size)

    @_count.register
    def _(self, fact: facts.ReceivedRows) -> None:
        table = self._admit(fact.table)
        self._counts.add(definitions.ROWS_RECEIVED, fact.rows, table)
        self._counts.add(definitions.BYTES_RECEIVED, fact.size, table)
        self._counts.set(definitions.LAST_RECEIPT, self._now())
        self._waiting.receive(fact.table, fact.since)

    @_count.register
    def _(self, fact: facts.AnsweredLoads) -> None:
        table = self._admit(fact.table)
        self._counts.add(definitions.LOADS, fact.asked, table)
        self._counts.add(definitions.LOADS_FOUND, fact.found, table)

    @_count.register
    def _(self, fact: facts.LoadedTransaction) -> None:
        self._counts.observe(definitions.LOADS_DURATION, fact.seconds)
        self._counts.observe(definitions.SEARCH_DURATION, fact.search_seconds)

    @_count.register
    def _(self, fact: facts.TreatedValues) -> None:
        self._counts.add(OF_TREATMENT[fact.treatment], fact.count, self._admit(fact.table))

    @_count.register
    def _(self, fact: facts.StagedRows) -> None:
        table = self._admit(fact.table)
        if not fact.is_recovered:
            self._counts.add(definitions.ROWS_STAGED, fact.rows, table)
            self._counts.add(definitions.BYTES_STAGED, fact.size, table)
        self._waiting.stage(fact)

    @_count.register
    def _(self, fact: facts.WaitingState) -> None:
        self._counts.set(definitions.WAITING_STATE, fact.size)
        self._counts.set(definitions.WAITING_STATE_LIMIT, fact.limit)

    @_count.register
    def _(self, fact: facts.EndedTransaction) -> None:
        self._counts.observe(definitions.STAGING_DURATION, fact.seconds)
        self._counts.observe(definitions.TRANSACTION_ROWS, fact.rows)
        self._waiting.close()

    @_count.register
    def _(self, fact: facts.CommittedRows) -> None:
        table = self._admit(fact.table)
        for metric, amount in (
            (definitions.COMMITS, 1),
            (definitions.ROWS_COMMITTED, fact.rows),
            (definitions.ROWS_DELETED, fact.deleted_rows),
            (definitions.DATA_FILES, fact.files),
            (definitions.DATA_BYTES, fact.size),
            (definitions.DELETE_FILES, fact.delete_files),
            (definitions.DELETE_BYTES, fact.delete_size),
        ):
            self._counts.add(metric, amount, table)
        self._counts.observe(definitions.COMMIT_DURATION, fact.seconds, table)
        self._counts.set(definitions.LAST_COMMIT, self._now(), table)

    @_count.register
    def _(self, fact: facts.EndedCommits) -> None:
        self._waiting.end(fact.table, fact.commit_ids)

    @_count.register
    def _(self, fact: facts.FailedAttempt) -> None:
        table = self._admit(fact.table)
        self._counts.add(definitions.RETRIES, 1, table)
        if fact.reason is AttemptFailure.CONFLICT:
            self._counts.add(definitions.CONFLICTS, 1, table)
        if fact.reason is AttemptFailure.UNKNOWN:
            self._counts.add(definitions.OUTCOMES_UNKNOWN, 1, table)

    @_count.register
    def _(self, fact: facts.FailedCommit) -> None:
        table = self._admit(fact.table)
        self._counts.add(definitions.COMMITS_FAILED, 1, table)
        if fact.reason is CommitFailure.FENCED:
            self._counts.add(definitions.COMMITS_FENCED, 1, table)
        self._waiting.fail(fact.table, fact.reason)

    @_count.register
    def _(self, fact: facts.TableState) -> None:
        table = self._admit(fact.table)
        if table != OTHER_TABLES:  # the tables would take turns
            self._counts.set(definitions.TABLE_SNAPSHOTS, fact.snapshots, table)
            self._counts.set(definitions.TABLE_DATA_FILES, fact.data_files, table)
            self._counts.set(definitions.TABLE_DELETE_FILES, fact.delete_files, table)

    @_count.register
    def _(self, fact: facts.HeldTransaction) -> None:
        self._counts.set(definitions.HELD_UNTIL, fact.until)

    @_count.register
    def _(self, fact: facts.AcknowledgedTransaction) -> None:
        self._counts.add(definitions.TRANSACTIONS, fact.has_rows)
        self._counts.add(definitions.HELD, fact.held)
        if fact.held:
            self._counts.set(definitions.HELD_UNTIL, self._now())

    @_count.register
    def _(self, fact: facts.SpoolSize) -> None:
        self._counts.set(definitions.SPOOL, fact.size)
        self._counts.set(definitions.SPOOL_LIMIT, fact.limit)

    @_count.register
    def _(self, fact: facts.FullSpool) -> None:
        self._counts.add(definitions.SPOOL_FULL, fact.seconds)

    @_count.register
    def _(self, fact: facts.MaintenanceRun) -> None:
        self._counts.add(definitions.MAINTENANCE_RUNS, 1, fact.action)
        self._counts.add(definitions.MAINTENANCE_FAILURES, fact.has_failed, fact.action)
        self._counts.observe(definitions.MAINTENANCE_DURATION, fact.seconds, fact.action)

    @_count.register
    def _(self, fact: facts.MaintainedFiles) -> None:
        labels = self._admit(fact.table), fact.action
        self._counts.add(definitions.MAINTENANCE_FILES, fact.files, *labels)
        self._counts.add(definitions.MAINTENANCE_BYTES, fact.size, *labels)

    @_count.register
    def _(self, fact: facts.CompactionDebt) -> None:
        table = self._admit(fact.table)
        self._counts.add(definitions.COMPACTION_COMMITS, fact.commits, table)
        if table != OTHER_TABLES:  # the tables would take turns
            self._counts.set(definitions.COMPACTION_DEBT, fact.size, table)

    @_count.register
    def _(self, fact: facts.Delivery) -> None:
        metric = definitions.NOTIFICATION_FAILURES if fact.has_failed else definitions.NOTIFICATIONS
        self._counts.add(metric, 1, self._admit(fact.table))

    @_count.register
    def _(self, fact: facts.WaitingNotifications) -> None:
        self._admit(fact.table)
        self._waiting.tell(fact.table, fact.since)

    @_count.register
    def _(self, fact: facts.RefreshedCredentials) -> None:
        if fact.failure:
            self._counts.add(definitions.REFRESH_FAILURES, 1, fact.failure)
        else:
            self._counts.add(definitions.REFRESHES, 1)
