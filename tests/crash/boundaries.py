"""Faults where a connector process meets its catalog, and where it dies."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import requests
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
)
from pyiceberg.table import Table

from connector import transactions
from crash import foreign
from crash.faults import Faults, swap

KILL_BEFORE_COMMIT: Final = "kill-before-commit"
KILL_AFTER_COMMIT: Final = "kill-after-commit"
KILL_WHILE_STORING: Final = "kill-while-storing"
MEETING: Final = "meeting"  # two shards have looked at one table before either commits
LOST_ANSWERS: Final[dict[str, Callable[[], Exception]]] = {
    "commit-answered-500": lambda: ServerError("500 Internal Server Error"),
    "commit-answered-502": lambda: CommitStateUnknownException("502 Bad Gateway"),
    "commit-answered-503": lambda: ServiceUnavailableError("503 Service Unavailable"),
    "commit-not-answered": lambda: requests.ConnectionError("Connection reset by peer"),
    "commit-answered-conflict": lambda: CommitFailedException("409 Conflict, to a request that was sent twice"),
}
MEETING_DEADLINE: Final = 30.0  # seconds


def overtaken(table: str) -> str:
    """The fault of another engine that appends between our look at the table and our commit."""
    return f"commit-to-{table}-overtaken"


def refused(table: str) -> str:
    """The fault of a table that refuses commits."""
    return f"commits-to-{table}-refused"


def guard_catalog() -> None:
    """Faults around each commit of the Local catalog."""
    send, faults = SqlCatalog.commit_table, Faults.of_this_process()

    def commit_table(self: SqlCatalog, table: Table, requirements: Any, updates: Any) -> Any:
        name = table.name()[-1]
        _meet(faults, name)
        _die(faults, KILL_BEFORE_COMMIT)
        if faults.strikes(refused(name)):
            raise ServiceUnavailableError("503 Service Unavailable")
        if faults.strikes(overtaken(name)):
            foreign.append(table.catalog.load_table(table.name()), foreign.OVERTAKING)
        answer = send(self, table, requirements, updates)
        _die(faults, KILL_AFTER_COMMIT)
        for fault, error in LOST_ANSWERS.items():
            if faults.strikes(fault):
                raise error()
        return answer

    swap(SqlCatalog, "commit_table", commit_table)


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


def _meet(faults: Faults, table: str) -> None:
    """Wait until another process has also looked at the table and is about to commit, once a process."""
    place = faults.directory / f"{MEETING}-{table}.place"
    if not place.is_dir():
        return
    (place / str(os.getpid())).touch()
    deadline = time.monotonic() + MEETING_DEADLINE
    while len(list(place.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
