"""Replaces a table's rows and columns in place: the table, its properties and its history stay.

A backfill has two commits. Apply makes the first: it begins a new generation of rows, and adds the new columns. Readers
do not notice it, because it makes neither the columns nor any rows current. The second one is the first commit of the
new generation. In one step it removes all earlier rows, adds the new ones, and makes the new columns current.

To the writers of the task, a new generation is a new table. What was staged for a former one is refused. A process from
before the backfill is also fenced, even if its image knows no generations: apply's commit sets a fence value that it
does not know, for all keys (decision 7), and moves the main branch, which a commit that is on its way asserts.
"""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate

from connector.evolution.altered_schema import plan_schema
from connector.evolution.property_changes import list_lasting_properties
from connector.evolution.table_change import StartBackfill
from connector.host.errors import FencedError
from connector.iceberg.commits.commit_errors import explain_older_copy
from connector.iceberg.commits.commit_outcomes import Superseded, warn_superseded
from connector.iceberg.commits.snapshot import RemovedFiles, SnapshotWriter, find_current_prefix
from connector.iceberg.commits.summaries import summarize_changes, summarize_writer
from connector.iceberg.fences import fence
from connector.iceberg.fences.passed_values import reset_value
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.manifests import manifests_of, read_entries
from connector.iceberg.metadata.table_arrangement import keep_sources, require_arrangement
from connector.iceberg.metadata.table_properties import find_generation
from connector.iceberg.metadata.table_updates import (
    add_schema,
    assign_schema_id,
    new_schema,
    new_snapshot,
    require_unchanged,
)
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import OWNER_PROPERTY, Generation, Owner, TableIdentifier
from connector.storage import storage_errors
from protocol.flow import WHOLE_RANGE

if TYPE_CHECKING:
    from connector.iceberg.commits.row_deletes import DeletesOfCommit

log = logging.getLogger(__name__)

FORMER_KEPT: Final = 100  # generations whose staged files are recognized
SUMMARY_BACKFILL: Final = "flow.backfill"  # in the snapshot that apply adds
_UNREADABLE: Final = (FileNotFoundError, InvalidMetadataError)


def start_backfill(catalog: Catalog, table: Table, change: StartBackfill) -> None:
    """Begin a new generation of the table's rows, in one commit.

    The earlier rows stay until the first commit. Rejected rows, and rows whose manifest list cannot be read, are
    removed at once.
    CommitFailedException if the table has changed since it was loaded.
    """
    target, writer = change.target, _name_writer(change.target.owner)
    schema = assign_schema_id(table, _plan_schema(table, change))
    former = (change.former.uuid, *change.former.former)[:FORMER_KEPT]
    awaited = Generation(str(uuid.uuid4()), former, target.owner.materialization, schema.schema_id)
    snapshots = SnapshotWriter()
    summary = summarize_writer(writer) | {SUMMARY_BACKFILL: awaited.uuid}
    with storage_errors.translate_errors(table.location()):
        if target.is_for_rejected_rows or not _is_readable(table):
            begun = begin_generation(table, awaited, schema)
            snapshot = snapshots.clear(table, writer, remove_rows(table, writer, snapshots), summary)
        else:
            begun = change_columns(table, awaited, schema)
            snapshot = snapshots.keep_files(table, writer, summary)
    properties = {
        **list_lasting_properties(target.table_properties),
        OWNER_PROPERTY: target.owner.encode(),
        fence.property_name(writer): reset_value(fence.read_value(table.properties, writer)),
    }
    updates = (*begun, SetPropertiesUpdate(updates=properties), *new_snapshot(table, snapshot))
    # Another engine may partition the table by a column that the new generation does not have.
    requirements = (*require_unchanged(table), *require_arrangement(table))
    catalog.commit_table(table, requirements, updates)


def change_columns(table: Table, generation: Generation, schema: Schema) -> tuple[TableUpdate, ...]:
    """Record the columns that an awaited generation will have. The schema's id comes from `assign_schema_id`."""
    awaited = replace(generation, schema_id=schema.schema_id)
    return (*add_schema(table, schema), SetPropertiesUpdate(updates=awaited.encode()))


def begin_generation(table: Table, generation: Generation, schema: Schema) -> tuple[TableUpdate, ...]:
    """Make the columns of an awaited generation current: its rows replace all others in this commit. The schema's id
    comes from `assign_schema_id`."""
    begun = replace(generation, schema_id=None)
    return (*new_schema(table, schema), SetPropertiesUpdate(updates=begun.encode()))


def replace_rows(
    table: Table,
    task_table: Table,
    staged: Sequence[StagedCommit],
    snapshots: SnapshotWriter,
    rows: "DeletesOfCommit | None",
) -> tuple[Snapshot, tuple[TableUpdate, ...]]:
    """Write a snapshot that replaces all rows by the staged ones, and return it with the other updates of its commit.

    `task_table` is the table as the task has it after the backfill: no rows, new columns.
    """
    writer, schema = staged[0].writer, assign_schema_id(table, task_table.schema())
    removed = remove_rows(table, writer, snapshots)
    snapshot = snapshots.replace_rows(table, task_table, staged, rows, removed, schema.schema_id)
    return snapshot, begin_generation(table, find_generation(table, writer.materialization), schema)


def remove_rows(table: Table, writer: WriterId, snapshots: SnapshotWriter) -> RemovedFiles:
    """Write manifests that name all files of the current snapshot as deleted. Unreadable manifests are left out: the
    user may backfill because they are gone."""
    factory = snapshots.make_factory(table, find_current_prefix(table, writer))
    manifests, removed = list[ManifestFile](), list[ListedFile]()
    for manifest in _list_manifests(table):
        try:
            entries = read_entries(table.io, manifest)
        except _UNREADABLE as error:
            log.warning("table %s: some of its rows were not readable: %s", TableIdentifier.of(table), error)
            continue
        if entries:
            gone = [ListedFile.of(manifest, entry) for entry in entries]
            ids = {file.id for file in gone}
            manifests.append(factory.write(manifest.partition_spec_id, manifest.content, existing=entries, gone=ids))
            removed += gone
    return RemovedFiles(manifests, summarize_changes((), removed))


def _is_readable(table: Table) -> bool:
    try:
        manifests_of(table, table.current_snapshot())
    except _UNREADABLE:
        return False
    return True


def _list_manifests(table: Table) -> list[ManifestFile]:
    try:
        return manifests_of(table, table.current_snapshot())
    except _UNREADABLE as error:
        log.warning("table %s: its rows were not readable: %s", TableIdentifier.of(table), error)
        return []


def _plan_schema(table: Table, change: StartBackfill) -> Schema:
    arranged = {field.source_id for field in table.spec().fields}
    arranged.update(field.source_id for field in table.sort_order().fields)
    columns, last_column_id = change.target.columns, table.metadata.last_column_id
    schema = plan_schema(change.schema, columns, change.target.identifier, arranged, last_column_id)
    return keep_sources(table, schema)


def _name_writer(owner: Owner) -> WriterId:
    return WriterId(owner.materialization, owner.state_key, WHOLE_RANGE.key_range)


def supersede(pending: Sequence[StagedCommit], owner: Owner | None) -> Superseded:
    """Give up commits that were staged before a backfill of their table, which has this owner now.

    UserError if they were staged after it, on an older copy of the table. FencedError if this process staged any of
    them: it is outdated.
    """
    if pending[0].writer.is_of(owner):
        raise explain_older_copy(pending)
    if any(not commit.is_recovered for commit in pending):
        raise _explain_backfilled(pending[0])
    superseded = Superseded(tuple(pending))
    warn_superseded(superseded)
    return superseded


def _explain_backfilled(staged: StagedCommit) -> FencedError:
    """Return the error of a process that still writes rows from before a backfill."""
    return FencedError(
        f"table {staged.path}: {staged.writer.materialization} has been published with a backfill of this table since "
        f"this process began (with state key {staged.writer.state_key}). This process stops and adds nothing. If no "
        "other process runs this task, start it again."
    )
