"""Compacts one table: plans, has the groups rewritten, and commits, until nothing is left or the budget is spent.

A session and the command `maintain` do the same, with other budgets. Each commit has a bounded number of bytes. So
little work is lost if the process ends, and no new file gets too old to be committed.
"""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.encoding.parquet.file_options import TARGET_SIZE, Destination
from connector.encoding.rewriting.file_groups import Compact, CompactedGroup, FailedGroup, FileGroup
from connector.host.errors import ConnectorError
from connector.host.interruption import NEVER, Interruption
from connector.iceberg.catalogs.table_optimizers import is_compacted_by_service
from connector.iceberg.commits.commit_errors import list_retried_errors
from connector.iceberg.commits.compaction_commit import CommittedCompaction, CompactionBase, CompactionCommit
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.iceberg.fences.file_names import CompactionOrigin
from connector.iceberg.loaded_tables import check_table_properties
from connector.iceberg.maintenance.compaction_plan import CompactionPlan, GroupPlan, is_compacted_here, plan_compaction
from connector.iceberg.maintenance.compaction_result import CompactionResult, PerformedGroups, log_groups
from connector.iceberg.maintenance.compaction_thresholds import CompactionThresholds
from connector.iceberg.maintenance.failure_pauses import FailurePauses
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.table_arrangement import find_arrangement_of_all
from connector.iceberg.metadata.table_properties import read_name_mapping
from connector.model.binding import Arrangement
from connector.model.properties import Properties
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import access_to, keep_access_fresh
from connector.storage.storage_errors import translate_errors

log = logging.getLogger(__name__)

COMMIT_SIZE: Final = 4 << 30  # bytes of sources of one commit
COMMIT_SECONDS: Final = 900.0  # after which no group begins, and those that have begun are committed


@dataclass(frozen=True)
class CompactionBudget:
    """How much a compaction may do. When the time is over, no group begins."""

    seconds: float = math.inf
    size: float = math.inf  # bytes of data files that are rewritten
    commits: float = math.inf
    least_groups: int = 0  # that are rewritten even if they are larger


NO_LIMIT: Final = CompactionBudget()

# Plans which of these files of a table are rewritten.
PlanTable: TypeAlias = Callable[[Table, Sequence[ListedFile]], CompactionPlan]


class TableCompactor:
    """Compacts tables. In a session, it shares the writers of snapshots with the transactions."""

    def __init__(
        self,
        catalog: Catalog,
        compact: Compact,
        reload: Callable[[TableIdentifier], Table],
        writers: SnapshotWriters | None = None,
        plan: PlanTable = plan_compaction,
    ) -> None:
        """`reload` loads a table for new credentials. It raises ConnectorError, so that only the groups fail."""
        self._catalog = catalog
        self._compact = compact
        self._writers = writers or SnapshotWriters()
        self._planner = plan
        self._reload = reload
        self._told: set[tuple[str, ...]] = set()  # tables that the catalog's service compacts
        # Data files of each table. Files do not change, so they are left out from then on.
        self._unreadable = defaultdict[TableIdentifier, set[str]](set)
        self._pauses = FailurePauses()  # of groups that fail, or all runs would take these

    def compact(
        self,
        path: TableIdentifier,
        budget: CompactionBudget = NO_LIMIT,
        interruption: Interruption = NEVER,
    ) -> CompactionResult:
        """Compact one table. A group that fails is left as it is for a time, and the others are committed. Files that
        cannot be read are left out of further groups.

        InterruptedMaintenanceError if interrupted. Raises ConnectorError if nothing can be planned or committed.
        """
        began = time.monotonic()
        result = CompactionResult()
        tried = set[str]()
        first: set[str] | None = None  # files of the first plan
        while True:
            table = self._catalog.load_table(path)
            plan = self.plan(table)
            if first is None:
                first = {file for each in plan.groups for file in _paths(each)}
            if plan.arrangement:  # a session may go on with an older one, so more and more files would be rewritten
                old = tuple(each for each in plan.groups if not first.isdisjoint(_paths(each)))
                plan = replace(plan, groups=old) if old else self.plan(table, plan_compaction)
            result = replace(result, debt=plan.size, seconds=time.monotonic() - began)
            groups = self._choose_groups(plan, tried, budget, result.begun_bytes)
            seconds = budget.seconds - result.seconds
            if not groups or seconds <= 0 or result.commits >= budget.commits:
                break
            done = self._perform(table, plan.arrangement, groups, min(seconds, COMMIT_SECONDS), interruption)
            result = replace(result + done.result, debt=plan.size - done.dropped_size)
            unreadable = {file for each in done.failed for file in each.unreadable}
            self._unreadable[TableIdentifier.of(table)] |= unreadable
            for each in done.failed:
                if not each.unreadable:
                    self._pauses.begin(source.path for source in each.group.sources)
            # A group that was not committed is left for a later call, unless it can be rewritten without some files.
            tried.update(file for each in done.begun if unreadable.isdisjoint(_paths(each)) for file in _paths(each))
            if not done.committed.groups and not done.failed:
                break
        return result

    def plan(self, table: Table, planner: PlanTable | None = None) -> CompactionPlan:
        """Return the groups of a table that can be compacted, planned by `planner` if it is given. UserError if a
        property of the table is invalid."""
        if not is_compacted_here(table):  # then its files need not be listed
            return CompactionPlan()
        if is_compacted_by_service(table):
            self._tell_of_service(table)
            return CompactionPlan(is_managed=True)
        check_table_properties(table)
        listed, path = self._list_files(table), TableIdentifier.of(table)
        self._unreadable[path] &= {file.path for file in listed}  # the others are not needed any more
        return (planner or self._planner)(table, [file for file in listed if file.path not in self._unreadable[path]])

    def _choose_groups(
        self, plan: CompactionPlan, tried: Set[str], budget: CompactionBudget, begun_bytes: int
    ) -> Sequence[GroupPlan]:
        """Return the groups of the next commit. Those of files that were tried are left out."""
        possible = [
            each for each in plan.groups if tried.isdisjoint(_paths(each)) and self._pauses.are_over(_paths(each))
        ]
        left = budget.size - begun_bytes
        groups = take_groups(possible, min(left, COMMIT_SIZE)) or take_groups(possible, left)[:1]
        return groups if groups or tried else possible[: budget.least_groups]

    def _tell_of_service(self, table: Table) -> None:
        if table.name() not in self._told:
            self._told.add(table.name())
            log.info("table %s: AWS Glue compacts it, so the connector does not", TableIdentifier.of(table))

    def _perform(
        self,
        table: Table,
        arrangement: Arrangement | None,
        groups: Sequence[GroupPlan],
        seconds: float,
        interruption: Interruption,
    ) -> PerformedGroups:
        began = time.monotonic()
        base, target = _prepare(table, arrangement, groups)
        commit = CompactionCommit(self._catalog, base, self._writers)
        compacted: list[CompactedGroup] = []
        failed: list[FailedGroup] = []
        begun: list[GroupPlan] = []

        def begin() -> Iterator[FileGroup]:
            for each in groups:
                if begun and time.monotonic() - began > seconds:
                    return
                begun.append(each)
                yield each.group

        path = TableIdentifier.of(table)
        access = keep_access_fresh(path, access_to(table), partial(self._reload, path))
        with closing(self._compact(target, begin(), access)) as outcomes:
            for outcome in outcomes:
                interruption.check()
                match outcome:
                    case CompactedGroup():
                        compacted.append(outcome)
                    case FailedGroup():
                        failed.append(outcome)
        try:
            committed = commit.commit(compacted) if compacted else CommittedCompaction()
        except ConnectorError:
            # Perhaps they take too long to be committed: then other groups go first.
            self._pauses.begin(file for each in begun for file in _paths(each))
            raise
        outdated = self._find_outdated(base, failed)
        done = PerformedGroups(begun, committed, tuple(each for each in failed if each not in outdated), outdated)
        log_groups(base.path, done, time.monotonic() - began)
        return done

    def _find_outdated(self, base: CompactionBase, failed: Sequence[FailedGroup]) -> tuple[FailedGroup, ...]:
        """Return the groups that the table no longer has. Their files may be deleted when their snapshots expire."""
        if failed:
            with suppress(ConnectorError, *list_retried_errors()):
                table = self._catalog.load_table(base.path)
                live = {file.id for file in self._list_files(table)}
                return tuple(each for each in failed if not live.issuperset(each.group.files))
        return ()

    def _list_files(self, table: Table) -> list[ListedFile]:
        with translate_errors(table.location()):
            return self._writers.manifests.list_files(table)


def _prepare(table: Table, new: Arrangement | None, groups: Sequence[GroupPlan]) -> tuple[CompactionBase, TargetFiles]:
    """Decide how the new files of a table are written and committed. `new` is as in CompactionPlan."""
    snapshot = table.current_snapshot()
    assert snapshot is not None, "a table without a snapshot has no groups"
    columns = tuple(TargetColumn.of(column, column) for column in table.schema().fields)
    arrangement = new or replace(find_arrangement_of_all(table), partition=())
    # Not before the snapshot, whose clock may have been ahead of this one: see `CompactionCommit`.
    created_ms = max(time.time_ns() // 1_000_000, snapshot.timestamp_ms)
    origin = CompactionOrigin(created_ms, str(table.metadata.table_uuid))
    rows = {
        source.path: count
        for each in groups
        for source, count in zip(each.group.sources, each.source_rows, strict=True)
    }
    destination = Destination.of_table(table, origin.file_prefix)
    if new is None:  # then a group has about the target size. It becomes one file, also if that is somewhat larger
        target_size = str(CompactionThresholds.of(table.properties).max_size)
        destination = replace(destination, properties=Properties({**destination.properties, TARGET_SIZE: target_size}))
    return (
        CompactionBase(
            table, snapshot.sequence_number or 0, new.spec_id if new else None, arrangement.sort_order_id, origin, rows
        ),
        TargetFiles(columns, destination, arrangement, read_name_mapping(table)),
    )


def take_groups(groups: Iterable[GroupPlan], size: float) -> list[GroupPlan]:
    """Return the first groups that together have at most this number of bytes. A larger group is passed over."""
    taken = []
    for group in groups:
        if group.size <= size:
            taken.append(group)
            size -= group.size
    return taken


def _paths(plan: GroupPlan) -> list[str]:
    return [source.path for source in plan.group.sources]
