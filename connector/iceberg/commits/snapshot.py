"""Writes our snapshots: manifests, manifest list, summary."""

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries

from connector.host.threads import map_in_threads
from connector.iceberg.commits.delete_files import DeleteChanges, DeleteFiles
from connector.iceberg.commits.summaries import PublishedTimes, add_totals, count_live, find_published, summarize_append
from connector.iceberg.fences import fence
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.manifest_merging import ManifestMerger, remove_files
from connector.iceberg.metadata.manifests import (
    ManifestListWriter,
    complete_summaries,
    copy_manifest,
    manifests_of,
)
from connector.iceberg.metadata.snapshot_manifests import ManifestFactory, metadata_location
from connector.iceberg.metadata.table_properties import find_generation
from connector.iceberg.metadata.table_updates import find_next_row_id
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_io import WrittenFile, files_of

if TYPE_CHECKING:
    from connector.iceberg.commits.row_deletes import DeletesOfCommit


@dataclass(frozen=True)
class RemovedFiles:
    """Manifests that name files as deleted, and what a summary says about these files."""

    manifests: Sequence[ManifestFile]
    summary: Mapping[str, str]


class SnapshotWriter:
    """Writes the metadata files of one snapshot.

    Manifests are written once, and used by every attempt. The manifest list is new for each attempt, since it depends
    on what the table has then. `mark` returns further entries of the summary of a commit that is based on a table.
    """

    def __init__(
        self,
        cache: ManifestCache | None = None,
        mark: Callable[[Table], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.cache = ManifestCache() if cache is None else cache
        self._id = uuid.uuid4().int >> 65  # a positive 63-bit number
        self._merger = ManifestMerger()
        self._mark = mark
        self._unsent: dict[str, list[WrittenFile]] = {}  # by the manifest; of all attempts
        # By what they depend on.
        self._staged_manifests: dict[tuple[str, ...], tuple[list[ManifestFile], PublishedTimes | None]] = {}

    def make_factory(self, table: Table, prefix: str) -> ManifestFactory:
        """Return what writes the manifests of the snapshot, for a table as it was loaded."""
        return ManifestFactory(table, prefix, self._id, self._unsent)

    def append(self, table: Table, staged: Sequence[StagedCommit], rows: "DeletesOfCommit | None" = None) -> Snapshot:
        """Write a snapshot that adds the staged files to the current one, and deletes these rows."""
        table = self.cache.written.with_memory(table)
        prefix = find_current_prefix(table, staged[0].writer)
        factory = self.make_factory(table, prefix)
        added, changes, summary = self._add(factory, staged, rows)
        existing = manifests_of(table, table.current_snapshot())
        existing, shortened = remove_files(factory, existing, changes.removed)
        existing = self._merger.merge(factory, existing, added)
        operation = Operation.OVERWRITE if changes.added or changes.removed else Operation.APPEND
        totals = add_totals(operation, summary, table)
        return self._snapshot(table, prefix, [*added, *shortened, *existing], totals, transactions=len(staged))

    def replace_rows(
        self,
        table: Table,
        task_table: Table,
        staged: Sequence[StagedCommit],
        rows: "DeletesOfCommit | None",
        removed: RemovedFiles,
        schema_id: int,
    ) -> Snapshot:
        """Write a snapshot of the staged files that replaces all rows. `removed` are the files of the current snapshot.

        `task_table` is the table as the task has it after the backfill: no rows, new columns. `schema_id` is the
        schema that these columns get.
        """
        prefix = find_current_prefix(table, staged[0].writer)
        factory = self.make_factory(task_table, prefix)
        added, _, summary = self._add(factory, staged, rows)
        totals = add_totals(Operation.OVERWRITE, summary, task_table).additional_properties
        counted = Summary(Operation.OVERWRITE, **totals, **removed.summary)
        manifests = [*added, *removed.manifests]
        return self._snapshot(table, prefix, manifests, counted, schema_id, transactions=len(staged))

    def clear(self, table: Table, writer: WriterId, removed: RemovedFiles, summary: Mapping[str, str]) -> Snapshot:
        """Write a snapshot without rows. `removed` are the files of the current snapshot."""
        totals = update_snapshot_summaries(Summary(Operation.DELETE, **summary)).additional_properties
        counted = Summary(Operation.DELETE, **totals, **removed.summary)
        return self._snapshot(table, find_current_prefix(table, writer), removed.manifests, counted)

    def keep_files(self, table: Table, writer: WriterId, summary: Mapping[str, str]) -> Snapshot:
        """Write a snapshot of the current files. It moves the main branch, and says why in its summary."""
        existing = manifests_of(table, table.current_snapshot())
        totals = add_totals(Operation.APPEND, summary, table)
        return self._snapshot(table, find_current_prefix(table, writer), existing, totals)

    def replace(
        self, table: Table, prefix: str, manifests: Sequence[ManifestFile], schema_id: int, summary: Mapping[str, str]
    ) -> Snapshot:
        """Write a snapshot of the same rows in other files. `manifests` are all of its manifests."""
        return self._snapshot(table, prefix, manifests, add_totals(Operation.REPLACE, summary, table), schema_id)

    @cached_property
    def _delete_files(self) -> DeleteFiles:
        """The delete files of all attempts, if rows are deleted."""
        return DeleteFiles()

    def _snapshot(
        self,
        table: Table,
        prefix: str,
        manifests: Sequence[ManifestFile],
        summary: Summary,
        schema_id: int | None = None,
        *,
        transactions: int = 1,
    ) -> Snapshot:
        metadata = table.metadata
        assert not isinstance(metadata, TableMetadataV1), "only newer versions are bound"
        parent = metadata.current_snapshot()
        sequence_number = metadata.last_sequence_number + transactions
        first_row_id = find_next_row_id(table)
        location, next_row_id = self._write_list(table, prefix, manifests, sequence_number)
        return Snapshot(
            snapshot_id=self._id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=sequence_number,
            # Later than the metadata's own time. Java cannot read a table whose snapshot is older. At the same time,
            # PyIceberg takes the metadata for unchanged, and dates it by this machine's clock, which may be behind.
            timestamp_ms=max(time.time_ns() // 1_000_000, metadata.last_updated_ms + 1),
            manifest_list=location,
            summary=count_live(summary, manifests),
            schema_id=metadata.current_schema_id if schema_id is None else schema_id,
            first_row_id=first_row_id,
            added_rows=None if first_row_id is None or next_row_id is None else next_row_id - first_row_id,
        )

    def _write_list(
        self, table: Table, prefix: str, manifests: Sequence[ManifestFile], sequence_number: int
    ) -> tuple[str, int | None]:
        """Write the manifest list, and send with it what is not sent yet of the files that it names. Return its
        location, and the id of the first row after those of the snapshot if rows have ids."""
        written = WrittenFile(table.io, metadata_location(table, f"snap-{self._id}-{prefix}-{uuid.uuid4()}.avro"))
        parent = table.current_snapshot()
        complete_summaries(manifests, table.specs())
        with ManifestListWriter(
            written,
            self._id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=sequence_number,
            next_row_id=find_next_row_id(table),
        ) as manifest_list:
            manifest_list.add_manifests(list(manifests))
        unsent = [file for manifest in manifests for file in self._unsent.get(manifest.manifest_path, ())]
        # None of these files is named by the table before the commit, so their order does not matter.
        map_in_threads(WrittenFile.send, [*unsent, written], "manifest")
        paths = {manifest.manifest_path for manifest in manifests}
        self.cache.written.add(table, [written, *(file for file in unsent if file.location in paths)])
        return written.location, manifest_list.next_row_id

    def _add(
        self, factory: ManifestFactory, staged: Sequence[StagedCommit], rows: "DeletesOfCommit | None"
    ) -> tuple[list[ManifestFile], DeleteChanges, dict[str, str]]:
        """Return manifests of the staged files and of new delete files, what deletes these rows, and a summary."""
        added, summary = self._add_files(factory, staged)
        if rows is None:
            return added, DeleteChanges(), summary
        changes = self._delete_files.write(factory.table, factory.prefix, rows)
        counts = changes.summarize(sum(commit.size for commit in staged))
        return [*added, *factory.write_deletes(changes.added)], changes, summary | counts

    def _add_files(
        self, factory: ManifestFactory, staged: Sequence[StagedCommit]
    ) -> tuple[list[ManifestFile], dict[str, str]]:
        """Return manifests of the staged files, and a summary of the commit."""
        table = factory.table
        # The prefix is part of the key: a manifest that is still to be committed must not be named by a passed value.
        # So are the schema, since a commit has other files once a column has been converted, and the sequence numbers.
        numbers = _choose_sequence_numbers(table, staged)
        key = (factory.prefix, *(f"{commit.next} {commit.schema_id} {numbers.get(commit.next)}" for commit in staged))
        if key not in self._staged_manifests:
            # A commit may have no files: its transaction only deletes rows.
            files = [(commit, file) for commit in staged for file in files_of(table.io, commit.files)]
            self._staged_manifests[key] = factory.write_staged(files, numbers), find_published(files)
        manifests, published = self._staged_manifests[key]
        # Otherwise a later attempt would commit the files under an old sequence number. Then deletes of other engines
        # would hide their rows.
        return [copy_manifest(manifest) for manifest in manifests], {
            **summarize_append(staged, published),
            **self._mark(table),
        }


class TableLocks:
    """A lock for each table. The threads of a session hold it while they commit, so that no commit makes another one
    fail."""

    def __init__(self) -> None:
        self._locks: dict[TableIdentifier, threading.Lock] = {}

    def of(self, path: TableIdentifier) -> threading.Lock:
        """Return the lock of a table."""
        return self._locks.setdefault(path, threading.Lock())


@dataclass(frozen=True)
class SnapshotWriters:
    """Makes the writers of a session's snapshots. They share what was read of manifests, and the locks."""

    manifests: ManifestCache = field(default_factory=ManifestCache)
    locks: TableLocks = field(default_factory=TableLocks)
    mark: Callable[[Table], Mapping[str, str]] = lambda _: {}

    def new(self) -> SnapshotWriter:
        """Return the writer of one snapshot."""
        return SnapshotWriter(self.manifests, self.mark)


def _choose_sequence_numbers(table: Table, staged: Sequence[StagedCommit]) -> dict[str, int]:
    """Return a sequence number for each of several transactions that become one snapshot, by the fence value of each.

    The number of its last change says which row of a key is the newest. The last of these is the snapshot's, which the
    files of a single transaction inherit.
    """
    if len(staged) == 1:
        return {}
    assert not isinstance(table.metadata, TableMetadataV1), "only newer versions are bound"
    first = table.metadata.last_sequence_number + 1
    return {commit.next: number for number, commit in enumerate(staged, first)}


def find_current_prefix(table: Table, writer: WriterId) -> str:
    """Return the prefix of names of files that are staged on the writer's current fence value.

    The commit asserts the main branch that this value belongs to. Once the property has another value, the snapshot is
    committed or never will be.
    """
    generation = find_generation(table, writer.materialization)
    return fence.file_prefix(writer, generation.uuid, fence.read_value(table.properties, writer))
