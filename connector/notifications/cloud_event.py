"""The message about one snapshot: a CloudEvent of version 1.0, in JSON. It has counts and times, but no row."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson
from pyiceberg.table.snapshots import Snapshot

from connector.iceberg.commits.summaries import (
    SUMMARY_DELETED,
    SUMMARY_FIRST,
    SUMMARY_KEY_RANGE,
    SUMMARY_LAST,
    SUMMARY_MATERIALIZATION,
    SUMMARY_STATE_KEY,
    read_commit_time,
    read_count,
    read_summary,
)
from connector.model.table_identifier import TableIdentifier

TYPE: Final = "flow.iceberg.snapshot.committed"
MEDIA_TYPE: Final = "application/cloudevents+json; charset=utf-8"
# The names of the data's counts, and of the summary's.
_COUNTS: Final = {
    "upsertedRows": "added-records",
    "deletedRows": SUMMARY_DELETED,
    "addedDataFiles": "added-data-files",
    "addedDeleteFiles": "added-delete-files",
    "addedBytes": "added-files-size",
}


@dataclass(frozen=True)
class CloudEvent:
    """A message. The same snapshot always has the same id."""

    id: str
    sequence_number: int  # of the snapshot
    committed: float  # seconds since 1970
    body: bytes

    @classmethod
    def of(cls, path: TableIdentifier, uuid: str, snapshot: Snapshot) -> "CloudEvent":
        """Return the message about a snapshot of a table."""
        summary = read_summary(snapshot)
        materialization = summary.get(SUMMARY_MATERIALIZATION, "")
        event_id = f"{uuid}-{snapshot.snapshot_id}"
        body: dict[str, Any] = {
            "specversion": "1.0",
            "id": event_id,
            "source": f"/materialize-iceberg/{quote(materialization)}",
            "type": TYPE,
            "subject": str(path),
            "time": read_commit_time(snapshot).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "datacontenttype": "application/json",
            "data": {
                "table": str(path),
                "tableUuid": uuid,
                # JavaScript cannot hold these numbers.
                "snapshotId": str(snapshot.snapshot_id),
                "parentSnapshotId": snapshot.parent_snapshot_id and str(snapshot.parent_snapshot_id),
                "sequenceNumber": snapshot.sequence_number,
                "operation": snapshot.summary.operation.value if snapshot.summary else None,
                "materialization": materialization,
                "stateKey": summary.get(SUMMARY_STATE_KEY),
                "keyRange": summary.get(SUMMARY_KEY_RANGE),
                **{name: read_count(summary, key) if key in summary else 0 for name, key in _COUNTS.items()},
                "minPublishedAt": summary.get(SUMMARY_FIRST),
                "maxPublishedAt": summary.get(SUMMARY_LAST),
            },
        }
        return cls(event_id, snapshot.sequence_number or 0, snapshot.timestamp_ms / 1000, orjson.dumps(body))
