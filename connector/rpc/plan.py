"""Plans what apply does to every table. The plan is made of values, before anything is changed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from connector.config.advanced_options import AdvancedOptions
from connector.config.endpoint_config import EndpointConfig
from connector.config.resource_config import ResourceConfig
from connector.config.values import ALWAYS_DROP
from connector.evolution import rejected_table
from connector.evolution.binding_settings import BindingSettings
from connector.evolution.candidate import has_other_key
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.evolution.field_config import list_selected_fields
from connector.evolution.plan_changes import plan_changes, plan_columns
from connector.evolution.property_changes import find_changed
from connector.evolution.refusals import ChangeRules
from connector.evolution.table_change import CreateTable, DropTable, StartBackfill, TableChange, describe_change
from connector.evolution.target import Target
from connector.host.errors import BACKFILL, OlderTableError, UserError
from connector.iceberg.commits import commit_errors, lost_commits
from connector.model.state import StagedCommit
from connector.model.state_reader import read_state
from connector.model.table_identifier import Owner, TableIdentifier
from connector.rpc.proposals import Proposal, find_confused_tables, find_property_problems, propose
from protocol import request
from protocol.flow import MaterializationBinding


@dataclass(frozen=True)
class Plan:
    """What apply does to one table."""

    proposal: Proposal
    target: Target
    found: CatalogEntry  # what the changes start from
    finished: tuple[StagedCommit, ...]  # are committed before the table is altered
    dropped: tuple[StagedCommit, ...]  # staged for a table that a backfill replaces: are never committed
    changes: tuple[TableChange, ...]

    @property
    def settled(self) -> tuple[StagedCommit, ...]:
        """The commits that apply removes from the state."""
        return self.finished + self.dropped

    @property
    def remedy(self) -> str:
        """What helps if files of the table cannot be rewritten."""
        target, table = self.target, self.found.table
        if table is None:  # another process has created it since
            return BACKFILL
        return ChangeRules(table, target.owner.materialization, target.settings, target.is_new).rewrite

    def describe(self, change: TableChange) -> str:
        """Describe a change of the table for people."""
        return describe_change(change, self.target.path)

    def state_actions(self) -> Iterator[str]:
        """Describe what happens to the staged commits, a line each."""
        for verb, commits in ("finish", self.finished), ("drop", self.dropped):
            if commits:
                rows = sum(commit.rows for commit in commits)
                yield f"{verb} {len(commits)} staged transactions of table {self.target.path} ({rows} rows)"


def plan_tables(
    message: request.Apply,
    resources: Sequence[ResourceConfig],
    endpoint: EndpointConfig,
    find_all: Callable[[str, Sequence[TableIdentifier]], Sequence[CatalogEntry | UserError]],
) -> list[Plan]:
    """Plan every table. Raises one UserError with everything that is wrong with any of them."""
    proposals = list(propose(message.materialization, message.last_materialization, resources, endpoint))
    requested = [
        (proposal, target)
        for proposal in proposals
        for target in _make_targets(message.materialization.bindings[proposal.index], proposal, endpoint.advanced)
    ]
    staged = read_state(message.materialization.name, message.state)
    paths = [target.path for _, target in requested]
    found = find_all(message.materialization.name, paths)
    by_path = dict(zip(paths, found, strict=True))
    planned: list[Plan] = []
    wrong = list(find_confused_tables(proposals, by_path))
    for (proposal, target), looked_up in zip(requested, found, strict=True):
        try:
            planned.append(_plan(proposal, target, looked_up, staged))
        except (UserError, OlderTableError) as error:
            wrong.append(str(error))
    if wrong:
        raise UserError("\n".join(wrong))
    return planned


def list_actions(planned: Sequence[Plan]) -> list[str]:
    """List the lines of the response to apply."""
    lines = (line for plan in planned for line in (*plan.state_actions(), *map(plan.describe, plan.changes)))
    return [*dict.fromkeys(lines)]  # two tables may both plan their namespace, which is created once


def plan_table(proposal: Proposal, target: Target, found: CatalogEntry) -> list[TableChange]:
    """Plan the changes of the binding's table, or of its table of rejected rows. UserError if it may not have it."""
    refusals = (
        rejected_table.find_table_problems(target.path, proposal.materialization, found)
        if target.is_for_rejected_rows
        else proposal.find_table_problems(found.table)
    )
    if reasons := [*refusals]:
        raise UserError("\n".join(reasons))
    changes = plan_changes(found, target)
    existing = None if any(isinstance(change, CreateTable) for change in changes) else found.table
    # A backfill sets them, too.
    if existing is None or find_changed(existing.properties, target.properties):
        problems = find_property_problems(proposal, existing)
        if lines := [f"table {target.path}: {problem}" for problem in problems]:
            raise UserError("\n".join(lines))
    return changes


def _make_targets(binding: MaterializationBinding, proposal: Proposal, advanced: AdvancedOptions) -> Iterator[Target]:
    """Yield what the binding's table, and its table of rejected rows, should become."""
    resource, last = proposal.resource, proposal.last
    fields = {projection.field for projection in proposal.collection.projections}
    target = Target(
        path=proposal.path,
        owner=Owner(proposal.materialization, binding.state_key),
        columns=plan_columns(
            proposal.collection,
            binding.field_selection,
            last,
            advanced.field_name_case,
            delta_updates=resource.delta_updates,
        ),
        properties=resource.additional_table_properties,
        replaces=proposal.replaces_table,
        settings=proposal.settings,
        is_new=last is None,
        keeps_rows=proposal.keeps_rows,
        has_other_key=has_other_key(binding.field_selection, proposal.collection, last),
        format_version=resource.format_version,
        keeps_nanoseconds=advanced.nanosecond_timestamps,
        always_drops=ALWAYS_DROP in advanced.feature_flags,
        other_fields=frozenset(fields.difference(list_selected_fields(binding.field_selection))),
    )
    yield target
    if rejected := proposal.rejected_path:
        yield replace(
            target,
            path=rejected,
            columns=rejected_table.COLUMNS,
            settings=BindingSettings(resource.schema_evolution),
            is_for_rejected_rows=True,
            keeps_nanoseconds=False,
        )


def _plan(proposal: Proposal, target: Target, found: CatalogEntry | UserError, staged: Sequence[StagedCommit]) -> Plan:
    if isinstance(found, UserError):
        raise found
    here = [commit for commit in staged if commit.path == target.path]
    outdated = [commit for commit in here if commit.writer.state_key != target.owner.state_key]
    target = replace(target, has_staged_rows=len(outdated) < len(here))
    planned = tuple(plan_table(proposal, target, found))
    is_replaced = any(isinstance(change, DropTable | StartBackfill) for change in planned)
    materialization = target.owner.materialization
    table_uuid = None if found.table is None or is_replaced else found.table.generation_of(materialization).uuid
    _check_table([commit for commit in here if commit not in outdated], found.table)
    return Plan(
        proposal,
        target,
        found,
        finished=tuple(commit for commit in (here if planned else outdated) if commit.table_uuid == table_uuid),
        dropped=tuple(commit for commit in outdated if commit.table_uuid != table_uuid),
        changes=planned,
    )


def _check_table(staged: Sequence[StagedCommit], table: ExistingTable | None) -> None:
    """Raise UserError if commits of the current state key are staged for a table that is gone, or for newer rows of it.

    Only that table can take them, and a new table would take its name.
    """
    if table is None and staged:
        raise commit_errors.explain_missing_table(staged)
    elsewhere = [
        commit
        for commit in staged
        if table and commit.table_uuid != table.generation_of(commit.writer.materialization).uuid
    ]
    if table and elsewhere:
        writer = elsewhere[0].writer
        if table.owner and table.is_of(writer.materialization) and table.owner.state_key != writer.state_key:
            raise lost_commits.explain_older_table(elsewhere[0].path, writer.state_key, table.owner)
        if elsewhere[0].table_uuid in table.generation_of(writer.materialization).former:
            raise commit_errors.explain_older_copy(elsewhere)
        raise commit_errors.explain_replaced_table(elsewhere, table.uuid)
