"""Deletes the orphan files of a task, for a session, which knows its task's connector state: files of killed processes
and Spark tasks, and of commits that were refused.

The name of each file shows its writer, its table, and the fence value on which it was staged (`FileOrigin`). A
transaction can be committed only while the table's property has this value, and the property never has the same value
twice. So when the property has passed the value of a file, there are two cases: the file was committed, and a snapshot
refers to it; or it can never be committed, because a process that still needs it is fenced. The same is true for the
manifests of a commit: their names show the value that the commit asserts. The process that deletes files may itself
have been replaced. The argument still holds, because the ordinal numbers of fence values only grow.

The files of compactions have no fence value. Their names show when they were begun, at the earliest when the snapshot
was made that they were begun from. A compaction sends no commit if the current snapshot is more than MAX_AGE younger
than its files, and its commit asserts the main branch that it has loaded. So once the current snapshot is younger than
a file by more than that, there are the same two cases, whatever the clocks of machines show. It must be much younger,
because an operator or another engine may have rolled the table back to an older snapshot. And by this machine's clock,
the file must be old too: a clock that was days ahead may have dated the snapshot.

Files of dropped tables, for example after a backfill, are not deleted: other tables or programs may refer to them.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from posixpath import basename
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider

from connector.host import facts
from connector.host.facts import REMOVE_ORPHAN_FILES, MaintainedFiles
from connector.host.logs import Event, fields
from connector.iceberg.commits import fence, passed_values
from connector.iceberg.commits.compaction_commit import MAX_AGE
from connector.iceberg.commits.file_names import CompactionOrigin, FileOrigin
from connector.iceberg.metadata.references import find_unreferenced
from connector.iceberg.metadata.stored_files import delete_all, files_under
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

COMPACTION_AGE: Final = 24 * MAX_AGE  # milliseconds


def remove_task_orphans(
    catalog: Catalog,
    path: TableIdentifier,
    writer: WriterId,
    staged: Collection[StagedCommit],
    is_interrupted: Callable[[], bool] = lambda: False,
) -> int:
    """Delete the orphan files of one table, and return their number. `writer` is the one that the session acts as."""
    listed = list(_list_files(catalog.load_table(path)))
    # Load the table after the files were listed. Only a reset by an operator moves a fence back. Files that were staged
    # after a reset must not be compared with the value before it.
    table = catalog.load_table(path)
    is_void = _make_condition(table, writer, staged)
    by_name = {basename(location): location for location in listed}
    locations = {name: location for name, location in by_name.items() if is_void_file(table, name, is_void)}
    orphans = find_unreferenced(table, locations, is_interrupted)
    delete_all(table.io, [locations[name] for name in orphans], is_interrupted)
    if orphans:
        of_table = str(path)
        if facts.observe:
            facts.observe(MaintainedFiles(of_table, REMOVE_ORPHAN_FILES, len(orphans)))
        log.info(
            "table %s: deleted %d orphan file(s) of earlier sessions",
            of_table,
            len(orphans),
            extra=fields(Event.COLLECTED, table=of_table, files=len(orphans)),
        )
    return len(orphans)


def is_void_file(table: Table, name: str, is_void: Callable[[FileOrigin], bool]) -> bool:
    """Whether a file of this name can never be committed: a compaction's that is too old, or a transaction's for which
    `is_void` says so."""
    origin = FileOrigin.of(name)
    return _is_of_late_compaction(table, name) or (origin is not None and is_void(origin))


def _is_of_late_compaction(table: Table, name: str) -> bool:
    origin, snapshot = CompactionOrigin.of(name), table.current_snapshot()
    return (
        origin is not None
        and snapshot is not None
        and origin.table_uuid == str(table.metadata.table_uuid)
        and min(snapshot.timestamp_ms, time.time_ns() // 1_000_000) > origin.created_ms + COMPACTION_AGE
    )


def _make_condition(table: Table, writer: WriterId, staged: Collection[StagedCommit]) -> Callable[[FileOrigin], bool]:
    """Return a function that tells whether a file is the writer's, and can no longer be committed."""
    begin, end = writer.key_range.split("-")  # this session deletes the files of ranges that begin here
    # A recovery may still commit files of a closed value, but only files of commits that the state names.
    in_state = {FileOrigin.of(basename(location)) for commit in staged for location in commit.locations}

    generation = find_generation(table, writer.materialization)

    def is_passed(origin: FileOrigin) -> bool:
        value = table.properties.get(origin.property_name)
        # Without a value, the first transaction of the writer may still be committed.
        return value is not None and passed_values.is_passed(origin.prev, value)

    def is_void(origin: FileOrigin) -> bool:
        is_former = origin.table_uuid in generation.former  # nothing from before a backfill can be committed any more
        return (
            (is_former or (origin.table_uuid == generation.uuid and is_passed(origin)))
            and origin.writer_hash.startswith(fence.materialization_hash(writer.materialization))
            and begin <= origin.key_range.split("-")[0] <= end
            and origin not in in_state
        )

    return is_void


def _list_files(table: Table) -> Iterator[str]:
    """Yield the locations of all files in the table's directories."""
    provider = load_location_provider(table.location(), table.properties)
    for directory in sorted({provider.data_path, provider.metadata_path}):
        yield from files_under(table.io, directory)
