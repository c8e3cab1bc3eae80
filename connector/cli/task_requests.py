"""Makes the requests that Flow would send for a task of a Flow specification."""

from collections.abc import Iterable
from contextlib import closing
from typing import Final
from urllib.parse import quote

from connector.cli.field_selection import select_fields
from connector.cli.flow_files import Task, TaskBinding
from connector.config.endpoint_config import EndpointConfig
from connector.config.resource_config import ResourceConfig
from connector.config.settings import resource_path
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.tables import find_all
from connector.model.table_identifier import TableIdentifier
from protocol import request, response
from protocol.flow import Json, Materialization, MaterializationBinding, ValidateBinding

CONNECTOR_TYPE: Final = "IMAGE"


def make_validate(task: Task, last: Materialization | None = None) -> request.Validate:
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
    """Find what the tables say about the task as it was applied last: their bindings' backfill counters."""
    paths = [resource_path(endpoint, resource) for resource in resources]
    with closing(open_catalog(endpoint)) as catalog:
        found = find_all(catalog, endpoint, paths)
    owners = [None if isinstance(each, UserError) or each.table is None else each.table.owner for each in found]
    return Materialization(
        task.name,
        bindings=tuple(
            MaterializationBinding(
                resource_path=path, delta_updates=True, backfill=_read_backfill(owner.state_key, binding)
            )
            for path, owner, binding in zip(paths, owners, task.bindings, strict=True)
            if owner and owner.materialization == task.name
        ),
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
        state_key=f"{quote('/'.join(path), safe='')}.v{binding.backfill}",
    )


def _read_backfill(state_key: str, binding: TaskBinding) -> int:
    counter = state_key.rpartition(".v")[2]
    return int(counter) if counter.isdigit() else binding.backfill
