"""Apply: plan what has to change for every table, then do it; safe to repeat after a crash anywhere."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Final

from connector.config.settings import parse
from connector.errors import RetryableError
from connector.evolution.changes import changes
from connector.evolution.table_change import DropTable, Found, TableChange
from connector.iceberg.alteration import Alterer, Rewrite
from connector.iceberg.catalogs.opening import explained, table_location
from connector.iceberg.checks import OpenedEndpoint, open_endpoint
from connector.iceberg.cleaning.discards import discarding
from connector.iceberg.commits.commit import finish
from connector.iceberg.lookups import find_all
from connector.iceberg.tables import evolve
from connector.parallel import side_by_side
from connector.plan import Plan, actions, plans
from connector.spark.rewriting import rewrite_jobs
from connector.state import removed
from protocol import request, response
from protocol.flow import ConnectorState

TABLES_AT_ONCE: Final = 8


def apply(message: request.Apply) -> response.Applied:
    """Make every table fit its binding. All is planned before anything is done: one error leaves every table alone."""
    endpoint, resources = parse(
        message.materialization.config, [binding.resource_config for binding in message.materialization.bindings]
    )
    opened = open_endpoint(endpoint)
    planned = plans(message, resources, endpoint.feature_flags, partial(find_all, opened.catalog, endpoint))
    with rewrite_jobs(dict(endpoint.spark)) as rewrite:
        return perform(planned, opened, rewrite)


def perform(planned: Sequence[Plan], endpoint: OpenedEndpoint, rewrite: Rewrite) -> response.Applied:
    """What a crash or an error leaves undone of it the next apply plans again."""
    expected = actions(planned)
    performed = side_by_side(partial(_perform, endpoint, rewrite), planned, TABLES_AT_ONCE, "apply")
    settled = [commit for plan in planned for commit in plan.settled]
    return response.Applied(
        "\n".join(_in_order(chain.from_iterable(performed), expected)),
        ConnectorState(removed(settled)) if settled else None,
    )


def _in_order(performed: Iterable[str], expected: Sequence[str]) -> list[str]:
    """Whichever of the tables that share a namespace makes it, it is named where it was planned."""
    places = {action: place for place, action in enumerate(expected)}
    return sorted(dict.fromkeys(performed), key=lambda action: places.get(action, len(places)))


def _perform(endpoint: OpenedEndpoint, rewrite: Rewrite, plan: Plan) -> list[str]:
    """What has been done for one table, a line each."""
    config, catalog = endpoint.config, endpoint.catalog
    finish(catalog, plan.finished)
    performed = list(plan.state_actions())
    if plan.changes:
        path, alter = plan.target.path, Alterer(plan.target.owner, rewrite).alter
        plan_again = partial(_plan_again, plan)
        with explained(config), discarding(catalog, path, plan.dropped):
            done = evolve(catalog, path, table_location(config, path), plan_again, alter)
        performed += (change.description for change in done)
    return performed


def _plan_again(plan: Plan, found: Found) -> list[TableChange]:
    """Another table than the one that was to be dropped has been made by whoever came after us, and has rows that we know
    nothing of."""
    again = changes(found, plan.target)
    if any(isinstance(change, DropTable) and change not in plan.changes for change in again):
        raise RetryableError(
            f"Table {plan.target.table} has been made anew since this backfill was planned, by another publication of the "
            "task. It was left alone: publish again, with the binding's backfill incremented, if its rows are to go."
        )
    return again
