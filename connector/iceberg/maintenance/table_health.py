"""The health of a table, as `inspect` shows it: what readers pay for its files, and what a compaction would rewrite."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from connector.host.errors import UserError
from connector.iceberg.alteration import SUMMARY_CONVERTED
from connector.iceberg.catalogs.table_optimizers import find_orphan_days, is_compacted_by_service
from connector.iceberg.commits.summaries import read_commit_time, read_count, read_summary
from connector.iceberg.maintenance.compaction_plan import CompactionPlan, plan_compaction
from connector.iceberg.maintenance.compaction_thresholds import CompactionThresholds
from connector.iceberg.maintenance.rearrangement_plan import list_old_files
from connector.iceberg.metadata.listed_files import ListedFile, PositionDeletes
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.metadata.table_arrangement import find_arrangement_of_all
from connector.iceberg.metadata.table_properties import name_table_in_errors
from connector.storage.storage_errors import translate_errors

_COUNTS: Final = (
    ("deleted-data-files", "removed-delete-files"),
    ("added-data-files", "added-delete-files"),
    ("removed-files-size",),
    ("added-files-size",),
)


@dataclass(frozen=True)
class LastCompaction:
    """The newest snapshot that has the same rows in other files. Delete files count, too."""

    at: datetime
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class MetadataSize:
    """The files that a reader opens before it reads rows, and their bytes."""

    manifests: int
    manifest_bytes: int
    metadata_bytes: int  # of the newest metadata file


@dataclass(frozen=True)
class FileCount:
    """A number of files, and their bytes."""

    files: int
    size: int


@dataclass(frozen=True)
class TableHealth:
    """What a reader of the table pays for."""

    target_size: int  # bytes of a data file that is large enough
    small_files: int  # data files below half of it
    deleted_rows: int  # by position, in the data files; as many as the delete files say, at most
    visible_rows: int | None  # without deleted ones; None if rows are deleted by value, because they are not counted
    debt: CompactionPlan
    orphan_days: int | None  # the age at which the catalog's service deletes orphan files; None if it does not
    old: FileCount  # data files that have an older partition spec or another sort order than the table
    last_compaction: LastCompaction | None  # None if no snapshot of one is left
    metadata: MetadataSize


def read_health(table: Table, listed: Sequence[ListedFile]) -> TableHealth:
    """Return the health of a table. `listed` are the live files of its current snapshot.

    UserError if a property is invalid.
    """
    with name_table_in_errors(table):
        target = CompactionThresholds.of(table.properties).target_size
    data = [file for file in listed if file.is_data]
    deleted = _count_deleted(listed)
    has_others = any(file.content is DataFileContent.EQUALITY_DELETES for file in listed)
    return TableHealth(
        target_size=target,
        small_files=sum(2 * file.size < target for file in data),
        deleted_rows=deleted,
        visible_rows=None if has_others else sum(file.rows for file in data) - deleted,
        debt=CompactionPlan(is_managed=True) if is_compacted_by_service(table) else plan_compaction(table, listed),
        orphan_days=find_orphan_days(table),
        old=_count_old(table, listed),
        last_compaction=next(_find_compactions(table), None),
        metadata=_measure_metadata(table),
    )


def _count_deleted(listed: Sequence[ListedFile]) -> int:
    """Count the deleted rows of live data files. Delete files that apply to none of them do not count."""
    deletes = PositionDeletes(listed)
    applied = deletes.find_all(file for file in listed if file.is_data)
    file_scoped = {id(file) for files in deletes.file_scoped.values() for file in files}
    rows = {file.path: file.rows for file in listed if file.is_data}
    alone = sum(
        min(rows[path], sum(each.rows for each in files if id(each) in file_scoped)) for path, files in applied.items()
    )
    shared = {id(each): each.rows for files in applied.values() for each in files if id(each) not in file_scoped}
    return min(sum(rows.values()), alone + sum(shared.values()))


def _count_old(table: Table, listed: Sequence[ListedFile]) -> FileCount:
    """Count the data files that do not have the table's arrangement: none if the connector cannot tell which it is."""
    old: list[ListedFile] = []
    with suppress(UserError):
        old += list_old_files(listed, find_arrangement_of_all(table))
    return FileCount(len(old), sum(file.size for file in old))


def _find_compactions(table: Table) -> Iterator[LastCompaction]:
    """Yield the compactions of all engines, the newest one first. Where columns were converted is no compaction."""
    for snapshot in sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms, reverse=True):
        if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
            continue
        summary = read_summary(snapshot)
        counts = [sum(read_count(summary, name) or 0 for name in names) for names in _COUNTS]
        if counts[0] and SUMMARY_CONVERTED not in summary:
            yield LastCompaction(read_commit_time(snapshot), *counts)


def _measure_metadata(table: Table) -> MetadataSize:
    with translate_errors(table.location()):
        manifests = manifests_of(table, table.current_snapshot())
        size = len(table.io.new_input(table.metadata_location))
    return MetadataSize(len(manifests), sum(manifest.manifest_length for manifest in manifests), size)
