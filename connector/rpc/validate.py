"""Validate: checks the config, answers with a constraint for every field, and checks that each table may be used."""

import logging
from collections.abc import Iterable, Iterator, Mapping

from connector.checks.endpoint import survey
from connector.config.catalog import GlueCatalog, S3TablesCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse_each
from connector.config.values import RETAIN_EXISTING_DATA, NameCase
from connector.evolution import rejected_table
from connector.evolution.candidate import Candidate, name_former_strings
from connector.evolution.column_fits import Evolution
from connector.evolution.constraints import find_problems, list_constraints, list_new_names, pick_most_severe
from connector.evolution.existing_table import CatalogEntry
from connector.evolution.field_config import change_case, list_selected_fields, parse_field_configs
from connector.evolution.refusals import ChangeRules
from connector.host.errors import InvalidConfigError, UserError, join_errors
from connector.host.logs import name_some
from connector.model.table_identifier import TableIdentifier
from connector.rpc.proposals import Proposal, find_confused_tables, find_property_problems, propose
from protocol import request, response
from protocol.flow import Constraint, ConstraintType, ValidateBinding

log = logging.getLogger(__name__)


def validate(message: request.Validate) -> response.Validated:
    """Answer for every binding, or raise one error that says everything that is wrong with the endpoint and with each
    binding."""
    endpoint, resources = parse_each(message.config, [binding.resource_config for binding in message.bindings])
    proposals = list(propose(message, message.last_materialization, resources, endpoint))
    paths = [proposal.path for proposal in proposals]
    paths += (
        path for proposal in proposals if (path := proposal.rejected_path) and rejected_table.has_possible_name(path)
    )
    tables, errors = survey(endpoint, message.name, paths)
    found = dict(zip(paths, tables, strict=True))
    errors += (resource for resource in resources if isinstance(resource, InvalidConfigError))
    errors += map(UserError, find_confused_tables(proposals, found))
    answers = []
    for proposal in proposals:
        try:
            binding = message.bindings[proposal.index]
            answers.append(_answer(proposal, binding, found, endpoint))
        except UserError as error:
            errors += (UserError(f"{proposal.place}: {line}") for line in str(error).splitlines())
    if errors:
        raise join_errors(errors)
    if message.last_materialization is None:
        _warn_of_repeated_rows(proposals, found)
    return response.Validated(tuple(answers))


def _answer(
    proposal: Proposal,
    binding: ValidateBinding,
    all_found: Mapping[TableIdentifier, CatalogEntry | UserError],
    endpoint: EndpointConfig,
) -> response.ValidatedBinding:
    found = all_found[proposal.path]
    if isinstance(found, UserError):
        raise found
    candidate = Candidate(
        proposal.collection,
        parse_field_configs(binding.field_config),
        proposal.resource.delta_updates,
        _evolution(proposal, found),
        binding.group_by,
        proposal.last,
        name_former_strings(proposal.last),
        one_line_names=isinstance(endpoint.catalog, GlueCatalog),
        arrangement=proposal.settings.arrangement,
        field_name_case=endpoint.advanced.field_name_case,
    )
    if wrong := [
        *proposal.find_table_problems(found.table),
        *find_property_problems(proposal, found.table),
        *_find_rejected_table_problems(proposal, all_found),
        *find_problems(candidate),
    ]:
        raise UserError("\n".join(wrong))
    projection_constraints = list_constraints(candidate)
    if isinstance(endpoint.catalog, S3TablesCatalog):
        _warn_of_capitals(proposal, list_new_names(candidate))
    constraints = pick_most_severe(projection_constraints)
    _warn_of_lost_fields(proposal, constraints)
    return response.ValidatedBinding(
        constraints=constraints,
        projection_constraints=projection_constraints,
        resource_path=proposal.path,
        delta_updates=proposal.resource.delta_updates,
        case_insensitive_fields=True,
    )


def _warn_of_capitals(proposal: Proposal, names: Iterable[str]) -> None:
    with_capitals = [repr(name) for name in names if name != change_case(name, NameCase.LOWERCASE)]
    if with_capitals:
        log.warning(
            "table %s: new columns have capital letters in their names: %s. Amazon S3 Tables keeps them, but AWS Glue, "
            "Lake Formation and Athena support lower case only. Set /advanced/field_name_case to %s, or give the "
            'fields other columns with {"column": "…"} in their field config.',
            proposal.path,
            name_some(with_capitals),
            NameCase.LOWERCASE,
        )


def _warn_of_repeated_rows(
    proposals: Iterable[Proposal], all_found: Mapping[TableIdentifier, CatalogEntry | UserError]
) -> None:
    """Warn of rows that a task which was deleted and created again adds a second time. Rows come with a session, and it
    opens after the publication. So a task that is published for the first time has none."""
    paths = [
        str(proposal.path)
        for proposal in proposals
        if isinstance(entry := all_found[proposal.path], CatalogEntry)
        and (table := entry.table)
        and table.has_rows
        and table.is_of(proposal.materialization)
        and proposal.resource.delta_updates
    ]
    if paths:
        log.warning(
            "this task was not published before, but has rows in %s. If it was deleted and created again, Flow reads "
            "its collections from the beginning, and these rows are added a second time. To have each row once, drop "
            "the tables or choose other table names. Or, after this publication, increment the backfill of their "
            "bindings, which replaces all rows unless the feature flag %s is on.",
            name_some(paths),
            RETAIN_EXISTING_DATA,
        )


def _warn_of_lost_fields(proposal: Proposal, constraints: Mapping[str, Constraint]) -> None:
    """Warn of selected fields that are forbidden now. Flow leaves such a field out, unless the task requires it."""
    selected = list_selected_fields(proposal.last.field_selection) if proposal.last else ()
    for field in selected:
        constraint = constraints.get(field)
        if constraint and constraint.type is ConstraintType.FIELD_FORBIDDEN:
            log.warning(
                "table %s: field %r was selected, and cannot be selected any more. Unless `fields.require` of the "
                "binding names it, it is left out, and new rows have no value in its column. %s",
                proposal.path,
                field,
                constraint.reason,
            )


def _evolution(proposal: Proposal, found: CatalogEntry) -> Evolution | None:
    """How the existing table constrains the fields. A table that is about to be replaced does not."""
    if found.table is None or proposal.replaces_table:
        return None
    return Evolution(
        ChangeRules(found.table, proposal.materialization, proposal.settings, is_new=proposal.last is None)
    )


def _find_rejected_table_problems(
    proposal: Proposal, all_found: Mapping[TableIdentifier, CatalogEntry | UserError]
) -> Iterator[str]:
    if path := proposal.rejected_path:
        yield from rejected_table.find_table_problems(path, proposal.materialization, all_found.get(path))
