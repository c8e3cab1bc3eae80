"""Performs the actions of `maintain`, within a budget. A dry run only finds out what they would do."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO

from connector.iceberg.maintenance.action_outcomes import Action, ActionOutcome, Expiry, Unfinished
from connector.iceberg.maintenance.compact_table import CompactionBudget, TableCompactor, take_groups
from connector.iceberg.maintenance.dropped_tables import DroppedTables
from connector.iceberg.maintenance.expire_snapshots import (
    ExpiredSnapshots,
    expire_all_snapshots,
    log_expiry,
    plan_expiry,
)
from connector.iceberg.maintenance.find_orphan_files import OrphanOptions, find_orphan_files
from connector.iceberg.maintenance.rewrite_manifests import plan_manifests, rewrite_manifests
from connector.iceberg.metadata.references import InterruptedMaintenanceError
from connector.iceberg.metadata.stored_files import StoredFile, delete_all, measure_files
from connector.model.table_identifier import Owner, TableIdentifier

log = logging.getLogger(__name__)

DELETED_AT_ONCE: Final = 5_000  # files, between two lines of progress
OLDER_THAN: Final = timedelta(days=3)  # as in Iceberg's remove_orphan_files


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
        self.is_dry_run = is_dry_run
        self._orphans = OrphanOptions(
            datetime.now(UTC) - orphans.older_than,
            DroppedTables(catalog) if orphans.has_dropped_tables else None,
            orphans.has_unknown,
        )

    def perform(self, action: Action, path: TableIdentifier, owner: Owner) -> ActionOutcome:
        """Perform an action on a table of this owner."""
        if self._budget.is_late():
            return Unfinished()
        try:
            match action:
                case Action.COMPACT:
                    return self._compact(path)
                case Action.MANIFESTS:
                    return self._rewrite_manifests(path, owner)
                case Action.EXPIRE:
                    return self._expire(path)
                case Action.ORPHANS:
                    return self._remove_orphans(path)
        except InterruptedMaintenanceError:
            return Unfinished()

    def _compact(self, path: TableIdentifier) -> ActionOutcome:
        left = self._budget.bytes_left
        if not left:
            return Unfinished()
        compactor = self._new_compactor()
        if self.is_dry_run:
            plan = compactor.plan(self._catalog.load_table(path))
            planned = replace(plan, groups=tuple(take_groups(plan.groups, left)))
            self._budget.take(planned.size)
            return planned
        result = compactor.compact(path, CompactionBudget(self._budget.seconds_left, left))
        self._budget.take(result.bytes_before)
        return result

    def _rewrite_manifests(self, path: TableIdentifier, owner: Owner) -> ActionOutcome:
        left = self._budget.bytes_left
        if not left:
            return Unfinished()
        if self.is_dry_run:
            plan = replace(plan_manifests(self._catalog.load_table(path), left), has_more=False)
        else:
            plan = rewrite_manifests(self._catalog, path, owner, left, self._budget.is_late)
        self._budget.take(plan.size)
        return plan

    def _expire(self, path: TableIdentifier) -> ActionOutcome:
        is_late = self._budget.is_late
        if self.is_dry_run:
            expired = plan_expiry(self._catalog.load_table(path), is_late)
            return Expiry(expired.count, self._measure(expired))
        expired = expire_all_snapshots(self._catalog, path, is_late)
        files = self._measure(expired)
        # Not until the time is over: nothing but the removed snapshots says which files these are.
        self._delete(path, expired.table.io, files, lambda: False)
        if expired.count:
            log_expiry(path, expired)
        return Expiry(expired.count, files)

    def _remove_orphans(self, path: TableIdentifier) -> ActionOutcome:
        found = find_orphan_files(self._catalog, path, self._orphans, self._budget.is_late)
        if self.is_dry_run:
            return found
        deleted = self._delete(path, found.table.io, found.deletable, self._budget.is_late)
        return found if len(deleted) == len(found.deletable) else Unfinished(deleted)

    @staticmethod
    def _measure(expired: ExpiredSnapshots) -> Sequence[StoredFile]:
        return measure_files(expired.table.io, expired.locations)

    @staticmethod
    def _delete(
        path: TableIdentifier, io: FileIO, files: Sequence[StoredFile], is_late: Callable[[], bool]
    ) -> Sequence[StoredFile]:
        """Delete files until it is late, and return those that were deleted."""
        for first in range(0, len(files), DELETED_AT_ONCE):
            if is_late():
                return files[:first]
            delete_all(io, [file.location for file in files[first : first + DELETED_AT_ONCE]])
            if len(files) > DELETED_AT_ONCE:
                done = min(first + DELETED_AT_ONCE, len(files))
                log.info("table %s: deleted %d of %d files", path, done, len(files))
        return files
