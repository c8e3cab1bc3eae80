"""What the actions of `maintain` did to tables, or would do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from connector.iceberg.maintenance.actions import Action
from connector.iceberg.maintenance.compaction_plan import CompactionPlan
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.find_orphan_files import OrphanFiles
from connector.iceberg.maintenance.rewrite_manifests import ManifestPlan
from connector.model.table_identifier import TableIdentifier
from connector.storage.stored_files import StoredFile


@dataclass(frozen=True)
class ExpiryOutcome:
    """Expired snapshots, and the files that were deleted with them, or would be. Also expired branches and tags."""

    snapshots: int
    deleted: Sequence[StoredFile]
    references: Sequence[str] = ()


@dataclass(frozen=True)
class Unfinished:
    """An action that the budget did not suffice for. A later run does the rest."""

    deleted: Sequence[StoredFile] = ()


@dataclass(frozen=True)
class Managed:
    """An action that the catalog's service does by itself, so nothing was done."""


ActionOutcome: TypeAlias = (
    CompactionPlan | CompactionResult | ExpiryOutcome | OrphanFiles | ManifestPlan | Unfinished | Managed
)


def is_finished(outcome: ActionOutcome) -> bool:
    """Whether nothing is left for a later run. Of a dry run: whether it has found out what would be done."""
    match outcome:
        case CompactionResult(debt=debt, errors=errors):
            return not debt and not errors
        case ManifestPlan(has_more=has_more):
            return not has_more
        case _:
            return not isinstance(outcome, Unfinished)


@dataclass(frozen=True)
class MaintainedTable:
    """What was done to a table, by action, in order. `is_managed`: its service maintains it, so nothing was done."""

    path: TableIdentifier
    outcomes: Sequence[tuple[Action, ActionOutcome]]
    is_managed: bool = False


@dataclass(frozen=True)
class MaintainedTables:
    """What was done to each table, and the errors of those for which an action failed, or a part of it. `defect` is an
    unexpected error, which is to be raised when the rest was told."""

    is_dry_run: bool
    tables: Sequence[MaintainedTable]
    errors: Sequence[tuple[TableIdentifier, str]]
    defect: Exception | None = None
