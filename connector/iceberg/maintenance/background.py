"""A session's maintenance, in the background. What it leaves undone, a later session does."""

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
    otherwise: str  # what a warning says if it fails
    perform: Callable[[IsInterrupted], object]


class Maintenance:
    """Does one task after another, so that no two work on the same files."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._ended = threading.Event()

    def after_commit(self, commit: Committed) -> None:
        """Note what a commit leaves to be done: old metadata files to delete, and snapshots to expire. A failure is a
        warning: the commit is done."""
        table, after = commit.table, commit.metadata
        if is_in_table_bucket(table.location()):
            return
        path = TableIdentifier(*table.name())
        try:
            dropped = find_dropped_metadata(table.metadata, after) if must_delete_old_metadata(table) else ()
            is_expiry_due = bool(due(after, time.time_ns() // 1_000_000))
        except Exception as error:
            _warn(path, "nothing is tidied up", error)
            return
        if dropped:
            self._tasks.put(_Task(path, "old metadata files stay", partial(delete_all, table.io, frozenset(dropped))))
        if is_expiry_due:
            self._expire(path)

    def finish_earlier_work(self, tables: Sequence[BoundTable], staged: Sequence[StagedCommit]) -> None:
        """Note what earlier sessions have left undone. `staged` is all that the connector state names."""
        for table in tables:
            if is_in_table_bucket(table.location):
                continue
            path = table.binding.path
            self._tasks.put(
                _Task(
                    path,
                    "the files that earlier sessions left behind stay until the next one",
                    partial(remove_orphan_files, self._catalog, path, table.writer, staged),
                )
            )
            self._expire(path)

    def _expire(self, path: TableIdentifier) -> None:
        self._tasks.put(_Task(path, "old snapshots stay for now", partial(expire_snapshots, self._catalog, path)))

    def run(self) -> None:
        """Perform the tasks until told to end."""
        while (task := self._tasks.get()) and not self._ended.is_set():
            try:
                task.perform(self._ended.is_set)
            except SessionEndedError:
                return
            except Exception as error:
                if not self._ended.is_set():
                    _warn(task.path, task.otherwise, error)

    def finish(self) -> None:
        """Let `run` return when all tasks are done."""
        self._tasks.put(None)

    def end(self) -> None:
        """Let `run` return as soon as its task asks whether it is interrupted."""
        self._ended.set()
        self.finish()


def _warn(path: TableIdentifier, consequence: str, error: Exception) -> None:
    log.warning("table %s: %s: %s: %s", path, consequence, type(error).__name__, error)


@contextmanager
def run_maintenance(catalog: Catalog) -> Iterator[Maintenance]:
    """A session's maintenance, until the session ends."""
    maintenance = Maintenance(catalog)
    threading.Thread(target=maintenance.run, name="maintenance", daemon=True).start()
    try:
        yield maintenance
    finally:
        maintenance.end()
