"""Which snapshots the webhook has been told of. The table says it, so a successor knows what a crash has left out.

While notifications are on, the summary of each commit has a mark: the sequence number up to which the webhook had been
told of the table's snapshots when the commit was made. Snapshots with a mark are to be told. Those that are newer than
the newest mark may not have been told yet, so a session tells them (again).

A mark never decreases along the table's history, because each commit is based on all snapshots before it. This also
holds if several shards commit to a table.
"""

import re
from collections.abc import Iterator
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Snapshot

from connector.iceberg.commits.summaries import SUMMARY_MATERIALIZATION, list_newest_first, read_summary

SUMMARY_NOTIFIED: Final = "flow.notified"
MARK: Final = re.compile("[0-9]{1,18}")


def mark_commit(materialization: str, table: Table, notified: int = 0) -> dict[str, str]:
    """Return the mark of a commit that is based on this table. This process has told the snapshots up to `notified`."""
    metadata = table.metadata
    assert not isinstance(metadata, TableMetadataV1), "only tables of version 2 are bound"
    marked = find_mark(metadata, materialization)
    # Without a mark, notifications have just been turned on: older snapshots are not told.
    known = metadata.last_sequence_number if marked is None else marked
    return {SUMMARY_NOTIFIED: str(max(known, notified))}


def find_mark(metadata: TableMetadata, materialization: str) -> int | None:
    """Return the newest mark of a task, or None if it has none."""
    return next((mark for _, mark in _list_marked(metadata, materialization)), None)


def find_newer(metadata: TableMetadata, materialization: str, sequence_number: int) -> list[Snapshot]:
    """Return the snapshots to be told that are newer than this one, the oldest first."""
    newer: list[Snapshot] = []
    for snapshot, _ in _list_marked(metadata, materialization):
        if (snapshot.sequence_number or 0) <= sequence_number:
            break
        newer.append(snapshot)
    return newer[::-1]


def _list_marked(metadata: TableMetadata, materialization: str) -> Iterator[tuple[Snapshot, int]]:
    """Yield the task's snapshots with a mark, the newest first. Snapshots that another engine has rolled back count."""
    for snapshot in list_newest_first(metadata):
        summary = read_summary(snapshot)
        mark = summary.get(SUMMARY_NOTIFIED, "")
        if summary.get(SUMMARY_MATERIALIZATION) == materialization and MARK.fullmatch(mark):
            yield snapshot, int(mark)
