"""Defects of compaction that the simulation has to find, each planted in the shipped code from outside."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from connector.encoding.rewriting.file_groups import CompactedGroup
from connector.encoding.rewriting.moved_rows import MovedRows, find_moved
from connector.encoding.values.arrays import Positions
from connector.iceberg.commits import compaction_changes, compaction_commit
from connector.iceberg.commits.compaction_changes import CompactionChanges
from connector.iceberg.commits.compaction_commit import CompactionCommit
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.metadata.partitions import Partition
from support import private_connector


def deletes_are_carried_over_to_their_old_positions(patch: pytest.MonkeyPatch) -> None:
    def stay(io: FileIO, compacted: CompactedGroup, rows: Mapping[str, Positions]) -> dict[str, MovedRows]:
        ends = np.cumsum([file.rows for file in compacted.files])
        return {
            path: MovedRows(np.where(found.are_kept, 0, -1), np.where(found.are_kept, positions % (ends[0]), -1))
            for (path, found), positions in zip(find_moved(io, compacted, rows).items(), rows.values(), strict=True)
        }

    patch.setattr(compaction_changes, "find_moved", stay)


def rows_of_a_source_that_is_gone_come_back(patch: pytest.MonkeyPatch) -> None:
    def without_gone(io: FileIO, compacted: CompactedGroup, rows: Mapping[str, Positions]) -> Any:
        sources = {source.path for source in compacted.group.sources}
        whole = {path for path in sources & rows.keys() if len(rows[path]) == 1 + max(rows[path], default=-1)}
        return find_moved(io, compacted, {path: positions for path, positions in rows.items() if path not in whole})

    patch.setattr(compaction_changes, "find_moved", without_gone)


def files_that_came_meanwhile_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """The new snapshot has the manifests of the one that was planned from."""
    planned: dict[CompactionCommit, list[ManifestFile]] = {}
    write = getattr(*private_connector.WRITE_COMPACTION)

    def write_old(commit: CompactionCommit, table: Table, *what: Any) -> Any:
        base = commit._base.table
        planned[commit] = manifests_of(table, base.current_snapshot())
        with pytest.MonkeyPatch.context() as context:
            context.setattr(compaction_commit, "manifests_of", lambda *_: planned[commit])
            return write(commit, table, *what)

    patch.setattr(*private_connector.WRITE_COMPACTION, write_old)


def files_of_a_lost_answer_are_deleted(patch: pytest.MonkeyPatch) -> None:
    delete_unused = getattr(*private_connector.DELETE_UNUSED_FILES)

    def forget(commit: CompactionCommit, groups: Sequence[CompactedGroup]) -> None:
        commit._sent.clear()
        delete_unused(commit, groups)

    patch.setattr(*private_connector.DELETE_UNUSED_FILES, forget)
    patch.setattr(*private_connector.FIND_LANDED_COMPACTION, lambda *_: None)


def a_compaction_of_any_age_is_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction_commit, "MAX_AGE", 10**12)


def new_files_have_only_what_the_plan_knew_of_deletes(patch: pytest.MonkeyPatch) -> None:
    """Deletes that a transaction has merged into new files count as applied."""
    patch.setattr(*private_connector.FIND_NEW_DELETES, lambda *_: np.empty(0, np.int64))


def deletes_are_carried_over_to_the_partition_of_the_sources(patch: pytest.MonkeyPatch) -> None:
    """A rearrangement moves rows to other partitions. Deletes of another partition do not apply to them."""
    decide, make_entries = compaction_changes.decide_changes, getattr(*private_connector.MAKE_COMPACTION_ENTRIES)
    new: dict[str, Partition] = {}

    def keep_partitions(
        io: FileIO, listed: Sequence[ListedFile], groups: Sequence[CompactedGroup], *what: Any
    ) -> CompactionChanges:
        changes = decide(io, listed, groups, *what)
        new.update(changes.partitions)
        live = {file.path: file.partition for file in listed}
        of_groups = (
            (next(live[source.path] for source in group.group.sources if source.path in live), group.files)
            for group in changes.groups
        )
        return replace(changes, partitions={file.path: old for old, files in of_groups for file in files})

    patch.setattr(compaction_commit, "decide_changes", keep_partitions)
    patch.setattr(
        *private_connector.MAKE_COMPACTION_ENTRIES,
        lambda self, table, changes: make_entries(self, table, replace(changes, partitions=new)),
    )


COMPACTION_DEFECTS: Final[Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {
    plant.__name__: plant
    for plant in (
        deletes_are_carried_over_to_their_old_positions,
        deletes_are_carried_over_to_the_partition_of_the_sources,
        rows_of_a_source_that_is_gone_come_back,
        files_that_came_meanwhile_are_dropped,
        files_of_a_lost_answer_are_deleted,
        a_compaction_of_any_age_is_committed,
        new_files_have_only_what_the_plan_knew_of_deletes,
    )
}
