"""What a session does for its tables in the background. What it leaves undone, a later session does."""

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

from pyiceberg.catalog import Catalog

from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits import commit
from connector.iceberg.commits.commit import Failed, Landed
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.remove_orphan_files import remove_orphan_files
from connector.iceberg.metadata.manifests import WrittenLists
from connector.iceberg.metadata.references import SessionEndedError
from connector.iceberg.metadata.stored_files import delete_all, is_in_table_bucket
from connector.model.state import ChainId, StagedCommit
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
        self._new_writer = partial(SnapshotWriter, WrittenLists())
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._ended = threading.Event()

    def attempt(self, staged: Sequence[StagedCommit], once: Collection[ChainId] = ()) -> list[Landed | Failed]:
        """`commit.attempt`, after which the commits' upkeep is done in the background."""
        outcomes = commit.attempt(self._catalog, staged, once, self._new_writer)
        for outcome in outcomes:
            if isinstance(outcome, Landed):
                self._look_after(outcome)
        return outcomes

    def look_after(self, tables: Sequence[BoundTable], staged: Sequence[StagedCommit]) -> None:
        """Do what earlier sessions have left undone. `staged` is all that the session's state names."""
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

    def _look_after(self, landed: Landed) -> None:
        path, due_maintenance = landed.chain[0].path, landed.due_maintenance
        if due_maintenance and due_maintenance.old_metadata:
            self._tasks.put(
                _Task(
                    path,
                    "old metadata files stay",
                    partial(delete_all, due_maintenance.io, due_maintenance.old_metadata),
                )
            )
        if due_maintenance and due_maintenance.expires:
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
                    kind = type(error).__name__
                    log.warning("table %s: %s: %s: %s", ".".join(task.path), task.otherwise, kind, error)

    def finish(self) -> None:
        """Let `run` return when all tasks are done."""
        self._tasks.put(None)

    def end(self) -> None:
        """Let `run` return as soon as its task asks whether it is interrupted."""
        self._ended.set()
        self.finish()


@contextmanager
def run_maintenance(catalog: Catalog) -> Iterator[Maintenance]:
    """A session's maintenance, until the session ends."""
    maintenance = Maintenance(catalog)
    threading.Thread(target=maintenance.run, name="maintenance", daemon=True).start()
    try:
        yield maintenance
    finally:
        maintenance.end()
