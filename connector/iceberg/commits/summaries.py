"""The summaries of snapshots: the names of the connector's entries, and how summaries are read."""

from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

SUMMARY_MATERIALIZATION: Final = "flow.materialization"
SUMMARY_STATE_KEY: Final = "flow.state-key"
SUMMARY_KEY_RANGE: Final = "flow.key-range"
SUMMARY_FENCE: Final = "flow.fence"
# How fresh the rows of a commit are; docs/freshness.md explains each.
SUMMARY_FIRST: Final = "flow.min-published-at"
SUMMARY_LAST: Final = "flow.max-published-at"
SUMMARY_DELETED: Final = "flow.deleted-rows"
SUMMARY_OFFSETS: Final = "flow.offsets"


def read_summary(snapshot: Snapshot | None) -> dict[str, str]:
    """Return the entries of a snapshot's summary; none without a snapshot, or if it has no summary."""
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def list_newest_first(metadata: TableMetadata) -> list[Snapshot]:
    """Return the snapshots of all branches, the newest first. The metadata has them in any order: some catalogs keep
    them in a hash map."""
    return sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0, reverse=True)
