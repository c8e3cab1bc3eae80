"""Apply: plan what has to change for every table, then do it; safe to repeat after a crash anywhere."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from connector.config import parse
from connector.config_values import RETAIN_EXISTING_DATA
from connector.errors import UserError
from connector.evolution import changes, columns, last_bindings
from connector.iceberg.catalogs import explained, open_catalog, table_location
from connector.iceberg.commit import finish
from connector.iceberg.tables import evolve, find
from connector.state import StagedCommit, entries, removed
from connector.table_change import DropTable, Found, Owner, TableChange, Target
from protocol import request, response
from protocol.flow import ConnectorState, collection_of


@dataclass(frozen=True)
class Plan:
    """What is to be done for one binding."""

    target: Target
    finished: tuple[StagedCommit, ...]  # become part of the table before it is altered
    dropped: tuple[StagedCommit, ...]  # were staged for a table that a backfill replaces
    changes: tuple[TableChange, ...]


def apply(message: request.Apply) -> response.Applied:
    """Make every table fit its binding. All is planned before anything is done: one error leaves every table alone."""
    endpoint, resources = parse(
        message.materialization.config, [binding.resource_config for binding in message.materialization.bindings]
    )
    targets = _targets(
        message, [resource.additional_table_properties for resource in resources], endpoint.feature_flags
    )
    staged = list(entries(message.materialization.name, message.state))
    catalog = open_catalog(endpoint)
    plans, wrong = [], []
    for target in targets:
        try:
            with explained(endpoint):
                plans.append(_plan(target, find(catalog, target.path), staged))
        except UserError as error:
            wrong.append(str(error))
    if wrong:
        raise UserError("\n".join(wrong))

    actions: list[str] = []
    for plan in plans:
        finish(catalog, plan.finished, None)
        actions += _state_actions(plan)
        if plan.changes:
            location = table_location(endpoint, plan.target.path)
            with explained(endpoint):
                performed = evolve(catalog, plan.target.path, location, partial(changes, target=plan.target))
            actions += (change.description for change in performed)
    settled = [commit for plan in plans for commit in plan.finished + plan.dropped]
    return response.Applied("\n".join(actions), ConnectorState(removed(settled)) if settled else None)


def _targets(
    message: request.Apply, properties: Sequence[Sequence[tuple[str, str]]], flags: frozenset[str]
) -> Iterator[Target]:
    last_by_path = last_bindings(message.last_materialization)
    materialization = message.materialization
    for binding, own_properties in zip(materialization.bindings, properties, strict=True):
        namespace, table = binding.resource_path
        last = last_by_path.get(binding.resource_path)
        is_backfill = last is not None and last.backfill != binding.backfill
        yield Target(
            path=(namespace, table),
            owner=Owner(materialization.name, binding.state_key),
            columns=columns(collection_of(binding, materialization.linked_collections), binding.field_selection),
            properties=dict(own_properties),
            replaces=is_backfill and RETAIN_EXISTING_DATA not in flags,
        )


def _plan(target: Target, found: Found, staged: Sequence[StagedCommit]) -> Plan:
    planned = tuple(changes(found, target))
    is_replaced = any(isinstance(change, DropTable) for change in planned)
    table_uuid = None if found.table is None or is_replaced else found.table.uuid
    here = [commit for commit in staged if commit.path == target.path]
    # Of the current state key nothing is ever dropped: rows for a table that is gone are an error when the session opens.
    outdated = [commit for commit in here if commit.lineage.state_key != target.owner.state_key]
    return Plan(
        target,
        finished=tuple(commit for commit in (here if planned else outdated) if commit.table_uuid == table_uuid),
        dropped=tuple(commit for commit in outdated if commit.table_uuid != table_uuid),
        changes=planned,
    )


def _state_actions(plan: Plan) -> Iterator[str]:
    for verb, commits in ("finish", plan.finished), ("drop", plan.dropped):
        if commits:
            rows = sum(commit.rows for commit in commits)
            yield f"{verb} {len(commits)} staged transactions of table {plan.target.table} ({rows} rows)"
