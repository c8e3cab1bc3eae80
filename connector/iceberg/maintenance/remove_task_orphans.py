"""Deletes the orphan files of a task, for a session, which knows its task's connector state: files of killed processes
and Spark tasks, and of commits that were refused.

A file whose fence value the table has passed can never be committed, unless the state names it: see `void_files`. The
process that deletes files may itself have been replaced. The argument still holds, because the ordinal numbers of fence
values only grow.

Files of dropped tables, for example after a backfill, are not deleted: other tables or programs may refer to them.
Neither is any file of a table to whose files something outside may refer: see `may_delete_files`.
"""

import logging
from collections.abc import Collection, Container
from functools import partial
from posixpath import basename
from sys import intern

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from connector.host import facts
from connector.host.facts import REMOVE_ORPHAN_FILES, MaintainedFiles
from connector.host.interruption import NEVER, Interruption
from connector.host.logs import Event, fields
from connector.iceberg.catalogs.table_optimizers import warn_of_deleted_orphans
from connector.iceberg.fences import fence, passed_values
from connector.iceberg.fences.file_names import CompactionOrigin, FileOrigin
from connector.iceberg.maintenance.void_files import VoidFiles
from connector.iceberg.metadata.retention import may_delete_files
from connector.iceberg.metadata.snapshot_files import find_unreferenced
from connector.iceberg.metadata.table_directories import find_file_directories, keep_own
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.stored_files import delete_each, files_under, keep_io_fresh

log = logging.getLogger(__name__)


def remove_task_orphans(
    catalog: Catalog,
    path: TableIdentifier,
    writer: WriterId,
    staged: Collection[StagedCommit],
    interruption: Interruption = NEVER,
) -> int:
    """Delete the orphan files of one table, and return their number. `writer` is the one that the session acts as.

    If some cannot be deleted, raises the first error after the others were deleted. ValueError if the table's property
    gc.enabled is invalid.
    """
    first = catalog.load_table(path)
    warn_of_deleted_orphans(first)
    if not may_delete_files(first):
        return 0
    listed = _list_files(first)
    # Load the table after the files were listed. Only a reset by an operator moves a fence back. Files that were staged
    # after a reset must not be compared with the value before it.
    table = catalog.load_table(path)
    void = VoidFiles(table, writer.materialization, passed_values.is_passed)
    in_state = {FileOrigin.of(basename(location)) for commit in staged for location in commit.locations}
    names = [name for name in listed if void.has(name) and _may_delete(FileOrigin.of(name), writer, in_state)]
    orphans = find_unreferenced(table, names, interruption)
    own = keep_own(first, [f"{listed[name]}/{name}" for name in orphans])
    find_io = keep_io_fresh(path, table, partial(catalog.load_table, path))
    left, failure = delete_each(find_io, sorted(own), interruption)
    if deleted := len(own) - len(left):
        facts.report(MaintainedFiles(str(path), REMOVE_ORPHAN_FILES, deleted))
        log.info(
            "table %s: deleted %d orphan file(s) of earlier sessions",
            path,
            deleted,
            extra=fields(Event.COLLECTED, table=str(path), files=deleted),
        )
    if failure:
        raise failure
    return deleted


def _may_delete(origin: FileOrigin | None, writer: WriterId, in_state: Container[FileOrigin | None]) -> bool:
    """Whether this session deletes a void file: of any compaction, or of its task and a key range that begins in the
    writer's."""
    if origin is None:
        return True
    begin, end = writer.key_range.split("-")
    is_own = origin.writer_hash.startswith(fence.materialization_hash(writer.materialization))
    # A recovery may still commit files of a closed value, but only files of commits that the state names.
    return is_own and begin <= origin.key_range.split("-")[0] <= end and origin not in in_state


def _list_files(table: Table) -> dict[str, str]:
    """Return the names of all files of this connector, and their directories. A table may have very many files, so
    nothing else is kept of each, and nothing of those of others."""
    listed = {}
    for directory in find_file_directories(table):
        for location in files_under(table.io, directory):
            parent, _, name = location.rpartition("/")
            if FileOrigin.of(name) or CompactionOrigin.of(name):
                listed[name] = intern(parent)
    return listed
