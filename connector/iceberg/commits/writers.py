"""The writers that a table knows, as `fence show` lists them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyiceberg.table import Table

from connector.iceberg.commits.summaries import (
    SUMMARY_FENCE,
    SUMMARY_KEY_RANGE,
    SUMMARY_MATERIALIZATION,
    SUMMARY_STATE_KEY,
    read_commit_time,
    read_summary,
)
from connector.iceberg.fences import fence
from connector.model.state import WriterId
from connector.model.table_identifier import Owner

RESET_PREFIX: Final = "flow.fence-reset."


@dataclass(frozen=True)
class RecordedWriter:
    """A fence property, and what the table's properties and snapshots say about its writer."""

    property_name: str
    key_range: str
    value: str
    owner: Owner | None
    last_commit: datetime | None
    last_reset: str | None

    @property
    def is_closed(self) -> bool:
        """Whether a later session has closed the value: files that are staged on it are never committed."""
        return self.value.startswith(fence.CLOSED)


def _find_owners(table: Table) -> set[Owner]:
    """Return the owners that have created the table or committed to it, as far as its metadata shows."""
    found = {Owner(writer.materialization, writer.state_key) for writer in _last_commits(table)}
    creator = Owner.of(table.properties)
    return found | ({creator} if creator else set())


def list_recorded_writers(table: Table) -> list[RecordedWriter]:
    """Return every writer that has a fence property, sorted by the property's name."""
    by_hash = {fence.writer_hash(owner): owner for owner in _find_owners(table)}
    last_commits = {fence.property_name(writer): at for writer, at in _last_commits(table).items()}
    writers = []
    for name, value in sorted(table.properties.items()):
        if name.startswith(fence.PREFIX):
            writer, _, key_range = name.removeprefix(fence.PREFIX).partition(".")
            reset = table.properties.get(f"{RESET_PREFIX}{writer}.{key_range}")
            writers.append(RecordedWriter(name, key_range, value, by_hash.get(writer), last_commits.get(name), reset))
    return writers


def _last_commits(table: Table) -> dict[WriterId, datetime]:
    """Return the time of each writer's last commit, from the summaries of snapshots that have not expired."""
    commits = {}
    for snapshot in sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms):
        summary = read_summary(snapshot)
        if SUMMARY_FENCE in summary:
            writer = WriterId(summary[SUMMARY_MATERIALIZATION], summary[SUMMARY_STATE_KEY], summary[SUMMARY_KEY_RANGE])
            commits[writer] = read_commit_time(snapshot)
    return commits
