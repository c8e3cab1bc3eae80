"""A change of a table's schema as a value: the updates and requirements of one catalog commit."""

from collections.abc import Sequence
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.name_mapping import update_mapping
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from connector.altered_schema import altered
from connector.table_change import Alteration

_LAST_ADDED: Final = -1


def alter(catalog: Catalog, table: Table, changes: Sequence[Alteration]) -> None:
    """All of them in one commit, if the schema is still the one that they were planned on."""
    schema = altered(table.schema(), changes, table.metadata.last_column_id)
    catalog.commit_table(table, requirements(table), updates(table, schema))


def requirements(table: Table) -> tuple[TableRequirement, ...]:
    """The table is as it was loaded, as far as its schema and the ids of its columns are concerned."""
    return (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=table.metadata.last_column_id),
    )


def updates(table: Table, schema: Schema) -> tuple[TableUpdate, ...]:
    """Makes it the current schema. One that the table has had before is not added again."""
    before = next((each.schema_id for each in table.metadata.schemas if each == schema), None)
    if before is not None:
        current: tuple[TableUpdate, ...] = (SetCurrentSchemaUpdate(schema_id=before),)
    else:
        added = schema.model_copy(update={"schema_id": next_schema_id(table)})
        current = (AddSchemaUpdate(schema_=added), SetCurrentSchemaUpdate(schema_id=_LAST_ADDED))
    return (*current, *_name_mapping(table, schema))


def next_schema_id(table: Table) -> int:
    return 1 + max(schema.schema_id for schema in table.metadata.schemas)


def _name_mapping(table: Table, schema: Schema) -> tuple[TableUpdate, ...]:
    """Where the table has one: what the columns of files without field ids are called."""
    mapping = table.name_mapping()
    if mapping is None:
        return ()
    old = {column.field_id: column for column in table.schema().fields}
    new = [column for column in schema.fields if column.field_id not in old]
    changed = {column.field_id: column for column in schema.fields if column.field_id in old}
    updated = update_mapping(mapping, changed, {-1: new})
    return (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: updated.model_dump_json()}),)
