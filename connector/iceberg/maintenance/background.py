"""Maintains tables in the background of a session. A later session does what this one did not finish."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

from pyiceberg.catalog import Catalog

from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits.commit import Committed
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.remove_orphan_files import remove_orphan_files
from connector.iceberg.metadata.references import SessionEndedError
from connector.iceberg.metadata.retention import due
from connector.iceberg.metadata.stored_files import (
    delete_all,
    find_dropped_metadata,
    is_in_table_bucket,
    must_delete_old_metadata,
)
from connector.model.state import StagedCommit
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

IsInterrupted: TypeAlias = Callable[[], bool]


@dataclass(frozen=True)
class _Task:
    path: TableIdentifier
    consequence: str  # of a failure, for the warning
    perform: Callable[[IsInterrupted], object]


class Maintenance:
    """Runs one task after another, so that two tasks never work on the same files."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._ended = threading.Event()

    def after_commit(self, commit: Committed) -> None:
        """Queue the tasks after a commit: delete located rows and old metadata files, and expire snapshots.

        An error is only logged as a warning, because the commit itself has succeeded.
        """
        table, after = commit.table, commit.metadata
        if is_in_table_bucket(table.location()):
            return
        path = TableIdentifier(*table.name())
        try:
            dropped = find_dropped_metadata(table.metadata, after) if must_delete_old_metadata(table) else ()
            is_expiry_due = bool(due(after, time.time_ns() // 1_000_000))
        except Exception as error:  # noqa: BLE001 - the commit is done: nothing that follows may fail it
            _warn(path, "old metadata files and snapshots were not removed", error)
            return
        if commit.located:
            # The fence has passed: a process that still reads them would be refused.
            self._tasks.put(_Task(path, "located rows were not deleted", partial(delete_all, table.io, commit.located)))
        if dropped:
            self._tasks.put(
                _Task(path, "old metadata files were not deleted", partial(delete_all, table.io, frozenset(dropped)))
            )
        if is_expiry_due:
            self._queue_expiry(path)

    def finish_earlier_work(self, tables: Sequence[BoundTable], staged: Sequence[StagedCommit]) -> None:
        """Queue the tasks that earlier sessions did not finish. `staged` has all commits of the connector state."""
        for table in tables:
            if is_in_table_bucket(table.location):
                continue
            path = table.binding.path
            self._tasks.put(
                _Task(
                    path,
                    "orphan files of earlier sessions were not deleted",
                    partial(remove_orphan_files, self._catalog, path, table.writer, staged),
                )
            )
            self._queue_expiry(path)

    def _queue_expiry(self, path: TableIdentifier) -> None:
        self._tasks.put(_Task(path, "old snapshots were not expired", partial(expire_snapshots, self._catalog, path)))

    def run(self) -> None:
        """Perform the tasks until `finish` or `end` was called."""
        while (task := self._tasks.get()) and not self._ended.is_set():
            try:
                task.perform(self._ended.is_set)
            except SessionEndedError:
                return
            except Exception as error:  # noqa: BLE001 - maintenance must not end the session
                if not self._ended.is_set():
                    _warn(task.path, task.consequence, error)

    def finish(self) -> None:
        """Let `run` return after the queued tasks."""
        self._tasks.put(None)

    def end(self) -> None:
        """Let `run` return as soon as its current task checks for an interruption."""
        self._ended.set()
        self.finish()


def _warn(path: TableIdentifier, consequence: str, error: Exception) -> None:
    log.warning("table %s: %s: %s: %s", path, consequence, type(error).__name__, error)


@contextmanager
def run_maintenance(catalog: Catalog) -> Iterator[Maintenance]:
    """Run a thread that performs maintenance tasks until the session ends."""
    maintenance = Maintenance(catalog)
    threading.Thread(target=maintenance.run, name="maintenance", daemon=True).start()
    try:
        yield maintenance
    finally:
        maintenance.end()
