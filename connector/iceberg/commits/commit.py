"""Commits staged files to their tables: each commit adds the files and moves the fence, both or neither.

The connector builds its commits as values and sends them with `Catalog.commit_table`. PyIceberg's own transactions do
not fit: a retry repeats property updates over another process's commit, and after a conflict they delete the files of
commits that succeeded.
"""

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate

from connector.host.errors import ConnectorError, OlderTableError, UserError
from connector.host.threads import map_in_threads
from connector.iceberg.catalog_messages import explain_unknown_type
from connector.iceberg.commits import backfill, commit_errors
from connector.iceberg.commits.commit_errors import is_final
from connector.iceberg.commits.commit_outcomes import (
    AlreadyCommitted,
    Committed,
    Failed,
    Outcome,
    Superseded,
    TableCommit,
    Tell,
)
from connector.iceberg.commits.key_columns import record_key_columns
from connector.iceberg.commits.missing_files import check_staged_files
from connector.iceberg.commits.retry_commits import RETRY_FOR, retry
from connector.iceberg.commits.snapshot import SnapshotWriter, SnapshotWriters
from connector.iceberg.fences import fence
from connector.iceberg.metadata.table_properties import (
    check_committable,
    find_generation,
    read_successors,
    restrict_to_generation,
)
from connector.iceberg.metadata.table_updates import new_snapshot, require_unchanged
from connector.model.state import ChainId, FileList, StagedCommit
from connector.model.table_identifier import Generation, Owner
from connector.storage import storage_errors

if TYPE_CHECKING:
    from connector.iceberg.commits.late_files import ConvertedFiles
    from connector.iceberg.commits.row_deletes import RowDeletes

log = logging.getLogger(__name__)


def commit_all_or_raise(
    catalog: Catalog, staged: Sequence[StagedCommit], writers: SnapshotWriters | None = None
) -> list[Committed]:
    """Try all commits like `try_commits`. If any table failed, raise the first error after all have been tried."""
    outcomes: list[Outcome] = []
    try_commits(catalog, staged, writers=writers, tell=outcomes.append)
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            raise outcome.error
    return [outcome for outcome in outcomes if isinstance(outcome, Committed)]


def try_commits(
    catalog: Catalog,
    staged: Sequence[StagedCommit],
    without_retry: Collection[ChainId] = (),
    writers: SnapshotWriters | None = None,
    *,
    tell: Tell,
) -> None:
    """Commit what each table does not have yet of its staged commits. To repeat it changes nothing.

    `tell` gets the outcomes of each table while it is locked, from several threads. They are not kept: the metadata of
    many tables would take much memory.

    Tables are committed side by side; the failure of one does not affect the others. Chains in `without_retry`, which
    have failed before, get a single attempt. The others are retried for RETRY_FOR, in which a conflict ends or a
    catalog restarts. That time is for all tables together: each has what is left of it when its turn comes, counted
    from the end of its first attempt.
    """
    retry_until = time.monotonic() + RETRY_FOR
    by_table = groupby(sorted(staged, key=lambda commit: commit.table_id), key=lambda commit: commit.table_id)
    tables = [list(commits) for _, commits in by_table]
    shared = writers or SnapshotWriters()

    def try_table(commits: Sequence[StagedCommit]) -> None:
        with shared.locks.of(commits[0].path):
            for outcome in _try_table(catalog, commits, without_retry, shared, retry_until):
                tell(outcome)

    map_in_threads(try_table, tables, "commit")


def _try_table(
    catalog: Catalog,
    staged: Sequence[StagedCommit],
    without_retry: Collection[ChainId],
    writers: SnapshotWriters,
    retry_until: float,
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    # The order matters. So after a failure, the table gets none of the others.
    for pending in fence.group_by_writer(staged):
        match outcomes[-1:]:
            case [Failed(_, error)]:
                outcomes.append(Failed(tuple(pending), error))
            case _:
                has_failed = pending[0].chain_id in without_retry
                commits = _PendingCommits(catalog, pending, writers.new(), has_failed, retry_until)
                outcomes.append(commits.try_to_commit())
    return outcomes


@dataclass(frozen=True)
class _LoadedTable:
    """A table as the catalog has it, and the generation of the task's rows."""

    table: Table
    generation: Generation

    @cached_property
    def task_table(self) -> Table:
        """The table as the task has it."""
        return restrict_to_generation(self.table, self.generation)


@dataclass
class _PendingCommits:
    """The pending commits of one writer to one table. An attempt uses what earlier ones have checked or written."""

    catalog: Catalog
    staged: Sequence[StagedCommit]
    snapshots: SnapshotWriter
    has_failed: bool  # before: then there is a single attempt
    retry_until: float  # see `try_commits`
    began: float = field(default_factory=lambda: time.monotonic())
    converted: "ConvertedFiles" = field(default_factory=dict)  # late files
    found: set[str] = field(default_factory=set)  # the fence values of commits whose staged files were found
    # The base of each commit that was sent, and what it adds, by the manifest list of its snapshot.
    sent: dict[str, tuple[Table, Sequence[StagedCommit]]] = field(default_factory=dict)

    def try_to_commit(self) -> Outcome:
        """Commit, and return the outcome. An error that concerns only this table is one."""
        try:
            return self.commit()
        except ConnectorError as error:
            return Failed(tuple(self.staged), error)
        except InvalidMetadataError as error:
            # One table's broken metadata must not end the session, nor keep other tables from opening.
            return Failed(tuple(self.staged), commit_errors.explain_broken_metadata(self.staged[0].path, error))

    def commit(self) -> Committed | AlreadyCommitted | Superseded:
        """Attempt to commit until an attempt succeeds. Raises ConnectorError if none does."""
        retry_for = 0.0 if self.has_failed else max(self.retry_until - self.began, 0.0)
        try:
            return retry(self._attempt, self._judge, retry_for)
        except OlderTableError:
            if retry_for >= RETRY_FOR / 2:
                raise
            return retry(self._attempt, self._judge, RETRY_FOR)  # a few answers do not show that the table stays older

    def _judge(self, error: Exception, number: int, is_last: bool) -> ConnectorError | None:
        """Return the error of the commit, unless another attempt may succeed."""
        path = self.staged[0].path
        if explain_unknown_type(error):
            return commit_errors.explain_broken_metadata(path, error)
        if is_final(error):
            return commit_errors.explain_refusal(path, error)
        commit_errors.report_retry(path, number, error)
        return commit_errors.explain_last_attempt(path, error, self._seconds) if is_last else None

    def _attempt(self, number: int) -> Committed | AlreadyCommitted | Superseded:
        """Load the table, decide which commits it lacks, check these, and commit them."""
        # All steps read the metadata whose main branch the commit asserts. Every change of a fence moves main.
        loaded = _load(self.catalog, self.staged)
        if self.staged[0].table_uuid in loaded.generation.former:
            return backfill.supersede(self.staged, Owner.of(loaded.table.properties))
        remaining = fence.remaining_commits(self.staged, loaded.table.properties)
        if not remaining:
            return self._find_landed(loaded.table, number - 1) or AlreadyCommitted(tuple(self.staged))
        self._check(loaded, remaining)
        return self._conclude((loaded.table, remaining), self._commit(loaded, remaining), number)

    def _find_landed(self, table: Table, attempts: int) -> Committed | None:
        """Return the commit that an earlier attempt has sent, if the table has it: the answer was lost."""
        lists = (snapshot.manifest_list for snapshot in table.metadata.snapshots)
        sent = next((self.sent[each] for each in lists if each in self.sent), None)
        return self._conclude(sent, table.metadata, attempts) if sent else None

    def _conclude(self, sent: tuple[Table, Sequence[StagedCommit]], after: TableMetadata, attempts: int) -> Committed:
        before, remaining = sent
        located = (commit.located.location for commit in self.staged if commit.located)
        lists = (commit.files.location for commit in self.staged if isinstance(commit.files, FileList))
        commit = TableCommit(before, after, frozenset(filter(None, located)), frozenset(lists))
        # The table may have commits of this process, too: their answers were lost.
        ours = (each for each in self.staged[: -len(remaining)] if not each.is_recovered)
        return Committed(tuple(self.staged), (*ours, *remaining), attempts, self._seconds, commit)

    def _check(self, loaded: _LoadedTable, remaining: Sequence[StagedCommit]) -> None:
        """Raise UserError if the table cannot get these commits as it is."""
        # The files of a transaction that was staged just now are not checked: that would cost every commit a request.
        if older := [each for each in remaining if self.has_failed or each.is_recovered]:
            self._check_files(loaded, older)
        check_committable(loaded.table)

    def _check_files(self, loaded: _LoadedTable, older: Sequence[StagedCommit]) -> None:
        """Raise UserError if files of these commits are gone."""
        try:
            check_staged_files(loaded.table, older, self.found)
        except UserError as error:
            # Another process may have made the same commits in this moment, and deleted their located rows. The next
            # attempt sees it.
            if _load(self.catalog, older).table.metadata_location != loaded.table.metadata_location:
                raise CommitFailedException(str(error)) from error
            raise

    def _commit(self, loaded: _LoadedTable, remaining: Sequence[StagedCommit]) -> TableMetadata:
        """Write the snapshot with these commits, and commit it."""
        table, task_table = loaded.table, loaded.task_table
        fitting = self._fit_late_files(task_table, remaining)
        with storage_errors.translate_errors(table.location()):
            has_loads = any(commit.located for commit in remaining)
            rows = self._deletes.find(task_table, remaining, fitting) if has_loads else None
            if loaded.generation.is_awaited:
                snapshot, begun = backfill.replace_rows(table, task_table, fitting, self.snapshots, rows)
            else:
                snapshot, begun = self.snapshots.append(table, fitting, rows), ()
        newest = remaining[-1]
        recorded = record_key_columns(task_table, remaining) if newest.updates else {}
        moved = fence.advance(table.properties, newest)
        properties = {**recorded, **moved}
        log.debug("table %s: a commit after fence %s sets %s", newest.path, remaining[0].prev or "none", moved)
        self.sent[snapshot.manifest_list] = table, remaining
        return commit_snapshot(self.catalog, table, snapshot, properties, begun)

    def _fit_late_files(self, table: Table, remaining: Sequence[StagedCommit]) -> Sequence[StagedCommit]:
        """Return the same commits, with files that fit the table. UserError or LostColumnError if they cannot."""
        if {each.schema_id for each in remaining} == {table.metadata.current_schema_id} and not read_successors(table):
            return remaining
        from connector.iceberg.commits.late_files import fit_late_files  # takes long to import, and is rarely needed

        return fit_late_files(table, remaining, self.converted)

    @cached_property
    def _deletes(self) -> "RowDeletes":
        """The rows that the commits delete."""
        from connector.iceberg.commits.row_deletes import RowDeletes  # only for standard updates

        return RowDeletes(self.snapshots.cache)

    @property
    def _seconds(self) -> float:
        """The time since the first attempt began."""
        return time.monotonic() - self.began


def _load(catalog: Catalog, pending: Sequence[StagedCommit]) -> _LoadedTable:
    """Load the table that the files were staged for. UserError if it is gone, or another table has its name."""
    try:
        table = catalog.load_table(pending[0].path)
    except NoSuchTableError:
        raise commit_errors.explain_missing_table(pending) from None
    generation = find_generation(table, pending[0].writer.materialization)
    if pending[0].table_uuid not in (generation.uuid, *generation.former):
        raise commit_errors.explain_replaced_table(pending, str(table.metadata.table_uuid))
    return _LoadedTable(table, generation)


def commit_snapshot(
    catalog: Catalog,
    table: Table,
    snapshot: Snapshot,
    properties: dict[str, str] | None = None,
    others: Sequence[TableUpdate] = (),
) -> TableMetadata:
    """Add a snapshot to the main branch and set properties, in one commit, if the table is still as it was loaded.

    Returns the table's new metadata. Raises CommitStateUnknownException if it lacks the snapshot.
    """
    changed = (SetPropertiesUpdate(updates=properties),) if properties else ()
    updates = (*others, *new_snapshot(table, snapshot), *changed)
    # The columns must be unchanged too: files that were staged before a column was converted have to be rewritten.
    after = catalog.commit_table(table, require_unchanged(table), updates).metadata
    if after.snapshot_by_id(snapshot.snapshot_id) is None:  # for example, an older answer that a proxy has kept
        raise CommitStateUnknownException("the answer to the commit does not have its snapshot")
    return after
