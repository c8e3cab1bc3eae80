"""The bindings that validate and apply are asked about, and why a binding may not have its table. Validate refuses
what apply would refuse, if it does not depend on the selected fields: the runtime selects them after validate. A task
may be applied after another one than it was validated after, or by a newer connector: so apply asks here, too."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from connector.config.endpoint_config import EndpointConfig
from connector.config.resource_config import ExistingTableMode, ResourceConfig
from connector.config.settings import resource_path
from connector.config.values import ALLOW_EXISTING_TABLES, RETAIN_EXISTING_DATA
from connector.encoding.parquet.file_options import FileOptions
from connector.evolution import rejected_table
from connector.evolution.binding_settings import BindingSettings
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.evolution.plan_changes import explain_refused_backfill, find_last_bindings
from connector.evolution.property_changes import CORRECT_CONFIG, DEFAULT_PROPERTIES, find_changed, find_config_problems
from connector.host.errors import InvalidConfigError, UserError
from connector.iceberg.catalogs.opening import table_location
from connector.iceberg.fences.renamed_tables import (
    CHOOSE_TABLE,
    WrittenTable,
    explain_other_owner,
    find_renamed_tables,
)
from connector.iceberg.maintenance.compaction_thresholds import check_compaction
from connector.iceberg.metadata.retention import check_expiry
from connector.iceberg.metadata.table_properties import CORRECT_TABLE, check_properties
from connector.model.invalid_values import name_rejected_table
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from protocol import request
from protocol.flow import (
    WHOLE_RANGE,
    Collection,
    Materialization,
    MaterializationBinding,
    ValidateBinding,
    find_collection,
)


@dataclass(frozen=True)
class Proposal:
    """A binding of the request, with its config parsed. Its selection of fields is not here: validate has none."""

    index: int
    materialization: str
    collection: Collection
    resource: ResourceConfig
    path: TableIdentifier
    backfill: int
    last: MaterializationBinding | None  # the binding that had the path before, with the fields that it had
    flags: frozenset[str]
    location: str | None  # of its table, if that is created; None: the catalog chooses it

    @property
    def place(self) -> str:
        """Which binding of the request it is, for an error."""
        return f"bindings[{self.index}] ({self.collection.name})"

    @property
    def rejected_path(self) -> TableIdentifier | None:
        """Its table of rejected rows, if it needs one."""
        return name_rejected_table(self.path, self.resource.on_invalid)

    @cached_property
    def settings(self) -> BindingSettings:
        """What decides how its table may change, beside its columns."""
        return BindingSettings.of(self.resource, self.last, self.flags)

    @property
    def replaces_table(self) -> bool:
        """Whether apply will replace the rows of the table, for a backfill."""
        return self._is_backfilled and not self.settings.retains_rows

    @property
    def keeps_rows(self) -> bool:
        """Whether the table keeps its rows in a backfill."""
        return self._is_backfilled and self.settings.retains_rows

    @property
    def _is_backfilled(self) -> bool:
        """Whether the binding's backfill counter has changed since the last publication."""
        return self.last is not None and self.last.backfill != self.backfill

    def find_table_problems(self, table: ExistingTable | None) -> Iterator[str]:
        """Say why the binding may not have the table that is there, a sentence each."""
        if self.last and self.last.delta_updates and not self.resource.delta_updates and not self.replaces_table:
            way_out = (
                f"Remove the feature flag {RETAIN_EXISTING_DATA}, which keeps these rows in a backfill"
                if self.last.backfill != self.backfill
                else "Increment the binding's backfill"
            )
            yield (
                f"table {self.path} may have several rows for a key, so `delta_updates` cannot become false without a "
                f"backfill that replaces its rows. {way_out}, or set `delta_updates` to true."
            )
        if table is None:
            yield from self._find_creation_problems()
            return
        mode = self.resource.existing_table
        if self.replaces_table and (refusal := explain_refused_backfill(table, self.path, self.materialization)):
            yield refusal
        # The feature flag is for all bindings, also for those whose tables are the task's alone.
        keeps_others = mode.appends and ALLOW_EXISTING_TABLES not in self.flags
        has_others = table.owner is None and table.has_rows and not table.has_rows_of(self.materialization)
        if self.replaces_table and has_others and keeps_others:
            yield (
                f"the backfill would remove all rows of table {self.path}, also those of others: this task did not "
                f"create it, and `existing_table` is {mode}. To keep the rows, set the feature flag "
                f"{RETAIN_EXISTING_DATA}, or choose another table name. If no rows of others are to stay, set "
                f"`existing_table` to {ExistingTableMode.REFUSE} in the binding's config."
            )
        if mode.appends:
            return
        if self.last and not self.replaces_table:
            # Another program may have dropped or renamed the binding's table since.
            if reason := explain_other_owner(_describe_writing(self.path, self, table)):
                yield f"{reason} {CHOOSE_TABLE}"
        elif not self.last and not table.is_of(self.materialization):
            owner = table.owner
            maker = f"materialization {owner.materialization} created it" if owner else "this task did not create it"
            yield (
                f"table {self.path} exists already, and {maker}. Choose another table name, or drop the table, or set "
                f"`existing_table` to {ExistingTableMode.APPEND} in the binding's config, which adds rows to it."
            )

    def _find_creation_problems(self) -> Iterator[str]:
        if self.resource.existing_table is ExistingTableMode.REQUIRE and not self._is_backfilled:
            yield (
                f"table {self.path} does not exist, and `existing_table` is {self.resource.existing_table}, so it is "
                "not created. Correct the table's name or namespace in the binding's config, or create or restore the "
                f"table, or set `existing_table` to {ExistingTableMode.APPEND}."
            )


def propose(
    task: request.Validate | Materialization,
    last: Materialization | None,
    resources: Sequence[ResourceConfig | InvalidConfigError],
    endpoint: EndpointConfig,
) -> Iterator[Proposal]:
    """Yield a proposal for each binding whose config has no problem. `last` is the task as it was last applied."""
    bindings: Sequence[ValidateBinding | MaterializationBinding] = task.bindings
    last_bindings = find_last_bindings(last)
    for index, (binding, resource) in enumerate(zip(bindings, resources, strict=True)):
        if isinstance(resource, InvalidConfigError):
            continue
        # Validate chooses the path, and apply gets it back.
        path = (
            resource_path(endpoint, resource)
            if isinstance(binding, ValidateBinding)
            else TableIdentifier(*binding.table)
        )
        yield Proposal(
            index,
            task.name,
            find_collection(binding, task.linked_collections),
            resource,
            path,
            binding.backfill,
            last_bindings.get(path),
            endpoint.advanced.feature_flags,
            table_location(endpoint, path),
        )


# A table of a binding, or of its rejected rows, as the catalog has it; None if it has none.
_ProposedTable: TypeAlias = tuple[TableIdentifier, Proposal, ExistingTable | None]


def find_confused_tables(
    proposals: Sequence[Proposal], found: Mapping[TableIdentifier, CatalogEntry | UserError]
) -> Iterator[str]:
    """Find bindings that have the same table, or whose rejected rows go to the table of another one, and tables with
    the name of another table of the task. `found` is what the catalog has."""
    proposed = [(proposal.path, proposal) for proposal in proposals]
    proposed += [(path, proposal) for proposal in proposals if (path := proposal.rejected_path)]
    tables = [
        (path, proposal, entry.table if isinstance(entry := found.get(path), CatalogEntry) else None)
        for path, proposal in proposed
    ]
    yield from _find_shared(tables)
    yield from find_renamed_tables([_describe_writing(*each) for each in tables])


def _find_shared(tables: Iterable[_ProposedTable]) -> Iterator[str]:
    first: dict[TableIdentifier, Proposal] = {}
    names: dict[str, TableIdentifier] = {}  # of tables, by their UUIDs
    for path, proposal, table in tables:
        if (other := first.setdefault(path, proposal)) is not proposal:
            yield (
                f"{other.place} and {proposal.place} have the same table {path}: give one of them another "
                "table name or namespace (they are the same in upper and lower case)."
                f"{rejected_table.HINT if path == proposal.rejected_path else ''}"
            )
        elif table and (name := names.setdefault(table.uuid, path)) != path:
            yield (
                f"{first[name].place} and {proposal.place} have the same table: the catalog has it under the names "
                f"{name} and {path}. Give one of them another table name or namespace."
            )


def _describe_writing(path: TableIdentifier, proposal: Proposal, table: ExistingTable | None) -> WrittenTable:
    # A new binding has written nothing. Validate does not know the state keys to come.
    state_key = proposal.last.state_key if proposal.last else ""
    writer = WriterId(proposal.materialization, state_key, WHOLE_RANGE.key_range)
    return WrittenTable(path, writer, table.properties if table else {})


def find_property_problems(proposal: Proposal, table: ExistingTable | None) -> Iterator[str]:
    """Find why the table cannot have the configured properties, a sentence each, which does not name the table.
    `table` is None if it is created. Apply asks only if it sets them."""
    configured = proposal.resource.additional_table_properties
    yield from find_config_problems(configured, proposal.resource.format_version)
    try:
        properties = _find_properties(configured, table)
        FileOptions.of_table(properties)
        check_properties(properties, table.location if table else proposal.location)
        check_compaction(properties)
        check_expiry(configured)
    except ValueError as error:
        is_configured = any(name in str(error) for name in configured)
        yield f"table property {error}. {CORRECT_CONFIG if is_configured else CORRECT_TABLE}"


def _find_properties(configured: Mapping[str, str], table: ExistingTable | None) -> Mapping[str, str]:
    """Find the properties that the table will have, if the binding sets any that it does not have yet."""
    if table is None:
        return {**DEFAULT_PROPERTIES, **configured}
    return {**table.properties, **configured} if find_changed(table.properties, configured) else configured
