"""Validate: checks the config, answers with a constraint for every field, and checks that each table may be used."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from connector.checks.endpoint import survey
from connector.config.catalog import GlueCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.resource_config import ResourceConfig
from connector.config.settings import parse_each, resource_path
from connector.config.values import ALLOW_EXISTING_TABLES, RETAIN_EXISTING_DATA
from connector.encoding.parquet.file_options import FileOptions
from connector.evolution import rejected_table
from connector.evolution.binding_settings import BindingSettings
from connector.evolution.candidate import Candidate
from connector.evolution.changes import find_last_bindings, name_former_columns, refuse_backfill, replaces_table
from connector.evolution.columns import Evolution
from connector.evolution.constraints import find_problems, list_constraints, pick_most_severe
from connector.evolution.field_config import parse_field_configs
from connector.evolution.table_change import Found
from connector.host.errors import InvalidConfigError, UserError, join_errors
from connector.iceberg.maintenance.compaction_thresholds import check_compaction
from connector.iceberg.metadata.table_updates import check_properties
from connector.model.rejected_rows import name_rejected_table
from connector.model.table_identifier import TableIdentifier
from protocol import request, response
from protocol.flow import Collection, MaterializationBinding, ValidateBinding, find_collection

# The connector's own table properties: who created the table, and what is committed to it.
RESERVED_PROPERTIES: Final = "flow."
_MAINTENANCE: Final = ("flow.compaction.", "flow.expire.")  # which a user may set


@dataclass(frozen=True)
class Proposal:
    """A binding of the request, with its config parsed."""

    index: int
    materialization: str
    binding: ValidateBinding
    collection: Collection
    resource: ResourceConfig
    path: TableIdentifier
    last: MaterializationBinding | None  # of the same path
    flags: frozenset[str]
    is_in_glue: bool

    @property
    def place(self) -> str:
        """Which binding of the request it is, for an error."""
        return f"bindings[{self.index}] ({self.collection.name})"

    @property
    def table(self) -> str:
        """The name for errors: namespace.table."""
        return ".".join(self.path)

    @property
    def rejected_path(self) -> TableIdentifier | None:
        """Its table of rejected rows, if it needs one."""
        return name_rejected_table(self.path, self.resource.on_invalid)

    @property
    def settings(self) -> BindingSettings:
        """What decides how its table may change, beside its columns."""
        return BindingSettings.of(self.resource, self.last)

    @property
    def replaces_table(self) -> bool:
        """Whether apply will replace the table."""
        return replaces_table(self.last, self.binding.backfill, self.flags)


def validate(message: request.Validate) -> response.Validated:
    """Answer for every binding, or raise one error that says everything that is wrong with the endpoint and with each
    binding."""
    endpoint, resources = parse_each(message.config, [binding.resource_config for binding in message.bindings])
    proposals = list(_proposals(message, endpoint, resources))
    paths = [proposal.path for proposal in proposals]
    paths += (
        path for proposal in proposals if (path := proposal.rejected_path) and rejected_table.has_possible_name(path)
    )
    tables, errors = survey(endpoint, paths)
    found = dict(zip(paths, tables, strict=True))
    errors += (resource for resource in resources if isinstance(resource, InvalidConfigError))
    errors += map(UserError, _find_shared_tables(proposals))
    answers = []
    for proposal in proposals:
        try:
            answers.append(_answer(proposal, found))
        except UserError as error:
            errors += (UserError(f"{proposal.place}: {line}") for line in str(error).splitlines())
    if errors:
        raise join_errors(errors)
    return response.Validated(tuple(answers))


def _proposals(
    message: request.Validate, endpoint: EndpointConfig, resources: Sequence[ResourceConfig | InvalidConfigError]
) -> Iterator[Proposal]:
    last = find_last_bindings(message.last_materialization)
    for index, (binding, resource) in enumerate(zip(message.bindings, resources, strict=True)):
        if isinstance(resource, ResourceConfig):
            path = resource_path(endpoint, resource)
            collection = find_collection(binding, message.linked_collections)
            flags, is_in_glue = endpoint.advanced.feature_flags, isinstance(endpoint.catalog, GlueCatalog)
            yield Proposal(index, message.name, binding, collection, resource, path, last.get(path), flags, is_in_glue)


def _find_shared_tables(proposals: Sequence[Proposal]) -> Iterator[str]:
    rejected = [(path, proposal) for proposal in proposals if (path := proposal.rejected_path)]
    first: dict[TableIdentifier, Proposal] = {}
    for path, proposal in [*((proposal.path, proposal) for proposal in proposals), *rejected]:
        if (other := first.setdefault(path, proposal)) is not proposal:
            yield (
                f"{other.place} and {proposal.place} have the same table {'.'.join(path)}: give one of them another "
                "table name or namespace (they are the same in upper and lower case)."
                f"{rejected_table.HINT if (path, proposal) in rejected else ''}"
            )


def _answer(proposal: Proposal, all_found: Mapping[TableIdentifier, Found | UserError]) -> response.ValidatedBinding:
    found = all_found[proposal.path]
    if isinstance(found, UserError):
        raise found
    candidate = Candidate(
        proposal.collection,
        parse_field_configs(proposal.binding.field_config),
        proposal.resource.delta_updates,
        _evolution(proposal, found),
        proposal.binding.group_by,
        name_former_columns(proposal.last.field_selection if proposal.last else None),
        one_line_names=proposal.is_in_glue,
        arrangement=proposal.settings.arrangement,
    )
    if wrong := [
        *_refusals(proposal, found),
        *_rejected_table_refusals(proposal, all_found),
        *find_problems(candidate),
    ]:
        raise UserError("\n".join(wrong))
    projection_constraints = list_constraints(candidate)
    return response.ValidatedBinding(
        constraints=pick_most_severe(projection_constraints),
        projection_constraints=projection_constraints,
        resource_path=proposal.path,
        delta_updates=proposal.resource.delta_updates,
        case_insensitive_fields=True,
    )


def _evolution(proposal: Proposal, found: Found) -> Evolution | None:
    """How the existing table constrains the fields. A table that is about to be replaced does not."""
    if found.table is None or proposal.replaces_table:
        return None
    return Evolution(found.table, proposal.path, proposal.materialization, proposal.settings)


def _rejected_table_refusals(
    proposal: Proposal, all_found: Mapping[TableIdentifier, Found | UserError]
) -> Iterator[str]:
    if path := proposal.rejected_path:
        yield from rejected_table.find_table_problems(path, proposal.materialization, all_found.get(path))


def _refusals(proposal: Proposal, found: Found) -> Iterator[str]:
    continues = proposal.last is not None and proposal.last.delta_updates and not proposal.replaces_table
    if continues and not proposal.resource.delta_updates:
        is_backfill = proposal.last is not None and proposal.last.backfill != proposal.binding.backfill
        way_out = (
            f"Remove the feature flag {RETAIN_EXISTING_DATA}, which keeps these rows in a backfill"
            if is_backfill
            else "Increment the binding's backfill"
        )
        yield (
            f"table {proposal.table} has a row for each version of a document, so `delta_updates` cannot become false "
            f"without a backfill that replaces its rows. {way_out}, or set `delta_updates` to true."
        )
    for name, value in proposal.resource.additional_table_properties.items():
        if name.startswith(RESERVED_PROPERTIES) and not name.startswith(_MAINTENANCE):
            yield (
                f"table property {name!r}: names that begin with {RESERVED_PROPERTIES!r} are the connector's own. "
                "Remove it."
            )
        if name == "format-version" and value != str(proposal.resource.format_version):
            yield (
                f"table property {name!r} is not the value of `format_version`, which decides: remove the property, "
                "and set `format_version` to 2 or 3."
            )
    try:
        FileOptions.of_table(proposal.resource.additional_table_properties)
        check_properties(proposal.resource.additional_table_properties)
        check_compaction(proposal.resource.additional_table_properties)
    except ValueError as error:
        yield f"table property {error}."
    if (
        found.table
        and proposal.replaces_table
        and (refusal := refuse_backfill(found.table, proposal.path, proposal.materialization))
    ):
        yield refusal
    owner = found.table.owner if found.table else None
    is_ours = owner is not None and owner.materialization == proposal.materialization
    if found.table and not proposal.last and not is_ours and ALLOW_EXISTING_TABLES not in proposal.flags:
        maker = f"materialization {owner.materialization} created it" if owner else "this task did not create it"
        yield (
            f"table {proposal.table} exists already, and {maker}. Choose another table name, or drop the table, or add "
            f"rows to it with the feature flag {ALLOW_EXISTING_TABLES} under /advanced/feature_flags."
        )
