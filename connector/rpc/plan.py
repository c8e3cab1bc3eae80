"""What an apply will do for every table: known, as values, before anything is done."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from connector.config.resource_config import ResourceConfig
from connector.config.values import RETAIN_EXISTING_DATA
from connector.evolution import rejected_table
from connector.evolution.changes import changes, columns, last_bindings
from connector.evolution.rejected_table import rejected_path
from connector.evolution.table_change import DropTable, ExistingTable, Found, Owner, TableChange, Target
from connector.host.errors import UserError
from connector.iceberg.commits import commit_errors
from connector.model.invalid_values import OnInvalid
from connector.model.state import StagedCommit
from connector.model.state_reader import read_state
from connector.model.table_identifier import TableIdentifier
from protocol import request
from protocol.flow import collection_of


@dataclass(frozen=True)
class Plan:
    """What is to be done for one binding."""

    target: Target
    finished: tuple[StagedCommit, ...]  # to be committed before the table is altered
    dropped: tuple[StagedCommit, ...]  # staged for a table that a backfill replaces: never to be committed
    changes: tuple[TableChange, ...]

    @property
    def settled(self) -> tuple[StagedCommit, ...]:
        """What the state need not name afterwards."""
        return self.finished + self.dropped

    def state_actions(self) -> Iterator[str]:
        """What becomes of the staged commits, a line each; the changes describe themselves."""
        for verb, commits in ("finish", self.finished), ("drop", self.dropped):
            if commits:
                rows = sum(commit.rows for commit in commits)
                yield f"{verb} {len(commits)} staged transactions of table {self.target.table} ({rows} rows)"


def plans(
    message: request.Apply,
    resources: Sequence[ResourceConfig],
    flags: frozenset[str],
    find_all: Callable[[Sequence[TableIdentifier]], Sequence[Found | UserError]],
) -> list[Plan]:
    """Every table's plan, or one UserError that says all that stands against any of them."""
    targets = list(_targets(message, resources, flags))
    staged = read_state(message.materialization.name, message.state)
    found = find_all([target.path for target in targets])
    planned: list[Plan] = []
    wrong: list[str] = []
    for target, looked_up in zip(targets, found, strict=True):
        try:
            planned.append(_plan(target, looked_up, staged))
        except UserError as error:
            wrong.append(str(error))
    if wrong:
        raise UserError("\n".join(wrong))
    return planned


def actions(planned: Sequence[Plan]) -> list[str]:
    """The lines that apply's answer will have."""
    lines = [
        line for plan in planned for line in (*plan.state_actions(), *(change.description for change in plan.changes))
    ]
    return [*dict.fromkeys(lines)]  # two tables may both plan their namespace, which is created once


def _targets(message: request.Apply, resources: Sequence[ResourceConfig], flags: frozenset[str]) -> Iterator[Target]:
    """The bindings' tables, and their tables of rejected rows."""
    last_by_path = last_bindings(message.last_materialization)
    materialization = message.materialization
    for binding, resource in zip(materialization.bindings, resources, strict=True):
        namespace, table = binding.resource_path
        last = last_by_path.get(binding.resource_path)
        is_backfill = last is not None and last.backfill != binding.backfill
        target = Target(
            path=TableIdentifier(namespace, table),
            owner=Owner(materialization.name, binding.state_key),
            columns=columns(
                collection_of(binding, materialization.linked_collections),
                binding.field_selection,
                last.field_selection if last else None,
            ),
            properties=dict(resource.additional_table_properties),
            replaces=is_backfill and RETAIN_EXISTING_DATA not in flags,
            schema_evolution=resource.schema_evolution,
        )
        yield target
        if resource.on_invalid is OnInvalid.QUARANTINE:
            yield replace(target, path=rejected_path(target.path), columns=rejected_table.COLUMNS)


def _plan(target: Target, found: Found | UserError, staged: Sequence[StagedCommit]) -> Plan:
    if isinstance(found, UserError):
        raise found
    planned = tuple(changes(found, target))
    is_replaced = any(isinstance(change, DropTable) for change in planned)
    table_uuid = None if found.table is None or is_replaced else found.table.uuid
    here = [commit for commit in staged if commit.path == target.path]
    outdated = [commit for commit in here if commit.writer.state_key != target.owner.state_key]
    _check_table([commit for commit in here if commit not in outdated], found.table)
    return Plan(
        target,
        finished=tuple(commit for commit in (here if planned else outdated) if commit.table_uuid == table_uuid),
        dropped=tuple(commit for commit in outdated if commit.table_uuid != table_uuid),
        changes=planned,
    )


def _check_table(staged: Sequence[StagedCommit], table: ExistingTable | None) -> None:
    """UserError where the current state key has rows for a table that is gone. A new one would be in the way of the old
    one, which alone can take them."""
    if table is None and staged:
        raise commit_errors.gone(staged)
    elsewhere = [commit for commit in staged if table and commit.table_uuid != table.uuid]
    if table and elsewhere:
        raise commit_errors.explain_replaced_table(elsewhere, table.uuid)
