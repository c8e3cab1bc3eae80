"""Commits a compaction: its new files take the place of their sources, if the table still has these rows in them.

The commit moves no fence, so no transaction depends on it. It asserts the table, the schema and the main branch that it
was made for. When another commit was faster, all is decided again from the table as it is then.

A commit that was sent may be in the table whatever the catalog answers, now or later. So files that a sent commit names
are never deleted here. Names of the files say when they were begun. A compaction does not send a commit for files that
are older than MAX_AGE. `remove_task_orphans` deletes the files of which no snapshot knows long after that. Both decide
by the date of the newest snapshot, so wrong clocks of machines cannot make them disagree.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from connector.encoding.rewriting.file_groups import CompactedGroup
from connector.host.errors import ConnectorError, RetryableError
from connector.iceberg.commits.commit import commit_snapshot
from connector.iceberg.commits.commit_errors import is_final
from connector.iceberg.commits.compaction_changes import CompactionChanges, DroppedGroup, decide_changes
from connector.iceberg.commits.delete_files import DeleteFiles
from connector.iceberg.commits.retry_commits import RETRY_FOR, FailureTexts, explain_failure, is_unanswered, retry
from connector.iceberg.commits.snapshot import SnapshotWriter, SnapshotWriters
from connector.iceberg.commits.summaries import summarize_rewrite
from connector.iceberg.fences.file_names import CompactionOrigin
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.manifest_merging import find_small, remove_files
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.metadata.partitions import PartitionReader
from connector.iceberg.metadata.snapshot_manifests import make_added_entry
from connector.iceberg.metadata.table_properties import NAME_MAPPING, check_committable, find_missing_statistics
from connector.model.table_identifier import GENERATION_PROPERTY, TableIdentifier
from connector.storage import storage_errors
from connector.storage.file_io import delete_if_possible

MAX_AGE: Final = 3_600_000  # milliseconds
SUMMARY_COMPACTION: Final = "flow.compaction"  # the number of groups

_TEXTS: Final = FailureTexts(
    name="the commit of a compaction",
    left="The table keeps its rows.",
    unknown="the catalog did not answer whether it has committed a compaction ({answer}). The table has the same rows "
    "either way.",
    conflict="a compaction was not committed ({answer}). The table keeps its old files, and a later compaction begins "
    "anew.",
)


@dataclass(frozen=True)
class CompactionBase:
    """The table as a compaction was planned from it, and how the new files are written."""

    table: Table
    sequence_number: int  # of the snapshot; the new files get it
    spec_id: int | None  # of the new files; None: they are in the partitions of their sources
    sort_order_id: int
    origin: CompactionOrigin
    rows: Mapping[str, int]  # of each source, by path; deleted ones included

    @property
    def path(self) -> TableIdentifier:
        """The table's identifier."""
        return TableIdentifier.of(self.table)

    def no_longer_fits(self, table: Table) -> bool:
        """Whether the new files cannot get into the table: another table has the name, or this one has been upgraded,
        or its rows, its columns or its name mapping replaced, or the partition spec was removed."""
        return (
            table.metadata.table_uuid != self.table.metadata.table_uuid
            or table.metadata.format_version != self.table.metadata.format_version
            or table.metadata.current_schema_id != self.table.metadata.current_schema_id
            or table.properties.get(NAME_MAPPING) != self.table.properties.get(NAME_MAPPING)
            or table.properties.get(GENERATION_PROPERTY) != self.table.properties.get(GENERATION_PROPERTY)
            or not (self.spec_id is None or self.spec_id in table.specs())
        )


@dataclass(frozen=True)
class CommittedCompaction:
    """What became of the groups of a compaction."""

    groups: tuple[CompactedGroup, ...] = ()  # whose new files the table has
    dropped: tuple[DroppedGroup, ...] = ()
    removed: tuple[ListedFile, ...] = ()  # sources, and delete files
    attempts: int = 0


class _TooOldError(RetryableError):
    """The new files may be taken for orphans soon. Another attempt would find them older."""


class CompactionCommit:
    """Commits the groups of one compaction. The locks of `writers` keep the commits of this process from making each
    other fail."""

    def __init__(self, catalog: Catalog, base: CompactionBase, writers: SnapshotWriters) -> None:
        self._catalog = catalog
        self._base = base
        self._writers = writers
        self._began = time.monotonic()
        self._deletes = DeleteFiles()
        self._dropped: list[DroppedGroup] = []
        self._sent: dict[int, CompactionChanges] = {}  # by snapshot
        self._unanswered: Exception | None = None  # the error of a commit that was sent

    def commit(self, groups: Sequence[CompactedGroup]) -> CommittedCompaction:
        """Exchange the files of these groups, in one commit. Groups that no longer fit the table are dropped.

        Raises UserError if the catalog refuses it, RetryableError if nothing was committed, CommitUnknownError if that
        is not known. Files that no commit has named are deleted.
        """
        try:
            return retry(partial(self._attempt, groups), self._judge, RETRY_FOR)
        finally:
            self._delete_unused(groups)

    def _attempt(self, groups: Sequence[CompactedGroup], number: int) -> CommittedCompaction:
        landed: CompactionChanges | None = None
        try:
            self._read_ahead(groups)
            with self._writers.locks.of(self._base.path):
                landed = self._try(groups)
        except NoSuchTableError:
            self._dropped = [DroppedGroup(group, "the table is gone") for group in groups]
        return self._conclude(landed, number)

    def _read_ahead(self, groups: Sequence[CompactedGroup]) -> None:
        """Decide while nobody waits for the lock: delete files never change, so those that are read stay in memory."""
        table = self._catalog.load_table(self._base.path)
        if not self._find_landed(table) and not self._base.no_longer_fits(table):
            self._decide(table, self._writers.new(), groups)

    def _judge(self, error: Exception, _: int, is_last: bool) -> ConnectorError | None:
        """Return the error of the commit, unless another attempt may succeed."""
        if self._sent and is_unanswered(error):
            self._unanswered = error
        if is_last or is_final(error) or (isinstance(error, _TooOldError) and not self._unanswered):
            return explain_failure(self._base.path, _TEXTS, error, self._unanswered)
        return None

    def _try(self, groups: Sequence[CompactedGroup]) -> CompactionChanges | None:
        """Return what is committed now; None if all groups were dropped."""
        table = self._catalog.load_table(self._base.path)
        if landed := self._find_landed(table):
            return landed
        if self._base.no_longer_fits(table):
            reason = "the table has other rows or columns now"
            self._dropped = [DroppedGroup(group, reason) for group in groups]
            return None
        self._check_age(table)
        check_committable(table)
        snapshots = self._writers.new()
        changes = self._decide(table, snapshots, groups)
        self._dropped = list(changes.dropped)
        if not changes.groups:
            return None
        with storage_errors.translate_errors(table.location()):
            snapshot = self._write(table, changes, snapshots)
        self._check_age(table)
        self._sent[snapshot.snapshot_id] = changes
        commit_snapshot(self._catalog, table, snapshot)
        return changes

    def _decide(self, table: Table, snapshots: SnapshotWriter, groups: Sequence[CompactedGroup]) -> CompactionChanges:
        with storage_errors.translate_errors(table.location()):
            spec = None if self._base.spec_id is None else PartitionReader(table, self._base.spec_id)
            return decide_changes(table.io, snapshots.cache.list_files(table), groups, self._base.rows, spec)

    def _find_landed(self, table: Table) -> CompactionChanges | None:
        """Return the changes of a commit that an earlier attempt has sent, if the table has it."""
        return next((each for number, each in self._sent.items() if table.metadata.snapshot_by_id(number)), None)

    def _check_age(self, table: Table) -> None:
        """Raise _TooOldError if the new files may be taken for orphans soon: by any of two clocks, or by the date of
        the table's newest snapshot, which another clock has given."""
        created = self._base.origin.created_ms
        if max(time.time_ns() // 1_000_000 - created, 1000 * (time.monotonic() - self._began)) > MAX_AGE:
            raise _TooOldError(
                f"table {self._base.path}: a compaction was not committed, because it took more than "
                f"{MAX_AGE // 60_000} minutes. The table keeps its old files, and a later compaction begins anew."
            )
        newest = table.current_snapshot()
        if newest and newest.timestamp_ms - created > MAX_AGE:
            raise _TooOldError(
                f"table {self._base.path}: a compaction was not committed, because a newer snapshot is dated more than "
                f"{MAX_AGE // 60_000} minutes after the compaction's beginning. So the clocks of the machines that "
                "write to the table differ: set them. The table keeps its old files, and a later compaction begins "
                "anew."
            )

    def _delete_unused(self, groups: Iterable[CompactedGroup]) -> None:
        """Delete the files that no sent commit names. `remove_task_orphans` deletes what is left of them."""
        sent = {id(group) for changes in self._sent.values() for group in changes.groups}
        unused = [file.path for group in groups if id(group) not in sent for file in group.files]
        orders = [group.order for group in groups if group.order]
        delete_if_possible(self._base.table.io, [*unused, *orders])

    def _conclude(self, landed: CompactionChanges | None, attempts: int) -> CommittedCompaction:
        if landed is None:
            return CommittedCompaction(dropped=tuple(self._dropped), attempts=attempts)
        return CommittedCompaction(landed.groups, tuple(self._dropped), landed.removed, attempts)

    def _write(self, table: Table, changes: CompactionChanges, snapshots: SnapshotWriter) -> Snapshot:
        prefix = self._base.origin.file_prefix
        factory = snapshots.make_factory(table, prefix)
        carried = self._deletes.add(table, prefix, changes.positions, changes.partitions)
        deletes = factory.write_deletes(carried)
        existing = manifests_of(table, table.current_snapshot())
        merged, entries = find_small(table, existing), self._make_entries(table, changes)
        existing, changed = remove_files(factory, existing, changes.removed, merged, entries)
        counts = summarize_rewrite(changes.new_files, (each.deletes for each in carried), changes.removed)
        summary = {SUMMARY_COMPACTION: str(len(changes.groups)), **counts}
        return snapshots.replace(
            table, prefix, [*deletes, *changed, *existing], table.metadata.current_schema_id, summary
        )

    def _make_entries(self, table: Table, changes: CompactionChanges) -> Iterator[ManifestEntry]:
        """Yield the entries of the new data files."""
        missing = find_missing_statistics(table)
        # They are as old as the snapshot that they were made from: later deletes of other engines apply to them.
        number, order = self._base.sequence_number, self._base.sort_order_id
        for file in changes.new_files:
            partition = changes.partitions[file.path]
            yield make_added_entry(file, partition, number, sort_order_id=order, missing=missing)
