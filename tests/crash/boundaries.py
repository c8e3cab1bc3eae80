"""Faults in a connector process: where it dies, what time it is, and where it meets the Local catalog."""

import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ServiceUnavailableError
from pyiceberg.table import Table

from connector.iceberg import perform_changes
from connector.iceberg.commits import commit, snapshot
from connector.session import transactions
from crash import foreign
from crash.catalog_faults import is_refused, lost_answer
from crash.faults import Faults, swap
from crash.ledger import TABLES

KILL_BEFORE_COMMIT: Final = "kill-before-commit"
KILL_AFTER_COMMIT: Final = "kill-after-commit"
KILL_BEFORE_BACKFILL: Final = "kill-before-backfill"
KILL_AFTER_BACKFILL: Final = "kill-after-backfill"
KILL_WHILE_STORING: Final = "kill-while-storing"
CLOCK_IS_AHEAD: Final = "clock-is-ahead"
AHEAD: Final = 3600 * 10**9  # nanoseconds


def killed_when_only(table: str) -> str:
    """The fault of a process that dies when this table has taken its commit and no other has."""
    return f"kill-when-only-{table}-has-landed"


def guard_catalog() -> None:
    send, faults = SqlCatalog.commit_table, Faults.of_this_process()

    def commit_table(self: SqlCatalog, table: Table, requirements: Any, updates: Any) -> Any:
        def overtake() -> None:
            foreign.overtake(SqlCatalog(self.name, **self.properties), table.name())

        if is_refused(faults, table.name()[-1], str(os.getpid()), overtake):
            raise ServiceUnavailableError("503 Service Unavailable")
        answer = send(self, table, requirements, updates)
        if lost := lost_answer(faults):
            raise lost.error()
        return answer

    swap(SqlCatalog, "commit_table", commit_table)


def guard_commits() -> None:
    """Death around a commit to any catalog."""
    land, faults = commit.commit_snapshot, Faults.of_this_process()

    def guarded(catalog: Any, table: Table, *rest: Any) -> Any:
        name = table.name()[-1]
        _die(faults, KILL_BEFORE_COMMIT)
        if any(faults.is_armed(killed_when_only(other)) for other in TABLES if other != name):
            threading.Event().wait()  # for the end
        landed = land(catalog, table, *rest)
        _die(faults, KILL_AFTER_COMMIT)
        _die(faults, killed_when_only(name))
        return landed

    swap(commit, "commit_snapshot", guarded)


def guard_backfills() -> None:
    """Death around each commit in which apply begins the backfill of a table. One comes after the other, so that it is
    known how many tables a process that dies has left."""
    start: Any = perform_changes.start_backfill  # type: ignore[attr-defined]
    faults, turn = Faults.of_this_process(), threading.Lock()

    def guarded(catalog: Catalog, table: Table, change: Any) -> None:
        def commit_table(*arguments: Any) -> Any:
            with turn:
                _die(faults, KILL_BEFORE_BACKFILL)
                answer = catalog.commit_table(*arguments)
                _die(faults, KILL_AFTER_BACKFILL)
                return answer

        start(SimpleNamespace(commit_table=commit_table, load_table=catalog.load_table), table, change)

    swap(perform_changes, "start_backfill", guarded)


def guard_clock() -> None:
    """The clock by which snapshots are dated."""
    date, faults = time.time_ns, Faults.of_this_process()

    def time_ns() -> int:
        return date() + (AHEAD if faults.strikes(CLOCK_IS_AHEAD) else 0)

    swap(snapshot, "time", SimpleNamespace(time_ns=time_ns))


def guard_stores() -> None:
    """Death when some of a transaction's rows have been taken."""
    store, faults = transactions.OpenTransaction.store, Faults.of_this_process()

    def guarded(self: transactions.OpenTransaction, rows: Any) -> None:
        store(self, rows)
        _die(faults, KILL_WHILE_STORING)

    swap(transactions.OpenTransaction, "store", guarded)


def _die(faults: Faults, fault: str) -> None:
    if faults.strikes(fault):
        os.kill(os.getpid(), signal.SIGKILL)
