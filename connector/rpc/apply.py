"""Apply: plan what has to change for every table, then do it; safe to repeat after a crash anywhere."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Final

from connector.checks.endpoint import OpenedEndpoint, open_endpoint
from connector.config.settings import parse
from connector.encoding.rewriting import Rewrite
from connector.evolution.changes import changes
from connector.evolution.table_change import DropTable, Found, TableChange
from connector.host.errors import RetryableError
from connector.host.threads import map_in_threads
from connector.iceberg.alteration import Alterer
from connector.iceberg.catalogs.opening import table_location, translate_errors
from connector.iceberg.commits.commit import finish
from connector.iceberg.maintenance.remove_staged_files import remove_staged_files_after
from connector.iceberg.tables import evolve, find_all
from connector.model.state import encode_removed
from connector.rpc.plan import Plan, actions, plans
from connector.spark.rewrite_job import rewrite_jobs
from protocol import request, response
from protocol.flow import ConnectorState

TABLES_AT_ONCE: Final = 8


def apply(message: request.Apply) -> response.Applied:
    """Make every table fit its binding. All of it is planned first, so that one error leaves every table alone."""
    endpoint, resources = parse(
        message.materialization.config, [binding.resource_config for binding in message.materialization.bindings]
    )
    opened = open_endpoint(endpoint)
    planned = plans(message, resources, endpoint.advanced.feature_flags, partial(find_all, opened.catalog, endpoint))
    with rewrite_jobs(dict(endpoint.advanced.spark)) as rewrite:
        return perform(planned, opened, rewrite)


def perform(planned: Sequence[Plan], endpoint: OpenedEndpoint, rewrite: Rewrite) -> response.Applied:
    """Perform the plans; the next apply plans again whatever a crash or an error leaves undone."""
    expected = actions(planned)
    performed = map_in_threads(partial(_perform, endpoint, rewrite), planned, TABLES_AT_ONCE, "apply")
    settled = [commit for plan in planned for commit in plan.settled]
    return response.Applied(
        "\n".join(_in_order(chain.from_iterable(performed), expected)),
        ConnectorState(encode_removed(settled)) if settled else None,
    )


def _in_order(performed: Iterable[str], expected: Sequence[str]) -> list[str]:
    """The actions in the order of the plan, however the tables were performed; one that several tables share once."""
    places = {action: place for place, action in enumerate(expected)}
    return sorted(dict.fromkeys(performed), key=lambda action: places.get(action, len(places)))


def _perform(endpoint: OpenedEndpoint, rewrite: Rewrite, plan: Plan) -> list[str]:
    """Perform one table's plan; the actions that were done, a line each."""
    config, catalog = endpoint.config, endpoint.catalog
    finish(catalog, plan.finished)
    performed = list(plan.state_actions())
    if plan.changes:
        path, alter = plan.target.path, Alterer(plan.target.owner, rewrite).alter
        plan_again = partial(_plan_again, plan)
        with translate_errors(config), remove_staged_files_after(catalog, path, plan.dropped):
            done = evolve(catalog, path, table_location(config, path), plan_again, alter)
        performed += (change.description for change in done)
    return performed


def _plan_again(plan: Plan, found: Found) -> list[TableChange]:
    """The table's changes as they are now. A table that is not the one whose drop was planned is never dropped: a later
    publication made it, and it may hold rows that we know nothing of."""
    again = changes(found, plan.target)
    if any(isinstance(change, DropTable) and change not in plan.changes for change in again):
        raise RetryableError(
            f"Table {plan.target.table} has been made anew since this backfill was planned, by another publication of "
            "the task. It was left alone: publish again, with the binding's backfill incremented, if its rows are to "
            "go."
        )
    return again
