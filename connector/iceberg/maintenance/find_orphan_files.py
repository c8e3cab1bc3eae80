"""Finds the orphan files of a table, for `maintain orphans`, which does not know the task's connector state.

Three kinds of files are told apart, because they are proven in different ways:

- Void files: their names show a transaction of this table that can never be committed any more, whatever a state names.
  A running task stages its files on its newest fence value, so they are not among them. The same holds for files of
  compactions that are too old to be committed.
- Files of dropped tables: their names, or their content, show another table that the catalog does not have.
- Unknown files: all others below the table's location that are old enough. Another engine may still write young ones.

A file to which any snapshot refers, the metadata log, or a statistics file, is in none of them. Files are listed before
the table is loaded, so each commit that could refer to a listed void file is in the loaded table.

A table may be one of Delta or Hudi, too, as the managed tables of Databricks' Unity Catalog are. Then the log of this
format is among the files, and may refer to any file that is not void.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from posixpath import basename
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from connector.host.errors import UserError
from connector.host.interruption import NEVER, Interruption
from connector.iceberg.fences import passed_values
from connector.iceberg.maintenance.files_of_dropped_tables import (
    METADATA_SUFFIXES,
    DroppedTables,
    are_older,
    group_by_other_table,
    read_table_uuid,
)
from connector.iceberg.maintenance.void_files import VoidFiles
from connector.iceberg.metadata.old_metadata import find_stale_metadata, must_delete_old_metadata
from connector.iceberg.metadata.retention import GC_ENABLED, is_in_nessie, may_delete_files
from connector.iceberg.metadata.snapshot_files import find_free
from connector.iceberg.metadata.table_directories import find_directories, is_within_table, keep_own
from connector.model.table_identifier import Owner, TableIdentifier
from connector.storage.stored_files import StoredFile, list_stored_files

_FOREIGN_LOG: Final = re.compile(r".*?/(?:_delta_log|\.hoodie)(?=/)", re.DOTALL)  # the directory of Delta's or Hudi's


@dataclass(frozen=True)
class OrphanOptions:
    """Which orphan files are looked for, besides void ones."""

    modified_before: datetime  # younger files are of no dropped table, and not unknown
    dropped_tables: DroppedTables | None = None  # None: their files are only counted
    has_unknown: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether files are looked for that void ones are not among."""
        return self.has_unknown or self.dropped_tables is not None


@dataclass(frozen=True)
class OrphanFiles:
    """The files that nothing refers to, by the proof that there is of it. The deletable ones may be deleted by now."""

    table: Table
    void: Sequence[StoredFile]
    dropped: Sequence[StoredFile]
    unknown: Sequence[StoredFile]
    others: Mapping[str, Sequence[StoredFile]]  # of tables that may exist, by UUID: then no file is unknown
    foreign_log: str = ""  # the directory of another format's log, if there is one: then only void files are deletable
    must_stay: bool = False  # no file was looked for, because something outside may refer to the table's files

    @property
    def deletable(self) -> list[StoredFile]:
        """All files that may be deleted."""
        return [*self.void, *self.dropped, *self.unknown]


def find_orphan_files(
    catalog: Catalog, first: Table, options: OrphanOptions, interruption: Interruption = NEVER
) -> OrphanFiles:
    """Find the orphan files of one table, which is loaded again. InterruptedMaintenanceError if interrupted.

    If all files must stay, UserError if the options ask for more than void ones. ValueError if the table's property
    gc.enabled is invalid.
    """
    path = TableIdentifier.of(first)
    if not may_delete_files(first):
        if options.is_wide:
            raise _explain_kept_files(first)
        return OrphanFiles(first, (), (), (), {}, must_stay=True)
    found = {
        file.location: file for directory in find_directories(first) for file in list_stored_files(first.io, directory)
    }
    listed = [found[location] for location in keep_own(first, found)]
    table = catalog.load_table(path)
    orphans = _remove_referenced(table, listed, interruption)
    void = _find_void(table, orphans)
    rest = [file for file in orphans if file not in void]
    others = group_by_other_table(table, rest, reads_metadata=options.is_wide)
    if logs := [log[0] for location in found if (log := _FOREIGN_LOG.match(location))]:
        return OrphanFiles(table, _sort(void), (), (), others, logs[0])
    uuids = options.dropped_tables.find(others, options.modified_before) if options.dropped_tables else ()
    dropped = [file for uuid in uuids for file in others.pop(uuid)]
    unknown = [file for file in rest if _is_unknown(table, file, options)] if not others else []
    return OrphanFiles(table, _sort(void), _sort(dropped), _sort(unknown), others)


def _explain_kept_files(table: Table) -> UserError:
    kept = "so files of dropped tables and unknown files must stay. Leave --dropped-tables and --older-than out"
    if is_in_nessie(table):
        return UserError(
            f"table {TableIdentifier.of(table)}: other branches, tags and earlier commits of Nessie may need its "
            f"files, {kept}, and use Nessie's own GC tool."
        )
    return UserError(
        f"table {TableIdentifier.of(table)}: its property {GC_ENABLED} is false, {kept}, or change the property."
    )


def _find_void(table: Table, orphans: Sequence[StoredFile]) -> set[StoredFile]:
    owner = Owner.of(table.properties)
    by_name = VoidFiles(table, owner.materialization if owner else "", passed_values.is_void)
    void = {file for file in orphans if by_name.has(basename(file.location))}
    if must_delete_old_metadata(TableIdentifier.of(table), table.catalog, table.properties):
        stale = set(find_stale_metadata(table))
        void.update(file for file in orphans if file.location in stale)
    return void


def _remove_referenced(table: Table, listed: Iterable[StoredFile], interruption: Interruption) -> list[StoredFile]:
    """Return the files to which neither a snapshot nor the metadata refers. Names are compared without directories."""
    by_name: dict[str, list[StoredFile]] = {}
    for file in listed:
        by_name.setdefault(basename(file.location), []).append(file)
    return [file for name in find_free(table, by_name, interruption) for file in by_name[name]]


def _is_unknown(table: Table, file: StoredFile, options: OrphanOptions) -> bool:
    """Whether this is an old file that is neither ours nor metadata of a table."""
    name = basename(file.location)
    is_known = read_table_uuid(name) is not None or name.endswith(METADATA_SUFFIXES)
    is_old = options.has_unknown and not is_known and are_older([file], options.modified_before)
    # Tables may share the directory of their data files, and nothing in it shows the tables of other engines.
    return is_old and is_within_table(table, file.location)


def _sort(files: Iterable[StoredFile]) -> list[StoredFile]:
    return sorted(files, key=lambda file: file.location)
