"""Apply: plans what has to change in every table, then does it. It can be repeated after a crash at any point."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from connector.checks.endpoint import OpenedEndpoint
from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.encoding.rewriting.converted_files import Rewrite
from connector.evolution.existing_table import CatalogEntry
from connector.evolution.table_change import CreateNamespace, DropTable, StartBackfill, TableChange
from connector.host.errors import RetryableError
from connector.host.threads import map_in_threads
from connector.iceberg.alteration import Alterer
from connector.iceberg.catalog_entries import find_all
from connector.iceberg.catalogs.opening import open_catalog, table_location, translate_errors
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.iceberg.maintenance.remove_staged_files import remove_staged_files_after
from connector.iceberg.perform_changes import create_namespace, evolve
from connector.model.state import encode_removed
from connector.rpc.plan import Plan, list_actions, plan_table, plan_tables
from connector.spark.jobs.rewrite_job import rewrite_jobs
from protocol import request, response
from protocol.flow import ConnectorState


def apply(message: request.Apply) -> response.Applied:
    """Make every table fit its binding. All tables are planned first: if one cannot be changed, none is."""
    endpoint, resources = parse(
        message.materialization.config, [binding.resource_config for binding in message.materialization.bindings]
    )
    opened = OpenedEndpoint(endpoint, open_catalog(endpoint))
    planned = plan_tables(message, resources, endpoint, partial(find_all, opened.catalog, endpoint))
    with rewrite_jobs(endpoint.advanced.spark) as rewrite:
        return perform(planned, opened, rewrite)


def perform(planned: Sequence[Plan], endpoint: OpenedEndpoint, rewrite: Rewrite) -> response.Applied:
    """Perform the plans. After a crash or an error, the next apply plans what is left."""
    expected = list_actions(planned)
    namespaces = {
        change.namespace for plan in planned for change in plan.changes if isinstance(change, CreateNamespace)
    }
    with translate_errors(endpoint.config):  # before the threads, each of which would create it
        for namespace in sorted(namespaces):
            create_namespace(endpoint.catalog, namespace)
    performed = map_in_threads(partial(_perform, endpoint, rewrite), planned, "apply")
    settled = [commit for plan in planned for commit in plan.settled]
    return response.Applied(
        "\n".join(_sort_actions(chain.from_iterable(performed), expected)),
        ConnectorState(encode_removed(settled)) if settled else None,
    )


def _sort_actions(performed: Iterable[str], expected: Sequence[str]) -> list[str]:
    """Sort the actions by the order of the plan, and list an action that several tables share once."""
    ranks = {action: rank for rank, action in enumerate(expected)}
    return sorted(dict.fromkeys(performed), key=lambda action: ranks.get(action, len(ranks)))


def _perform(endpoint: OpenedEndpoint, rewrite: Rewrite, plan: Plan) -> list[str]:
    """Perform one table's plan. Return the actions that were done, a line each."""
    config, catalog = endpoint.config, endpoint.catalog
    commit_all_or_raise(catalog, plan.finished, _choose_writers(config, plan))
    performed = list(plan.state_actions())
    if plan.changes:
        path, alterer = plan.target.path, Alterer(plan.target.owner, rewrite, plan.remedy)
        plan_again = partial(_plan_again, plan)
        created = [change for change in plan.changes if isinstance(change, CreateNamespace)]
        absent = None if plan.found.table else replace(plan.found, namespace_exists=True)
        with translate_errors(config), remove_staged_files_after(catalog, path, plan.dropped):
            done = evolve(catalog, path, table_location(config, path), plan_again, alterer, absent)
        performed += map(plan.describe, (*created, *done))
    return performed


def _choose_writers(config: EndpointConfig, plan: Plan) -> SnapshotWriters:
    """Return what writes the snapshots of pending commits. The next session tells the webhook of them."""
    if config.notify is None:
        return SnapshotWriters()
    from connector.notifications.notified_snapshots import mark_commit

    return SnapshotWriters(mark=partial(mark_commit, plan.target.owner.materialization))


def _plan_again(plan: Plan, found: CatalogEntry) -> list[TableChange]:
    """Plan the table's changes again, from its current state.

    Raises RetryableError if other rows would be replaced than those that were planned to be: they are of a later
    publication, which this apply does not know.
    """
    again = plan_table(plan.proposal, plan.target, found)
    if any(isinstance(change, DropTable | StartBackfill) and change not in plan.changes for change in again):
        raise RetryableError(
            f"Another publication of the task has replaced table {plan.target.path} or its rows since this backfill "
            "was planned. The table was not changed. If its rows are to be removed, increment the binding's backfill "
            "and publish again."
        )
    return again
