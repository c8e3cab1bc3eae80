"""Alters tables. Where columns are converted, Spark first rewrites their data files; then one commit gives the table
both its new schema and its new files.

That commit asserts the main branch that was read. When another writer was faster, everything is planned anew, but files
that were rewritten for the same columns are used again: only what came in between is left to rewrite. That holds only
while the fence value in their names is the table's: once it has moved on, a session may take them for left behind.
"""

from collections.abc import Sequence
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate, TableRequirement, TableUpdate

from connector.encoding.rewriting import Rewrite, Rewriting, SourceFile, TargetColumn
from connector.evolution.altered_schema import ConvertedColumn, alter_schema, find_converted_columns
from connector.evolution.table_change import Alteration, Owner
from connector.host.refresh import Refreshed
from connector.iceberg.commits import fence, late_files
from connector.iceberg.commits.file_names import file_prefix
from connector.iceberg.commits.replacement import Replacement
from connector.iceberg.commits.snapshot import SUMMARY_MATERIALIZATION, SnapshotWriter
from connector.iceberg.metadata.live_files import files_with_values
from connector.iceberg.metadata.table_updates import (
    assign_schema_id,
    new_schema,
    new_snapshot,
    same_rows,
    same_schema,
    same_table,
)
from connector.model.properties import Properties
from connector.model.state import DataFile, WriterId
from connector.storage import storage_errors
from connector.storage.file_access import access_to
from protocol.flow import WHOLE_RANGE

SUMMARY_CONVERTED: Final = "flow.converted-columns"


class Alterer:
    """Alters one table. What one attempt has rewritten serves the next ones."""

    def __init__(self, owner: Owner, rewrite: Rewrite) -> None:
        self._owner = owner
        self._rewrite = rewrite
        self._rewritten: dict[tuple[Rewriting, SourceFile], tuple[DataFile, ...] | None] = {}

    def alter(self, catalog: Catalog, table: Table, changes: Sequence[Alteration]) -> None:
        """Make all changes in one commit, if the table is still what they were planned on.

        UnconvertibleError where a value of a column that is to be converted has no equivalent.
        """
        schema = assign_schema_id(table, alter_schema(table.schema(), changes, table.metadata.last_column_id))
        requirements: tuple[TableRequirement, ...] = (same_table(table), *same_schema(table))
        updates: tuple[TableUpdate, ...] = new_schema(table, schema)
        if converted := find_converted_columns(table.schema(), changes, table.metadata.last_column_id):
            requirements += (same_rows(table),)
            updates += self._new_files(catalog, table, schema, converted)
            updates += (SetPropertiesUpdate(updates=late_files.record_conversions(converted)),)
        catalog.commit_table(table, requirements, updates)

    def _new_files(
        self, catalog: Catalog, table: Table, schema: Schema, converted: Sequence[ConvertedColumn]
    ) -> tuple[TableUpdate, ...]:
        prefix = _file_prefix(table, self._owner)
        rewriting = Rewriting.of_table(table, _target_columns(schema, converted), prefix)
        with storage_errors.translate_errors(table.location()):
            live = files_with_values(table, {column.old.field_id for column in converted})
        if missing := [file.source for file in live if (rewriting, file.source) not in self._rewritten]:
            written = self._rewrite(rewriting, missing, _access(catalog, table))
            self._rewritten.update(
                ((rewriting, source), of_source) for source, of_source in zip(missing, written, strict=True)
            )
            # The rewriting may have outlasted the keys that the table was loaded with, and another writer's patience.
            table = _load_unchanged(catalog, table)
        replacements = [
            Replacement(file.entry, files)
            for file in live
            if (files := self._rewritten[rewriting, file.source]) is not None
        ]
        if not replacements:
            return ()
        summary = {
            SUMMARY_MATERIALIZATION: self._owner.materialization,
            SUMMARY_CONVERTED: ", ".join(
                f"{column.new.name}: {column.old.field_type} to {column.new.field_type}" for column in converted
            ),
        }
        with storage_errors.translate_errors(table.location()):
            return new_snapshot(table, SnapshotWriter().replace(table, prefix, replacements, schema.schema_id, summary))


def _access(catalog: Catalog, table: Table) -> Refreshed[Properties]:
    name = table.name()
    what = f"the keys for the files of table {'.'.join(name)}"
    return Refreshed(what, lambda: access_to(catalog.load_table(name)), access_to(table))


def _load_unchanged(catalog: Catalog, table: Table) -> Table:
    """The table, loaded again; CommitFailedException if it has changed."""
    loaded = catalog.load_table(table.name())
    if loaded.metadata_location != table.metadata_location:
        raise CommitFailedException("the table was changed while its files were written again")
    return loaded


def _target_columns(schema: Schema, converted: Sequence[ConvertedColumn]) -> tuple[TargetColumn, ...]:
    """The columns of the new files; the old files hold nothing of columns that are new."""
    sources = {column.new.field_id: column.old for column in converted}
    return tuple(TargetColumn.of(column, sources.get(column.field_id, column)) for column in schema.fields)


def _file_prefix(table: Table, owner: Owner) -> str:
    """Names the files after one of the owner's writers, preferably one that is not closed: its next commit lets a
    session judge whether the files were left behind."""
    whole = WriterId(owner.materialization, owner.state_key, WHOLE_RANGE.key_range)
    ranges = {
        name.rpartition(".")[2]: value.startswith(fence.CLOSED)
        for name, value in table.properties.items()
        if name.startswith(f"{fence.PREFIX}{fence.writer_hash(whole)}.")
    }
    key_range = min(ranges, key=lambda each: (ranges[each], each), default=whole.key_range)
    writer = WriterId(owner.materialization, owner.state_key, key_range)
    return file_prefix(writer, str(table.metadata.table_uuid), fence.read_value(table.properties, writer))
