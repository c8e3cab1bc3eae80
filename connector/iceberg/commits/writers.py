"""The lineages that a table knows of, and what it can tell of each."""

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
from connector.model.state import Lineage

RESET_PREFIX: Final = "flow.fence-reset."


@dataclass(frozen=True)
class RecordedLineage:
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
    found = {Owner(lineage.materialization, lineage.state_key) for lineage in _last_commits(table)}
    maker = Owner.of(table.properties)
    return found | ({maker} if maker else set())


def recorded_lineages(table: Table) -> list[RecordedLineage]:
    """Every lineage that has a fence property, by its name."""
    by_hash = {
        fence.lineage_hash(Lineage(owner.materialization, owner.state_key, "")): owner for owner in owners(table)
    }
    last_commits = {fence.property_name(lineage): at for lineage, at in _last_commits(table).items()}
    lineages = []
    for name, value in sorted(table.properties.items()):
        if name.startswith(fence.PREFIX):
            lineage, _, key_range = name.removeprefix(fence.PREFIX).partition(".")
            reset = table.properties.get(f"{RESET_PREFIX}{lineage}.{key_range}")
            lineages.append(
                RecordedLineage(name, key_range, value, by_hash.get(lineage), last_commits.get(name), reset)
            )
    return lineages


def _last_commits(table: Table) -> dict[Lineage, datetime]:
    """By lineage, from the summaries of the snapshots that the table still has."""
    commits = {}
    for snapshot in sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if SUMMARY_FENCE in summary:
            lineage = Lineage(summary[SUMMARY_MATERIALIZATION], summary[SUMMARY_STATE_KEY], summary[SUMMARY_KEY_RANGE])
            commits[lineage] = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    return commits
