"""The summaries of snapshots: the names of the connector's entries, and how summaries are read.

The files and rows that a commit adds and removes are counted as Iceberg's Java library counts them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyiceberg.manifest import DataFileContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from connector.encoding.live_rows.deletion_vectors import WrittenVector
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.snapshot_manifests import WrittenDeletes
from connector.model.state import DataFile

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


def read_summary(snapshot: Snapshot | None) -> dict[str, str]:
    """Return the entries of a snapshot's summary; none without a snapshot, or if it has no summary."""
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def list_newest_first(metadata: TableMetadata) -> list[Snapshot]:
    """Return the snapshots of all branches, the newest first. The metadata has them in any order: some catalogs keep
    them in a hash map."""
    return sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0, reverse=True)


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


def _format(counts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in counts.items() if count}
