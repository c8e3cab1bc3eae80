"""Makes the requests that Flow would send for a task of a Flow specification."""

from collections.abc import Iterable
from contextlib import closing
from typing import Final
from urllib.parse import quote

from connector.cli.flow.field_selection import select_fields
from connector.cli.flow.flow_files import Task, TaskBinding
from connector.config.endpoint_config import EndpointConfig
from connector.config.resource_config import ResourceConfig
from connector.config.settings import resource_path
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.evolution.field_config import NO_CONFIG, fold_case, parse_field_configs
from connector.iceberg.catalog_entries import find_all
from connector.iceberg.catalogs.opening import open_without_creating
from connector.iceberg.fences import fence
from connector.model.table_identifier import Owner, TableIdentifier
from protocol import request, response
from protocol.flow import Json, Materialization, MaterializationBinding, ValidateBinding

CONNECTOR_TYPE: Final = "IMAGE"


def make_validate(task: Task, last: Materialization | None) -> request.Validate:
    """Make the request to validate the task's config and bindings."""
    bindings = (
        ValidateBinding(
            binding.resource,
            binding.collection,
            field_config=binding.rules.configs,
            backfill=binding.backfill,
            group_by=binding.rules.group_by,
        )
        for binding in task.bindings
    )
    return request.Validate(
        name=task.name,
        connector_type=CONNECTOR_TYPE,
        config=task.config,
        bindings=tuple(bindings),
        last_materialization=last,
    )


def make_apply(
    task: Task, validated: response.Validated, last: Materialization | None = None, state: Json = None
) -> request.Apply:
    """Make the request to apply the task, with the fields that Flow would select."""
    bindings = [*map(_select, task.bindings, validated.bindings)]
    materialization = Materialization(task.name, CONNECTOR_TYPE, task.config, tuple(bindings))
    return request.Apply(materialization, version="", last_materialization=last, state=state)


def find_last(task: Task, endpoint: EndpointConfig, resources: Iterable[ResourceConfig]) -> Materialization:
    """Find what the tables say about the task as it was applied last: the updates and the backfill counters of their
    bindings. A table that another program created counts, once the task has written to it."""
    resources = list(resources)
    paths = [resource_path(endpoint, resource) for resource in resources]
    with closing(open_without_creating(endpoint)) as catalog:
        found = find_all(catalog, endpoint, task.name, paths)
    bindings = (
        _find_last_binding(task, path, each.table, binding, resource)
        for path, each, binding, resource in zip(paths, found, task.bindings, resources, strict=True)
        if isinstance(each, CatalogEntry) and each.table
    )
    return Materialization(task.name, bindings=tuple(binding for binding in bindings if binding))


def _find_last_binding(
    task: Task, path: TableIdentifier, table: ExistingTable, binding: TaskBinding, resource: ResourceConfig
) -> MaterializationBinding | None:
    if table.owner and table.is_of(task.name):
        return MaterializationBinding(
            resource_path=path,
            delta_updates=_had_delta_updates(table, binding, resource),
            backfill=_read_backfill(table.owner.state_key, binding),
        )
    if not fence.has_written(table.properties, task.name):
        return None
    # The names of fence properties have hashes of state keys. The identifier fields are not the task's.
    writer = fence.writer_hash(Owner(task.name, _make_state_key(path, binding.backfill)))
    is_backfilled = writer not in fence.find_writer_hashes(table.properties)
    return MaterializationBinding(
        resource_path=path,
        delta_updates=resource.delta_updates,
        backfill=max(0, binding.backfill - 1) if is_backfilled else binding.backfill,
    )


def _select(binding: TaskBinding, validated: response.ValidatedBinding) -> MaterializationBinding:
    path = TableIdentifier(*validated.resource_path)
    return MaterializationBinding(
        resource_config=binding.resource,
        resource_path=path,
        collection=binding.collection,
        field_selection=select_fields(binding.collection, validated.constraints, binding.rules),
        delta_updates=validated.delta_updates,
        backfill=binding.backfill,
        state_key=_make_state_key(path, binding.backfill),
    )


def _make_state_key(path: TableIdentifier, backfill: int) -> str:
    return f"{quote('/'.join(path), safe='')}.v{backfill}"


def _had_delta_updates(table: ExistingTable, binding: TaskBinding, resource: ResourceConfig) -> bool:
    """Whether the table's rows are of delta updates. With standard updates, its key columns are its identifier fields.

    If they cannot be identifier fields, or if the catalog refuses them, the table does not tell. Then the updates count
    as unchanged.
    """
    if table.schema.identifier_field_ids:
        return False
    if table.refuses_identifier_fields:
        return resource.delta_updates
    required = {fold_case(column.name) for column in table.schema.fields if column.required}
    configs, group_by = parse_field_configs(binding.rules.configs), binding.rules.group_by
    may_identify: dict[str, bool] = {}  # by location of the key, which may have several fields
    for each in binding.collection.projections:
        if each.field in group_by if group_by else each.ptr in binding.collection.key:
            name = configs.get(each.field, NO_CONFIG).column_name(each.field)
            may_identify[each.ptr] = may_identify.get(each.ptr, False) or fold_case(name) in required
    return resource.delta_updates or all(may_identify.values())


def _read_backfill(state_key: str, binding: TaskBinding) -> int:
    counter = state_key.rpartition(".v")[2]
    return int(counter) if counter.isdigit() else binding.backfill
