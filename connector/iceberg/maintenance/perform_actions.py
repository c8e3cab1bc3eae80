"""Performs the actions of `maintain`, within a budget. A dry run only finds out what they would do."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from connector.host.interruption import NEVER, InterruptedMaintenanceError, Interruption
from connector.iceberg.maintenance.action_outcomes import ActionOutcome, ExpiryOutcome, Managed, Unfinished
from connector.iceberg.maintenance.actions import OLDER_THAN, Action
from connector.iceberg.maintenance.compact_table import CompactionBudget, TableCompactor, take_groups
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.expire_snapshots import (
    ExpiredSnapshots,
    expire_all_snapshots,
    has_expired,
    log_expiry,
    plan_expiry,
)
from connector.iceberg.maintenance.files_of_dropped_tables import DroppedTables
from connector.iceberg.maintenance.find_orphan_files import OrphanOptions, find_orphan_files
from connector.iceberg.maintenance.rewrite_manifests import plan_manifests, rewrite_manifests
from connector.model.table_identifier import Owner, TableIdentifier
from connector.storage.stored_files import StoredFile, delete_each, keep_io_fresh, measure_files

log = logging.getLogger(__name__)

DELETED_AT_ONCE: Final = 5_000  # files, between two lines of progress


@dataclass(frozen=True)
class OrphanChoice:
    """Which orphan files are deleted, besides those of the task's own void transactions."""

    older_than: timedelta = OLDER_THAN
    has_unknown: bool = False
    has_dropped_tables: bool = False


class Budget:
    """The seconds that a run may take, and the bytes that it may write again."""

    def __init__(self, max_seconds: float | None, max_bytes: int | None) -> None:
        self._deadline = time.monotonic() + (math.inf if max_seconds is None else max_seconds)
        self.bytes_left = math.inf if max_bytes is None else max_bytes

    @property
    def seconds_left(self) -> float:
        """The seconds until the time is over; infinite without a limit."""
        return self._deadline - time.monotonic()

    def is_late(self) -> bool:
        """Whether the time is over."""
        return self.seconds_left <= 0

    def take(self, size: int) -> None:
        """Count bytes that were written again."""
        self.bytes_left = max(0, self.bytes_left - size)


class _Turn:
    """When a table may be written again: after all tables before it."""

    def __init__(self, before: "_Turn | None") -> None:
        self.ended: Final = threading.Event()
        self._before = before

    def wait(self) -> None:
        """Wait for all turns before. One of a table that is not written ends before its time has come."""
        before = self._before
        while before:
            before.ended.wait()
            before = before._before
        self._before = None  # they are over


class TableInTurn:
    """A table as it was loaded last, and its turn: tables are written again in their order, since the budget may not
    suffice for all."""

    def __init__(
        self, catalog: Catalog, path: TableIdentifier, owner: Owner | None, before: "TableInTurn | None"
    ) -> None:
        """Without an owner, another program created the table."""
        self._catalog = catalog
        self.path = path
        self.owner = owner
        self._loaded: Table | None = None
        self._turn: _Turn = _Turn(before._turn if before else None)

    @property
    def loaded(self) -> Table:
        """The table, which is loaded if an action may have changed it since it was loaded last."""
        self._loaded = self._loaded or self._catalog.load_table(self.path)
        return self._loaded

    @contextmanager
    def changed(self) -> Iterator[None]:
        """Change the table."""
        self._loaded = None
        yield

    @contextmanager
    def written_in_turn(self) -> Iterator[None]:
        """Wait for the turn of the table, and change it."""
        self._turn.wait()
        with self.changed():
            yield

    def end_turn(self) -> None:
        """Let the next table have its turn."""
        self._turn.ended.set()


class Maintainer:
    """Performs actions on the tables of a catalog, or finds out what they would do."""

    def __init__(
        self,
        catalog: Catalog,
        new_compactor: Callable[[], TableCompactor],
        budget: Budget,
        orphans: OrphanChoice,
        *,
        is_dry_run: bool,
    ) -> None:
        """Each table has a compactor of its own, which remembers what the table's manifests list."""
        self._catalog = catalog
        self._new_compactor = new_compactor
        self._budget = budget
        self._interruption = Interruption(budget.is_late)
        self.is_dry_run = is_dry_run
        self._orphans = OrphanOptions(
            datetime.now(UTC) - orphans.older_than,
            DroppedTables(catalog) if orphans.has_dropped_tables else None,
            orphans.has_unknown,
        )

    def perform(self, action: Action, table: TableInTurn) -> ActionOutcome:
        """Perform an action on a table."""
        if self._budget.is_late():
            return Unfinished()
        try:
            match action:
                case Action.COMPACT:
                    return self._compact(table)
                case Action.MANIFESTS:
                    return self._rewrite_manifests(table)
                case Action.EXPIRE:
                    return self._expire(table)
                case Action.ORPHANS:
                    return self._remove_orphans(table)
        except InterruptedMaintenanceError:
            return Unfinished()

    def _compact(self, table: TableInTurn) -> ActionOutcome:
        if not self._budget.bytes_left:
            return Unfinished()
        compactor = self._new_compactor()
        plan = compactor.plan(table.loaded)
        if plan.is_managed:
            return Managed()
        if not plan.groups:
            return plan if self.is_dry_run else CompactionResult(debt=plan.size)
        with table.written_in_turn():
            left = self._budget.bytes_left
            if not left or self._budget.is_late():
                return Unfinished()
            if self.is_dry_run:
                plan = replace(plan, groups=tuple(take_groups(plan.groups, left)))
                self._budget.take(plan.size)
                return plan
            result = compactor.compact(table.path, CompactionBudget(self._budget.seconds_left, left))
            self._budget.take(result.begun_bytes)
            return result

    def _rewrite_manifests(self, table: TableInTurn) -> ActionOutcome:
        if not self._budget.bytes_left:
            return Unfinished()
        plan = plan_manifests(table.loaded)
        if not plan.groups:
            return plan
        with table.written_in_turn():
            left = self._budget.bytes_left
            if not left or self._budget.is_late():
                return Unfinished()
            if self.is_dry_run:
                plan = replace(plan_manifests(plan.table, left), has_more=False)
            else:
                plan = rewrite_manifests(self._catalog, table.path, table.owner, left, self._interruption)
            self._budget.take(plan.size)
            return plan

    def _expire(self, table: TableInTurn) -> ActionOutcome:
        if self.is_dry_run:
            expired = plan_expiry(table.loaded, self._interruption)
            files = measure_files(self._keep_io_fresh(expired.table), expired.locations)
            return ExpiryOutcome(expired.count, files, expired.references)
        if not has_expired(table.loaded):
            return ExpiryOutcome(0, ())
        with table.changed():
            expired = expire_all_snapshots(self._catalog, table.path, self._interruption)
        io = self._keep_io_fresh(expired.table)
        # Not until the time is over: nothing but the removed snapshots says which files these are.
        deleted, failure = self._delete(table.path, io, self._try_to_measure(expired, io), NEVER)
        log_expiry(table.path, expired.count, len(deleted), expired.references)
        if failure:
            raise failure
        return ExpiryOutcome(expired.count, deleted, expired.references)

    def _remove_orphans(self, table: TableInTurn) -> ActionOutcome:
        found = find_orphan_files(self._catalog, table.loaded, self._orphans, self._interruption)
        if self.is_dry_run:
            return found
        io = self._keep_io_fresh(found.table)
        deleted, failure = self._delete(table.path, io, found.deletable, self._interruption)
        if failure:
            raise failure
        return found if len(deleted) == len(found.deletable) else Unfinished(deleted)

    def _keep_io_fresh(self, table: Table) -> Callable[[], FileIO]:
        path = TableIdentifier.of(table)
        return keep_io_fresh(path, table, partial(self._catalog.load_table, path))

    @staticmethod
    def _try_to_measure(expired: ExpiredSnapshots, find_io: Callable[[], FileIO]) -> Sequence[StoredFile]:
        try:
            return measure_files(find_io, expired.locations)
        except Exception as error:  # noqa: BLE001 - the files must be deleted all the same
            path = TableIdentifier.of(expired.table)
            log.info("table %s: the sizes of its expired files are not known: %s", path, error)
            return [StoredFile(location, 0, None) for location in sorted(expired.locations)]

    @staticmethod
    def _delete(
        path: TableIdentifier, find_io: Callable[[], FileIO], files: Sequence[StoredFile], interruption: Interruption
    ) -> tuple[Sequence[StoredFile], Exception | None]:
        """Delete files until the work has to end, also if some of them cannot be deleted. Return those that were
        deleted, and the first error."""
        deleted, failure = list[StoredFile](), None
        for first in range(0, len(files), DELETED_AT_ONCE):
            if interruption.is_due():
                break
            part = files[first : first + DELETED_AT_ONCE]
            left, error = delete_each(find_io, [file.location for file in part])
            failure = failure or error
            if len(left) == len(part):
                break  # the store itself has failed
            kept = set(left)
            deleted += [file for file in part if file.location not in kept]
            if len(files) > DELETED_AT_ONCE:
                log.info("table %s: deleted %d of %d files", path, len(deleted), len(files))
        return deleted, failure
