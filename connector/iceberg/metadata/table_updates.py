"""What a commit asserts and changes: its requirements and updates, as values for `Catalog.commit_table`.

PyIceberg reads a table's properties when it writes the metadata, so they are checked here.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from textwrap import shorten
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.name_mapping import parse_mapping_from_json, update_mapping
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
from pyiceberg.utils.properties import property_as_bool, property_as_int

from connector.host.errors import UserError
from connector.model.table_identifier import GENERATION_PROPERTY, Generation

PROVIDER: Final = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
ENCRYPTION: Final = "encryption.key-id"  # PyIceberg has no name for it
DIRECTORIES: Final = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)
SWITCHES: Final = (TableProperties.OBJECT_STORE_ENABLED, TableProperties.WRITE_OBJECT_STORE_PARTITIONED_PATHS)
PREVIOUS_VERSIONS: Final = TableProperties.METADATA_PREVIOUS_VERSIONS_MAX
NAME_MAPPING: Final = TableProperties.DEFAULT_NAME_MAPPING
QUOTED_CHARACTERS: Final = 60  # of a value
_CORRECT: Final = "Correct it in the table (in Spark: ALTER TABLE … SET or UNSET TBLPROPERTIES …)."
_OTHER_TABLE: Final = "Give the binding another table, which is not encrypted: the files of this one stay encrypted."
_LAST_ADDED: Final = -1
_IN_A_STORE: Final = re.compile(
    r"(?:file:|(?:s3[an]?|oss|gs|gcs|abfss?|wasbs?|hdfs|viewfs)://[^/\[\]]*)?/[^\0]*", re.DOTALL | re.IGNORECASE
)
_LOCATION: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?/[^#?]*", re.DOTALL)


def find_generation(table: Table, materialization: str) -> Generation:
    """Read the generation that a task's rows of the table belong to. UserError if its property was changed by hand."""
    if GENERATION_PROPERTY not in table.properties:
        return Generation(str(table.metadata.table_uuid))
    with name_table_in_errors(table):
        return Generation.of(str(table.metadata.table_uuid), table.properties, materialization)


def list_newest_first(metadata: TableMetadata) -> list[Snapshot]:
    """Return the snapshots of all branches, the newest first. The metadata has them in any order: some catalogs keep
    them in a hash map."""
    return sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0, reverse=True)


def restrict_to_generation(table: Table, generation: Generation) -> Table:
    """Return the table as the task of this generation has it: with its columns, and without earlier rows.

    The metadata is changed in memory only. A commit asserts the table as it was loaded.
    """
    if generation.schema_id is None:
        return table
    if generation.schema_id not in table.schemas():
        raise UserError(
            f"Table {'.'.join(table.name())}: another program has removed schema {generation.schema_id}, which the "
            "backfill has added. Increment the binding's backfill, and publish the task again."
        )
    references = {name: ref for name, ref in table.metadata.refs.items() if name != MAIN_BRANCH}
    metadata = table.metadata.model_copy(
        update={"current_schema_id": generation.schema_id, "current_snapshot_id": None, "refs": references}
    )
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def require_uuid(table: Table) -> TableRequirement:
    """Require that the name still belongs to this table."""
    return AssertTableUUID(uuid=table.metadata.table_uuid)


def require_main_branch(table: Table) -> TableRequirement:
    """Require that the main branch has not changed since the table was loaded."""
    current = table.metadata.current_snapshot()
    return AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=current.snapshot_id if current else None)


def require_schema(table: Table) -> tuple[TableRequirement, ...]:
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
    added = add_schema(table, schema)
    current = SetCurrentSchemaUpdate(schema_id=_LAST_ADDED if added else schema.schema_id)
    return (*added, current, *_name_mapping(table, schema))


def _name_mapping(table: Table, schema: Schema) -> tuple[TableUpdate, ...]:
    """Update the table's name mapping, if it has one: the names of columns in files without field ids."""
    mapping = table.name_mapping()
    if mapping is None:
        return ()
    old = {column.field_id: column for column in table.schema().fields}
    new = [column for column in schema.fields if column.field_id not in old]
    changed = {column.field_id: column for column in schema.fields if column.field_id in old}
    updated = update_mapping(mapping, changed, {-1: new})
    return (SetPropertiesUpdate(updates={NAME_MAPPING: updated.model_dump_json()}),)


class FixedPropertyError(ValueError):
    """A table property that it does not help to change. An encrypted table stays encrypted without it."""


class FixedColumns:
    """A catalog that refuses a column of another type in the place of an existing one."""


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise ValueError if no metadata can be written with these properties."""
    given = dict(properties)
    # PyIceberg would import the module when it names the next file.
    if PROVIDER in given:
        raise ValueError(f"{PROVIDER} is set, but the connector does not run code that a table names")
    # Files that are not encrypted would lie among those that are. PyIceberg also drops the keys from the metadata: no
    # reader could decrypt the others any more.
    if ENCRYPTION in given:
        raise FixedPropertyError(f"{ENCRYPTION} is set, but the connector neither reads nor writes encrypted files")
    for name in DIRECTORIES:
        if (path := given.get(name)) and not is_location(path):
            raise ValueError(
                f"{name} is {path!r}; it must be an absolute location without # and ?, such as s3://bucket/directory"
            )
        if path and not _IN_A_STORE.fullmatch(path):
            raise ValueError(
                f"{name} is {path!r}; it must be a location in a store that PyIceberg knows: s3, gs, abfss, hdfs or "
                "file, such as s3://bucket/directory"
            )
    for name in SWITCHES:
        with _demand(given, name, "must be true or false"):
            property_as_bool(given, name, False)
    with _demand(given, PREVIOUS_VERSIONS, "must be a whole number"):
        property_as_int(given, PREVIOUS_VERSIONS)
    if mapping := given.get(NAME_MAPPING):
        with _demand(given, NAME_MAPPING, "must be a name mapping, the JSON of Iceberg's specification"):
            parse_mapping_from_json(mapping)


def is_location(text: str) -> bool:
    """Whether files can be written below a location.

    PyIceberg would write below the current directory of the process if the location is not absolute. It ignores what
    comes after # or ?, so all files of the table would replace each other.
    """
    return _LOCATION.fullmatch(text) is not None


@contextmanager
def name_table_in_errors(table: Table) -> Iterator[None]:
    """Turn a ValueError about a property into a UserError that names the table."""
    try:
        yield
    except ValueError as error:
        remedy = _OTHER_TABLE if isinstance(error, FixedPropertyError) else _CORRECT
        raise UserError(f"Table {'.'.join(table.name())}: table property {error}. {remedy}") from error


@contextmanager
def _demand(properties: Mapping[str, str], name: str, demand: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(
            f"{name} is {shorten(properties[name], QUOTED_CHARACTERS, placeholder=' …')!r}; it {demand}"
        ) from error
