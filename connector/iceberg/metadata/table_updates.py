"""What a commit asserts and changes: its requirements and updates, as values for `Catalog.commit_table`."""

from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.name_mapping import update_mapping
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

_LAST_ADDED: Final = -1


def require_uuid(table: Table) -> TableRequirement:
    """Require that the name still belongs to this table."""
    return AssertTableUUID(uuid=table.metadata.table_uuid)


def _require_main_branch(table: Table) -> TableRequirement:
    """Require that the main branch has not changed since the table was loaded."""
    current = table.metadata.current_snapshot()
    return AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=current.snapshot_id if current else None)


def require_schema(table: Table) -> tuple[TableRequirement, ...]:
    """Require that no column has changed, and no new one got an id, since the table was loaded."""
    return (
        AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=table.metadata.last_column_id),
    )


def require_unchanged(table: Table) -> tuple[TableRequirement, ...]:
    """Require that this is still the table that was loaded, with the same columns and the same main branch."""
    return (require_uuid(table), *require_schema(table), _require_main_branch(table))


def new_snapshot(table: Table, snapshot: Snapshot) -> tuple[TableUpdate, ...]:
    """Make the snapshot the newest one of the main branch. The branch keeps its retention."""
    main = table.metadata.refs.get(MAIN_BRANCH)
    return (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(
            ref_name=MAIN_BRANCH,
            type=SnapshotRefType.BRANCH,
            snapshot_id=snapshot.snapshot_id,
            max_ref_age_ms=main and main.max_ref_age_ms,
            max_snapshot_age_ms=main and main.max_snapshot_age_ms,
            min_snapshots_to_keep=main and main.min_snapshots_to_keep,
        ),
    )


def find_next_row_id(table: Table) -> int | None:
    """Return the id that the table's next new row gets. None if its rows have no ids: before format version 3."""
    metadata = table.metadata
    return metadata.next_row_id or 0 if isinstance(metadata, TableMetadataV3) else None


def assign_schema_id(table: Table, schema: Schema) -> Schema:
    """Return the schema with the id of the equal schema that the table has, or else with the next free id."""
    ids = {each.schema_id: each for each in table.metadata.schemas}
    before = next((number for number, each in ids.items() if each == schema), None)
    return schema.model_copy(update={"schema_id": 1 + max(ids) if before is None else before})


def add_schema(table: Table, schema: Schema) -> tuple[TableUpdate, ...]:
    """Add the schema without making it the current one; its id comes from `assign_schema_id`."""
    is_there = any(each.schema_id == schema.schema_id for each in table.metadata.schemas)
    return () if is_there else (AddSchemaUpdate(schema_=schema),)


def new_schema(table: Table, schema: Schema) -> tuple[TableUpdate, ...]:
    """Make the schema the current one; its id comes from `assign_schema_id`."""
    updates = add_schema(table, schema)
    if updates:
        updates = (*updates, SetCurrentSchemaUpdate(schema_id=_LAST_ADDED))
    elif schema.schema_id != table.metadata.current_schema_id:  # otherwise, Snowflake Horizon refuses the commit
        updates = (SetCurrentSchemaUpdate(schema_id=schema.schema_id),)
    return (*updates, *_name_mapping(table, schema))


def _name_mapping(table: Table, schema: Schema) -> tuple[TableUpdate, ...]:
    """Update the table's name mapping, if it has one: the names of columns in files without field ids."""
    mapping = table.name_mapping()
    if mapping is None:
        return ()
    # In files without field ids, a name stays that of the column whose values they have. A new column has other values,
    # and so has one that is renamed.
    owners = {name: field.field_id for field in mapping for name in field.names}
    free = [column for column in schema.fields if owners.get(column.name, column.field_id) == column.field_id]
    new = [column for column in free if column.field_id not in table.schema().field_ids]
    updated = update_mapping(mapping, {column.field_id: column for column in free}, {-1: new})
    return (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: updated.model_dump_json()}),)
