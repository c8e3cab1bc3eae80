"""The writers that a table knows of, and what it can tell of each."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyiceberg.table import Table

from connector.evolution.table_change import Owner
from connector.iceberg.commits import fence
from connector.iceberg.commits.snapshot import (
    SUMMARY_FENCE,
    SUMMARY_KEY_RANGE,
    SUMMARY_MATERIALIZATION,
    SUMMARY_STATE_KEY,
)
from connector.model.state import WriterId

RESET_PREFIX: Final = "flow.fence-reset."


@dataclass(frozen=True)
class RecordedWriter:
    """A fence property with what the table can tell of its owner."""

    property_name: str
    key_range: str
    value: str
    owner: Owner | None
    last_commit: datetime | None
    last_reset: str | None

    @property
    def is_closed(self) -> bool:
        return self.value.startswith(fence.CLOSED)


def owners(table: Table) -> set[Owner]:
    """Who has made the table or committed to it, as far as its properties and snapshots tell."""
    found = {Owner(writer.materialization, writer.state_key) for writer in _last_commits(table)}
    maker = Owner.of(table.properties)
    return found | ({maker} if maker else set())


def list_recorded_writers(table: Table) -> list[RecordedWriter]:
    """Every writer that has a fence property, by its name."""
    by_hash = {
        fence.writer_hash(WriterId(owner.materialization, owner.state_key, "")): owner for owner in owners(table)
    }
    last_commits = {fence.property_name(writer): at for writer, at in _last_commits(table).items()}
    writers = []
    for name, value in sorted(table.properties.items()):
        if name.startswith(fence.PREFIX):
            writer, _, key_range = name.removeprefix(fence.PREFIX).partition(".")
            reset = table.properties.get(f"{RESET_PREFIX}{writer}.{key_range}")
            writers.append(RecordedWriter(name, key_range, value, by_hash.get(writer), last_commits.get(name), reset))
    return writers


def _last_commits(table: Table) -> dict[WriterId, datetime]:
    """By writer, from the summaries of the snapshots that the table still has."""
    commits = {}
    for snapshot in sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if SUMMARY_FENCE in summary:
            writer = WriterId(summary[SUMMARY_MATERIALIZATION], summary[SUMMARY_STATE_KEY], summary[SUMMARY_KEY_RANGE])
            commits[writer] = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    return commits
