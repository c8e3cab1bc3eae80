"""Alters tables: decides the new schema, and which files are rewritten where columns are converted.

One commit gives the table its new schema and its new files. It asserts the schema and the main branch that were read.
When another writer was faster, the changes are planned anew. Files that an earlier attempt has rewritten are used
again, so that only the files of the other writer are left to rewrite.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate

from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.encoding.parquet.file_options import Destination
from connector.encoding.rewriting.converted_files import Rewrite
from connector.evolution.altered_schema import ConvertedColumn, alter_schema, find_converted_columns
from connector.evolution.arrangement_changes import SetPartitionSpec, SetSortOrder
from connector.evolution.property_changes import SetTableProperties
from connector.evolution.table_change import Alteration
from connector.host.errors import UserError
from connector.iceberg.commits.backfill import change_columns
from connector.iceberg.commits.rewrite_files import RewriteFiles, RewritePlan
from connector.iceberg.commits.summaries import SUMMARY_MATERIALIZATION
from connector.iceberg.fences.file_names import find_file_prefix
from connector.iceberg.metadata.live_files import find_live_files
from connector.iceberg.metadata.table_arrangement import new_partition_spec, new_sort_order, require_arrangement
from connector.iceberg.metadata.table_properties import (
    find_generation,
    read_name_mapping,
    record_conversions,
    restrict_to_generation,
)
from connector.iceberg.metadata.table_updates import (
    assign_schema_id,
    new_schema,
    require_schema,
    require_unchanged,
    require_uuid,
)
from connector.model.table_identifier import Generation, Owner, TableIdentifier
from connector.storage import storage_errors

SUMMARY_CONVERTED: Final = "flow.converted-columns"


class Alterer:
    """Alters one table. Later attempts use the files that earlier ones have rewritten.

    `remedy` says what helps if files cannot be rewritten.
    """

    def __init__(self, owner: Owner, rewrite: Rewrite, remedy: str) -> None:
        self._owner, self._remedy = owner, remedy
        self._rewriting = RewriteFiles(rewrite)

    @property
    def task(self) -> str:
        """The task that has the table altered."""
        return self._owner.materialization

    def alter(self, catalog: Catalog, table: Table, changes: Sequence[Alteration]) -> None:
        """Make all changes in one commit. CommitFailedException if the table has changed since it was loaded.

        UnconvertibleError if a value of a column that is to be converted has no equivalent.
        """
        generation = find_generation(table, self.task)
        if generation.is_awaited:
            self._alter_awaited(catalog, table, changes, generation)
            return
        schema = assign_schema_id(table, alter_schema(table.schema(), changes, table.metadata.last_column_id))
        arranging = tuple(_arrange(table, schema, changes))
        converted = find_converted_columns(table.schema(), changes, table.metadata.last_column_id)
        # Another engine may partition or sort the table by a column that is to be converted.
        requirements = require_arrangement(table) if arranging or converted else ()
        updates = (*new_schema(table, schema), *arranging, *_set_properties(changes))
        if not converted:
            catalog.commit_table(table, (require_uuid(table), *require_schema(table), *requirements), updates)
            return
        record = SetPropertiesUpdate(updates=record_conversions(converted))
        self._rewriting.commit(catalog, self._plan(table, schema, converted), (*updates, record), requirements)

    def _alter_awaited(
        self, catalog: Catalog, table: Table, changes: Sequence[Alteration], generation: Generation
    ) -> None:
        """Change the columns that the table gets with the first rows of a backfill. No files have them yet."""
        before, last_column_id = restrict_to_generation(table, generation).schema(), table.metadata.last_column_id
        schema = assign_schema_id(table, alter_schema(before, changes, last_column_id))
        record = SetPropertiesUpdate(
            updates=record_conversions(find_converted_columns(before, changes, last_column_id))
        )
        arranging = tuple(_arrange(table, schema, changes))
        requirements = (*require_unchanged(table), *require_arrangement(table))
        updates = (*change_columns(table, generation, schema), record, *arranging, *_set_properties(changes))
        catalog.commit_table(table, requirements, updates)

    def _plan(self, table: Table, schema: Schema, converted: Sequence[ConvertedColumn]) -> RewritePlan:
        """Plan to rewrite every file that may hold a value of a converted column."""
        old_ids = {column.old.field_id for column in converted}
        with storage_errors.translate_errors(table.location()):
            live = find_live_files(
                table, lambda file: any(_may_have_values(file, column) for column in old_ids), self._remedy
            )
        # The other equality deletes apply to the new files, too: those have the old files' sequence numbers.
        for delete in live.equality_deletes:
            self._check_equality_delete(table, delete, old_ids)
        conversions = [f"{each.new.name}: {each.old.field_type} to {each.new.field_type}" for each in converted]
        summary = {
            SUMMARY_MATERIALIZATION: self.task,
            SUMMARY_CONVERTED: ", ".join(conversions),
        }
        columns = _target_columns(schema, converted)
        destination = Destination.of_table(table, find_file_prefix(table, self._owner))
        target = TargetFiles(columns, destination, mapping=read_name_mapping(table))
        return RewritePlan(table, live.files, target, schema.schema_id, summary)

    def _check_equality_delete(self, table: Table, delete: ManifestDataFile, column_ids: Collection[int]) -> None:
        for column in table.schema().fields:
            if column.field_id in column_ids and column.field_id in (delete.equality_ids or ()):
                raise UserError(
                    f"table {TableIdentifier.of(table)}: another engine has deleted rows by their value of "
                    f"{column.name!r}, a column that is to be converted. Have the deletions merged into the data files "
                    f"first (in Spark: CALL system.rewrite_data_files), or {self._remedy}."
                )


def _arrange(table: Table, schema: Schema, changes: Collection[Alteration]) -> Iterator[TableUpdate]:
    """Yield the updates that make another partition spec or sort order the current one."""
    for change in changes:
        match change:
            case SetPartitionSpec():
                yield from new_partition_spec(table, schema, change.terms)
            case SetSortOrder():
                yield from new_sort_order(table, schema, change.terms)


def _set_properties(changes: Collection[Alteration]) -> Iterator[TableUpdate]:
    for change in changes:
        if isinstance(change, SetTableProperties):
            yield SetPropertiesUpdate(updates=dict(change.properties))


def _may_have_values(file: ManifestDataFile, column_id: int) -> bool:
    nulls = (file.null_value_counts or {}).get(column_id)
    return nulls is None or nulls < file.record_count


def _target_columns(schema: Schema, converted: Sequence[ConvertedColumn]) -> tuple[TargetColumn, ...]:
    """Return the columns of the new files. A column that the changes add is in no old file, so it is its own source."""
    sources = {column.new.field_id: column.old for column in converted}
    return tuple(TargetColumn.of(column, sources.get(column.field_id, column)) for column in schema.fields)
