"""Compacts a session's tables in the background, beside its transactions.

It has a thread for itself, so it holds up neither a commit nor the expiry of snapshots. After some commits of a table,
the table's files are looked at. A run rewrites a limited number of bytes. Then the thread rests for several times the
processor time of the run, so compaction takes a limited share of a processor, whatever its debt is. The time of the run
itself is no measure: the tasks have the lowest priority, and may wait for a processor.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from connector.host import facts
from connector.host.facts import COMPACT_DATA_FILES, CompactionDebt, MaintainedFiles, MaintenanceRun
from connector.host.interruption import InterruptedMaintenanceError, Interruption
from connector.host.logs import format_bytes
from connector.iceberg.maintenance.compact_table import CompactionBudget
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.compaction_thresholds import is_compaction_enabled
from connector.iceberg.maintenance.failure_pauses import FIRST_PAUSE, double_pause
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

FIRST: Final = "00000000"  # the key range of a task's first shard begins with it
# At least one group, or a file with many deleted rows that is larger than that would stay as it is.
# One commit: files that come meanwhile are for a later run, or a table with quick transactions would have all runs.
RUN: Final = CompactionBudget(size=1 << 30, commits=1, least_groups=1)
COMMITS: Final = 5  # after which a table's files are looked at: fewer small files are not merged
REST: Final = 4  # times the processor time of a run, and at least as long as the run took
GROWING: Final = 3  # runs after which the debt is larger than before, until there is a warning


# Compacts one table; see `TableCompactor.compact`.
CompactTable: TypeAlias = Callable[[TableIdentifier, CompactionBudget, Interruption], CompactionResult]


@dataclass
class _Account:
    """When a table is looked at, and how its debt has changed."""

    properties: Mapping[str, str]  # of the table
    commits: int = 0  # since the table was looked at
    is_due: bool = True  # also after fewer commits; a session looks at each table after its first commit
    due: float = 0.0  # not before
    pause: float = FIRST_PAUSE
    debt: int = 0
    unchecked: int = 0  # commits that only runs that failed were to look at
    growing: int = 0  # runs in a row that have left a larger debt than the one before
    is_warned: bool = False


class BackgroundCompaction:
    """Compacts tables one after another, those that have waited longest first."""

    def __init__(self, compact: CompactTable) -> None:
        self._compact = compact
        self._accounts: dict[TableIdentifier, _Account] = {}
        self._rested_at = 0.0
        self._changed = threading.Condition()  # guards all of the above
        self._ended = threading.Event()

    def note_commit(self, path: TableIdentifier, properties: Mapping[str, str], count: int) -> None:
        """Note that a table, which has these properties now, has got so many commits. Nothing is read."""
        with self._changed:
            account = self._accounts.setdefault(path, _Account({}))
            account.properties = properties
            account.commits += count
            self._changed.notify_all()

    def run(self) -> None:
        """Compact the tables that are due until `end` was called."""
        with suppress(InterruptedMaintenanceError):
            while due := self._wait():
                began, worked = time.monotonic(), time.thread_time()
                task_seconds = self._compact_one(*due)
                processor_seconds = task_seconds + time.thread_time() - worked
                with self._changed:
                    now = time.monotonic()
                    self._rested_at = now + max(now - began, REST * processor_seconds)

    def end(self) -> None:
        """Let `run` return as soon as it looks for an interruption."""
        self._ended.set()
        with self._changed:
            self._changed.notify_all()

    def _wait(self) -> tuple[TableIdentifier, int] | None:
        """Return the next table when it is due, and its commits since it was looked at. It is the one that has waited
        longest. None if the session has ended."""
        with self._changed:
            while not self._ended.is_set():
                now = time.monotonic()
                waiting = [path for path, each in self._accounts.items() if each.is_due or each.commits >= COMMITS]
                first = min(waiting, key=lambda path: self._accounts[path].due, default=None)
                if first is None:
                    self._changed.wait()
                    continue
                account = self._accounts[first]
                if (due := max(account.due, self._rested_at)) > now:
                    self._changed.wait(due - now)
                    continue
                commits, account.commits, account.is_due, account.due = account.commits, 0, False, now
                return first, commits
        return None

    def _compact_one(self, path: TableIdentifier, commits: int) -> float:
        """Compact a table, and return the processor time of the tasks."""
        began = time.monotonic()
        try:
            if not is_compaction_enabled(self._accounts[path].properties):
                return 0.0
            result = self._compact(path, RUN, Interruption(self._ended.is_set))
        except InterruptedMaintenanceError:
            raise
        except Exception as error:  # noqa: BLE001 - maintenance must not end the session
            if not self._ended.is_set():
                log.warning(
                    "table %s: its small files were not compacted, so reads get slower: %s: %s",
                    path,
                    type(error).__name__,
                    error,
                )
            self._put_off(path, commits)
            _report(path, time.monotonic() - began, None, 0)
            return 0.0
        _report(path, result.seconds, result, commits + self._take_unchecked(path))
        if result.failed and not result.commits:  # otherwise only the groups that have failed are put off
            self._put_off(path)
        self._note_debt(path, result)
        return result.processor_seconds

    def _put_off(self, path: TableIdentifier, unchecked: int = 0) -> None:
        with self._changed:
            account = self._accounts[path]
            account.unchecked += unchecked
            account.due = time.monotonic() + account.pause
            account.pause = double_pause(account.pause)

    def _take_unchecked(self, path: TableIdentifier) -> int:
        with self._changed:
            account = self._accounts[path]
            unchecked, account.unchecked = account.unchecked, 0
            return unchecked

    def _note_debt(self, path: TableIdentifier, result: CompactionResult) -> None:
        with self._changed:
            account = self._accounts[path]
            if result.commits or not result.failed:
                account.pause = FIRST_PAUSE
            if result.debt and result.commits:
                account.is_due = True  # go on after the rest
            account.growing = account.growing + 1 if result.debt > max(account.debt, RUN.size) else 0
            account.debt = result.debt
            is_due = account.growing >= GROWING and not account.is_warned
            account.is_warned = account.growing > 0 and (account.is_warned or is_due)
        if is_due:
            log.warning(
                "table %s: %s of its data files wait for compaction, and more come than are compacted. Reads get "
                "slower. Let the task upload less often, or run `materialize-iceberg maintain compact --config "
                "CONFIG.json --table %s`.",
                path,
                format_bytes(result.debt),
                path,
            )


def _report(path: TableIdentifier, seconds: float, result: CompactionResult | None, commits: int) -> None:
    """Report to the metrics how a run has ended. Without a result, it has failed."""
    table = str(path)
    facts.report(MaintenanceRun(table, COMPACT_DATA_FILES, seconds, result is None or result.failed > 0))
    if result:
        facts.report(MaintainedFiles(table, COMPACT_DATA_FILES, result.files_before, result.bytes_before))
        facts.report(CompactionDebt(table, result.debt, commits))


@contextmanager
def run_compaction(compact: CompactTable, key_range: str = FIRST) -> Iterator[BackgroundCompaction]:
    """Run a thread that compacts tables until the session ends. `key_range` is the session's.

    Of a task with several shards, only the first one compacts: the others would rewrite the same files.
    """
    compaction = BackgroundCompaction(compact)
    if not key_range.startswith(FIRST):
        yield compaction  # nothing looks at the commits that it notes
        return
    threading.Thread(target=compaction.run, name="maintenance-compaction", daemon=True).start()
    try:
        yield compaction
    finally:
        compaction.end()
