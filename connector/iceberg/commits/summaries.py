"""The summaries of snapshots: the names of the connector's entries, how summaries are made, and how they are read.

The files and rows that a commit adds and removes are counted as Iceberg's Java library counts them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import (
    TOTAL_DATA_FILES,
    TOTAL_DELETE_FILES,
    TOTAL_RECORDS,
    Operation,
    Snapshot,
    Summary,
    update_snapshot_summaries,
)

from connector.encoding.live_rows.deletion_vectors import WrittenVector
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.snapshot_manifests import WrittenDeletes
from connector.model.state import DataFile, StagedCommit, WriterId

PublishedTimes: TypeAlias = tuple[str, str]  # the smallest and the largest, in ISO 8601

SUMMARY_MATERIALIZATION: Final = "flow.materialization"
SUMMARY_STATE_KEY: Final = "flow.state-key"
SUMMARY_KEY_RANGE: Final = "flow.key-range"
SUMMARY_FENCE: Final = "flow.fence"
# How fresh the rows of a commit are; docs/freshness.md explains each.
SUMMARY_FIRST: Final = "flow.min-published-at"
SUMMARY_LAST: Final = "flow.max-published-at"
SUMMARY_DELETED: Final = "flow.deleted-rows"
SUMMARY_OFFSETS: Final = "flow.offsets"

# What a summary says of removed files, by their content: their number, and that of their rows.
_REMOVED: Final = {
    DataFileContent.DATA: (("deleted-data-files",), "deleted-records"),
    DataFileContent.POSITION_DELETES: (
        ("removed-delete-files", "removed-position-delete-files"),
        "removed-position-deletes",
    ),
    DataFileContent.EQUALITY_DELETES: (
        ("removed-delete-files", "removed-equality-delete-files"),
        "removed-equality-deletes",
    ),
}
_REMOVED_VECTORS: Final = ("removed-delete-files", "removed-dvs"), "removed-position-deletes"
_COUNT: Final = re.compile("[0-9]{1,18}")
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - its texts end with Z
_LATEST: Final = (datetime.max - _EPOCH) // timedelta(milliseconds=1)  # noqa: DTZ901 - in milliseconds since 1970


def read_commit_time(snapshot: Snapshot) -> datetime:
    """Return when a snapshot was committed. Another engine may have written a time that is later than any date: then
    this is the last millisecond of the year 9999."""
    return (_EPOCH + timedelta(milliseconds=min(snapshot.timestamp_ms, _LATEST))).replace(tzinfo=UTC)


def read_summary(snapshot: Snapshot | None) -> dict[str, str]:
    """Return the entries of a snapshot's summary; none without a snapshot, or if it has no summary."""
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def read_count(summary: Mapping[str, str], name: str) -> int | None:
    """Return a count of a summary. None if it has none of this name, or another engine has written no number."""
    text = summary.get(name, "")
    return int(text) if _COUNT.fullmatch(text) else None


def list_newest_first(metadata: TableMetadata) -> list[Snapshot]:
    """Return the snapshots of all branches, the newest first. The metadata has them in any order: some catalogs keep
    them in a hash map."""
    return sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0, reverse=True)


def summarize_writer(writer: WriterId) -> dict[str, str]:
    """Return the entries of a summary that name a writer."""
    return {
        SUMMARY_MATERIALIZATION: writer.materialization,
        SUMMARY_STATE_KEY: writer.state_key,
        SUMMARY_KEY_RANGE: writer.key_range,
    }


def find_published(files: Iterable[tuple[StagedCommit, DataFile]]) -> PublishedTimes | None:
    """Return the publication times of the rows. None if they are not known of all rows."""
    first: list[int] = []
    last: list[int] = []
    for commit, file in files:
        found = None if commit.published_column_id is None else file.find_range(commit.published_column_id)
        if found is None:
            return None
        first.append(found[0])
        last.append(found[1])
    return (_format_time(min(first)), _format_time(max(last))) if first else None


def _format_time(microseconds: int) -> str:
    return f"{(_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec='microseconds')}Z"


def summarize_append(staged: Sequence[StagedCommit], published: PublishedTimes | None) -> dict[str, str]:
    """Say, for people, whose transaction this was and how fresh its rows are. Expiry removes summaries, so the fence is
    a table property."""
    newest = staged[-1]
    freshness = dict(zip((SUMMARY_FIRST, SUMMARY_LAST), published or (), strict=False))
    return {
        "added-data-files": str(sum(commit.file_count for commit in staged)),
        "added-records": str(sum(commit.rows for commit in staged)),
        "added-files-size": str(sum(commit.size for commit in staged)),
        **summarize_writer(newest.writer),
        SUMMARY_FENCE: newest.next,
        "flow.checkpoint": newest.checkpoint,
        SUMMARY_DELETED: str(sum(commit.located.rows for commit in staged if commit.located)),
        **freshness,
        **({SUMMARY_OFFSETS: newest.offsets} if newest.offsets else {}),
    }


def summarize_changes(
    deletes: Iterable[WrittenDeletes], removed: Iterable[ListedFile], added_size: int = 0
) -> dict[str, str]:
    """Count new delete files, and removed files of any content. `added_size` are the bytes of the new data files.

    Rows that are deleted by position are counted in both. What is not there is left out.
    """
    counts = Counter({"added-files-size": added_size})
    for file in deletes:
        kind = "added-dvs" if isinstance(file, WrittenVector) else "added-position-delete-files"
        counts.update(("added-delete-files", kind))
        counts.update({"added-position-deletes": file.rows, "added-files-size": file.size})
    for gone in removed:
        files, rows = _REMOVED_VECTORS if gone.vector else _REMOVED[gone.content]
        counts.update(files)
        counts.update({rows: gone.rows, "removed-files-size": gone.size})
    return _format(counts)


def summarize_rewrite(
    new: Sequence[DataFile], deletes: Iterable[WrittenDeletes], removed: Iterable[ListedFile]
) -> dict[str, str]:
    """Count new data files that take the place of others, and everything else that the same commit changes."""
    counts = {"added-data-files": len(new), "added-records": sum(file.rows for file in new)}
    return _format(counts) | summarize_changes(deletes, removed, sum(file.size for file in new))


def add_totals(operation: Operation, summary: Mapping[str, str], table: Table) -> Summary:
    """Return the summary of a new snapshot, with the totals of the table after it."""
    parent = table.metadata.current_snapshot()
    before = _read_totals(parent.summary) if parent and parent.summary else None
    # PyIceberg computes totals for all operations but this one.
    counted = Operation.OVERWRITE if operation is Operation.REPLACE else operation
    totals = update_snapshot_summaries(Summary(counted, **summary), before)
    return Summary(operation, **totals.additional_properties)


def count_live(summary: Summary, manifests: Iterable[ManifestFile]) -> Summary:
    """Return a summary with the totals of files and rows that a snapshot's manifests tell.

    Those of the summary go by the parent's, which other engines leave out or count wrong, as DuckDB 1.5.5 does.
    Redshift needs them.
    """
    totals = Counter(dict.fromkeys((TOTAL_DATA_FILES, TOTAL_DELETE_FILES, TOTAL_RECORDS), 0))
    for manifest in manifests:
        files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        if manifest.content is ManifestContent.DATA:
            rows = (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
            totals.update({TOTAL_DATA_FILES: files, TOTAL_RECORDS: rows})
        else:
            totals.update({TOTAL_DELETE_FILES: files})
    found = {name: str(total) for name, total in totals.items()}
    return Summary(summary.operation, **summary.additional_properties | found)


def _read_totals(summary: Summary) -> dict[str, str]:
    """Return a summary without the totals that are no numbers, as Java treats those of another writer."""
    entries = {"operation": summary.operation.value, **summary.additional_properties}
    return {name: text for name, text in entries.items() if not name.startswith("total-") or _COUNT.fullmatch(text)}


def _format(counts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in counts.items() if count}
