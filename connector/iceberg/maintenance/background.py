"""Maintains tables in the background of a session. A later session does what this one did not finish.

What follows a commit is done first, and takes little time. What earlier sessions have left may take hours if there are
many tables.
"""

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from queue import Empty, PriorityQueue
from typing import Final, TypeAlias
from uuid import UUID

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from connector.encoding.parquet.file_options import find_locations
from connector.host import facts
from connector.host.facts import EXPIRE_SNAPSHOTS, REMOVE_ORPHAN_FILES, MaintenanceRun
from connector.host.interruption import InterruptedMaintenanceError, Interruption
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits.commit_outcomes import Committed, Outcome, TableCommit
from connector.iceberg.commits.snapshot import TableLocks
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.expired_files import ExpiredFiles, UnfinishedExpiryError, delete_in_turn
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.metadata.old_metadata import must_delete_old_metadata
from connector.iceberg.metadata.retention import find_due
from connector.iceberg.metadata.table_directories import is_in_table_bucket, keep_own_of
from connector.model.state import StagedCommit
from connector.model.table_identifier import TableIdentifier
from connector.storage.stored_files import delete_all

log = logging.getLogger(__name__)

PAUSE: Final = 3600.0  # seconds after a failure, before orphans are removed or a table's snapshots expire again

# When a task is performed. Those of one priority are performed in their order.
_AFTER_COMMIT: Final = 0
_EARLIER_WORK: Final = 1
_END: Final = 2

NoteCommit: TypeAlias = Callable[[TableIdentifier, Mapping[str, str], int], object]


@dataclass(frozen=True)
class _Task:
    """A task of the queue, or a step of one: a step has its own warning, and its own metrics."""

    path: TableIdentifier
    consequence: str  # of a failure, for the warning
    perform: Callable[[Interruption], object]
    action: str  # the label of its metrics; "" for a task that only finds out what is due
    is_repeated: bool = False  # after a failure, because no commit brings it again


@dataclass(frozen=True)
class _Recent:
    """What is due after the commits of one table since its maintenance was last looked at. It has no metadata, because
    that of many tables takes much memory."""

    path: TableIdentifier
    catalog: Catalog
    io: FileIO
    location: str
    properties: dict[str, str]
    count: int  # of commits
    used: frozenset[str]  # objects that these commits have used, and that nothing needs any more
    lists: frozenset[str]  # of the data files of the last commit, which the state may still name
    metadata_files: frozenset[str]  # that the table's log named before one of these commits
    named: frozenset[str]  # by the log now
    may_expire: bool

    @classmethod
    def of(cls, commit: TableCommit, lasting: Collection[str]) -> "_Recent":
        """Return what is due after one commit. `lasting` are the branches and tags that stay at any age."""
        table, after = commit.before, commit.after
        return cls(
            TableIdentifier.of(table),
            table.catalog,
            table.io,
            table.location(),
            after.properties,
            1,
            commit.located,
            commit.lists,
            _list_metadata_files(table.metadata),
            _list_metadata_files(after),
            _may_expire(after, lasting),
        )

    def after(self, earlier: "_Recent") -> "_Recent":
        """Return the same, with what was due already."""
        return replace(
            self,
            count=self.count + earlier.count,
            used=self.used | earlier.used | earlier.lists,
            metadata_files=self.metadata_files | earlier.metadata_files,
        )


class BackgroundMaintenance:
    """Runs one task after another, so that two tasks never work on the same files.

    `note_commit` is told of a table's properties, and how many commits it had since it was last told. So what needs
    more time than a task may begin. It must return at once.
    `locks` are shared with the transactions of the session.
    """

    def __init__(
        self,
        catalog: Catalog,
        note_commit: NoteCommit = lambda *_: None,
        locks: TableLocks | None = None,
    ) -> None:
        self._catalog = catalog
        self._locks = locks or TableLocks()
        self._note_commit = note_commit
        self._tasks = PriorityQueue[tuple[int, int, _Task | None]]()  # by priority, and in their order
        self._numbers = count()
        self._recent: dict[UUID, _Recent] = {}  # by table; a table with an entry has a task in the queue
        self._noting = threading.Lock()
        self._ended = threading.Event()
        self._expiry_pauses: dict[TableIdentifier, float] = {}  # the ends of the last ones
        # Branches and tags that the catalog does not remove. It would be asked again after each commit.
        self._lasting = defaultdict[TableIdentifier, set[str]](set)
        # Lists of the data files of each table's last commit.
        self._lists = defaultdict[UUID, frozenset[str]](frozenset)
        self._failed: deque[tuple[float, _Task]] = deque()  # with the time at which each is repeated
        self._expired = defaultdict[TableIdentifier, deque[ExpiredFiles]](deque)  # those that have files left

    def note_outcome(self, outcome: Outcome) -> None:
        """Queue what is due after a commit: to delete its objects and old metadata files, and to expire snapshots.

        An error is only logged as a warning, because the commit itself has succeeded. The maintenance thread finds out
        what is due, so no commit waits for that.
        """
        if not isinstance(outcome, Committed):
            return
        commit = outcome.commit
        uuid, lasting = commit.after.table_uuid, self._lasting[TableIdentifier.of(commit.before)]
        recent = _Recent.of(commit, lasting)
        with self._noting:
            earlier = self._recent.get(uuid)
            self._recent[uuid] = recent.after(earlier) if earlier else recent
        if earlier is None:
            perform = partial(self._maintain, uuid)
            task = _Task(recent.path, "old metadata files and snapshots were not removed", perform, "")
            self._put(_AFTER_COMMIT, task)

    def _maintain(self, uuid: UUID, interruption: Interruption) -> None:
        """Perform what is due after the recent commits of a table."""
        with self._noting:
            recent = self._recent.pop(uuid)
        path = recent.path
        if is_in_table_bucket(recent.location):
            return
        self._note_commit(path, recent.properties, recent.count)
        # The fence has passed: a process that still reads them would be refused.
        used, self._lists[uuid] = recent.used | self._lists[uuid], recent.lists
        if used:
            delete = partial(delete_all, recent.io, used)
            self._perform(_Task(path, "objects of finished commits were not deleted", delete, "remove_located_rows"))
        # Invalid properties of the table stop only what they are about.
        dropped = recent.metadata_files - recent.named
        if dropped and must_delete_old_metadata(path, recent.catalog, recent.properties):
            delete = partial(_delete_old_metadata, recent, uuid, dropped)
            self._perform(_Task(path, "old metadata files were not deleted", delete, "remove_old_metadata"))
        is_paused = time.monotonic() < self._expiry_pauses.get(path, 0.0)
        if not is_paused and recent.may_expire and not interruption.is_due():
            self._perform(self._expiry(path))

    def finish_earlier_work(self, tables: Sequence[BoundTable], staged: Sequence[StagedCommit]) -> None:
        """Queue the tasks that earlier sessions did not finish. `staged` has all commits of the connector state."""
        for table in tables:
            if is_in_table_bucket(table.location):
                continue
            path = table.binding.path
            self._put(
                _EARLIER_WORK,
                _Task(
                    path,
                    "orphan files of earlier sessions were not deleted",
                    partial(remove_task_orphans, self._catalog, path, table.writer, staged),
                    REMOVE_ORPHAN_FILES,
                    is_repeated=True,
                ),
            )
            self._put(_EARLIER_WORK, self._expiry(path))

    def _expiry(self, path: TableIdentifier) -> _Task:
        return _Task(path, "old snapshots were not expired", partial(self._expire, path), EXPIRE_SNAPSHOTS)

    def _expire(self, path: TableIdentifier, interruption: Interruption) -> None:
        try:
            expire_snapshots(self._catalog, path, interruption, self._locks, self._lasting[path])
        except Exception:
            # An invalid property, or a catalog or a store that refuses: each attempt takes the lock of the table.
            self._expiry_pauses[path] = time.monotonic() + PAUSE
            raise

    def run(self) -> None:
        """Perform the tasks until `finish` or `end` was called."""
        with suppress(InterruptedMaintenanceError):
            while (task := self._take()) and not self._ended.is_set():
                self._perform(task)

    def _put(self, priority: int, task: _Task | None) -> None:
        self._tasks.put((priority, next(self._numbers), task))

    def _take(self) -> _Task | None:
        """Wait for the next task. Failed ones come again when nothing else is to do."""
        if not self._failed:
            return self._tasks.get()[-1]
        due, failed = self._failed[0]
        try:
            return self._tasks.get(timeout=max(0.0, due - time.monotonic()))[-1]
        except Empty:
            self._failed.popleft()
            return failed

    def _perform(self, task: _Task) -> None:
        began = time.monotonic()
        try:
            task.perform(Interruption(self._ended.is_set))
            _report(task, began, has_failed=False)
        except InterruptedMaintenanceError:
            raise
        except UnfinishedExpiryError as left:
            expired = self._expired[task.path]
            is_first = not expired  # one repeated task for each table: it deletes also what comes to these
            expired.append(left.files)
            rest = partial(delete_in_turn, expired)
            task = _Task(task.path, "files of expired snapshots were not deleted", rest, EXPIRE_SNAPSHOTS, is_first)
            self._note_failure(task, began, left.__cause__)
        except Exception as error:  # noqa: BLE001 - maintenance must not end the session
            self._note_failure(task, began, error)

    def _note_failure(self, task: _Task, began: float, error: BaseException | None) -> None:
        _report(task, began, has_failed=True)
        if task.is_repeated:
            self._failed.append((time.monotonic() + PAUSE, task))
        if not self._ended.is_set():
            log.warning("table %s: %s: %s: %s", task.path, task.consequence, type(error).__name__, error)

    def finish(self) -> None:
        """Let `run` return after the queued tasks."""
        self._put(_END, None)

    def end(self) -> None:
        """Let `run` return as soon as its current task checks for an interruption."""
        self._ended.set()
        self.finish()


def _list_metadata_files(metadata: TableMetadata) -> frozenset[str]:
    return frozenset(entry.metadata_file for entry in metadata.metadata_log)


def _delete_old_metadata(recent: _Recent, uuid: UUID, dropped: Set[str], interruption: Interruption) -> None:
    """Delete metadata files that the log does not name any more. Anyone who can commit to the table writes its log."""
    provider = find_locations(recent.location, recent.properties)
    delete_all(recent.io, keep_own_of(recent.location, provider, uuid, dropped), interruption)


def _may_expire(metadata: TableMetadata, lasting: Collection[str]) -> bool:
    """Whether snapshots are due to expire, or an expiry would tell what is wrong with the metadata."""
    try:
        return bool(find_due(metadata, time.time_ns() // 1_000_000, lasting))
    except Exception:  # noqa: BLE001 - the commit itself has succeeded
        return True


def _report(task: _Task, began: float, *, has_failed: bool) -> None:
    if task.action:
        facts.report(MaintenanceRun(str(task.path), task.action, time.monotonic() - began, has_failed))


@contextmanager
def run_maintenance(
    catalog: Catalog,
    note_commit: NoteCommit = lambda *_: None,
    locks: TableLocks | None = None,
) -> Iterator[BackgroundMaintenance]:
    """Run a thread that performs maintenance tasks until the session ends."""
    maintenance = BackgroundMaintenance(catalog, note_commit, locks)
    threading.Thread(target=maintenance.run, name="maintenance", daemon=True).start()
    try:
        yield maintenance
    finally:
        maintenance.end()
