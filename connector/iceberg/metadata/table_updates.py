"""The requirements and updates of our commits, as values for `Catalog.commit_table`, and the metadata that a commit
replaces.

Some catalogs keep only the address of the metadata, and the client writes it. There PyIceberg loads the metadata again
to commit, applies the changes to what it finds, and copies all of it. Our commit replaces the metadata that the table
was loaded with. It is refused if the table has other metadata by now.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
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


def same_table(table: Table) -> TableRequirement:
    """Require that the name still belongs to this table."""
    return AssertTableUUID(uuid=table.metadata.table_uuid)


def same_rows(table: Table) -> TableRequirement:
    """Require that the main branch has not changed since the table was loaded."""
    current = table.metadata.current_snapshot()
    return AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=current.snapshot_id if current else None)


def same_schema(table: Table) -> tuple[TableRequirement, ...]:
    """Require that no column has changed, and no new one got an id, since the table was loaded."""
    return (
        AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=table.metadata.last_column_id),
    )


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


def assign_schema_id(table: Table, schema: Schema) -> Schema:
    """Return the schema with the id of the equal schema that the table has, or else with the next free id."""
    ids = {each.schema_id: each for each in table.metadata.schemas}
    before = next((number for number, each in ids.items() if each == schema), None)
    return schema.model_copy(update={"schema_id": 1 + max(ids) if before is None else before})


def new_schema(table: Table, schema: Schema) -> tuple[TableUpdate, ...]:
    """Make the schema the current one; its id comes from `assign_schema_id`."""
    if any(each.schema_id == schema.schema_id for each in table.metadata.schemas):
        current: tuple[TableUpdate, ...] = (SetCurrentSchemaUpdate(schema_id=schema.schema_id),)
    else:
        current = (AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=_LAST_ADDED))
    return (*current, *_name_mapping(table, schema))


def _name_mapping(table: Table, schema: Schema) -> tuple[TableUpdate, ...]:
    """Update the table's name mapping, if it has one: the names of columns in files without field ids."""
    mapping = table.name_mapping()
    if mapping is None:
        return ()
    old = {column.field_id: column for column in table.schema().fields}
    new = [column for column in schema.fields if column.field_id not in old]
    changed = {column.field_id: column for column in schema.fields if column.field_id in old}
    updated = update_mapping(mapping, changed, {-1: new})
    return (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: updated.model_dump_json()}),)


class CommitBase(threading.local):
    """The table to which the current thread commits, as it was loaded."""

    table: Table | None = None

    def commit(self, table: Table, send: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        """Send a commit that replaces the metadata of this table."""
        self.table = Table(
            table.name(), _convert(_SharingMetadata, table.metadata), table.metadata_location, table.io, table.catalog
        )
        try:
            response = send()
        finally:
            self.table = None
        return CommitTableResponse(
            metadata=_convert(TableMetadataV2, response.metadata), metadata_location=response.metadata_location
        )


class _SharingMetadata(TableMetadataV2):
    """Metadata whose copies share all parts that no update replaces. No code changes metadata in place.

    PyIceberg's commit makes a deep copy. With some hundred snapshots that takes as long as the rest of the commit.
    """

    def model_copy(
        self,
        *,
        update: Mapping[str, Any] | None = None,
        deep: bool = False,  # noqa: ARG002 - pydantic's signature
    ) -> "_SharingMetadata":
        return super().model_copy(update=update)


def _convert(kind: type[TableMetadataV2], metadata: TableMetadata) -> TableMetadata:
    if not isinstance(metadata, TableMetadataV2):
        return metadata
    return kind.model_construct(_fields_set=metadata.model_fields_set, **dict(metadata))
