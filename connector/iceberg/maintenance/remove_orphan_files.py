"""Deletes the files that our transactions left behind: those of killed processes and tasks, and of commits that lost a
race.

The name of every file of ours says which writer wrote it, for which table, and on which fence value (`FileOrigin`). A
transaction lands only while the property has the value that it was staged on, and no value ever comes back. So once the
property has passed a file's value, the file has landed and a snapshot refers to it, or it never will: a process that
still relies on it is fenced. The same holds for a commit's manifests, which bear the value that it asserts. All this is
true however stale the collecting process is: properties and positions only move on.

Files of tables that were dropped, by a backfill for instance, are left alone: something else may refer to them.
"""

import logging
from collections.abc import Callable, Collection, Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider

from connector.host.logs import Event, fields
from connector.iceberg.commits import fence
from connector.iceberg.commits.file_names import FileOrigin
from connector.iceberg.metadata.references import file_name, find_unreferenced
from connector.iceberg.metadata.stored_files import delete_all, files_under
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)


def remove_orphan_files(
    catalog: Catalog,
    path: TableIdentifier,
    writer: WriterId,
    staged: Collection[StagedCommit],
    is_interrupted: Callable[[], bool] = lambda: False,
) -> int:
    """Delete what is left behind in one table, and return how many files that were. `writer` is the caller's own."""
    listed = list(_list_files(catalog.load_table(path)))
    # Loaded after the files were listed: only an operator's reset moves a fence back, and files that were staged after
    # one must not be judged by the value before it.
    table = catalog.load_table(path)
    is_left_behind = _condition(table, writer, staged)
    locations = {
        name: location
        for location in listed
        if (origin := FileOrigin.of(name := file_name(location))) and is_left_behind(origin)
    }
    orphans = find_unreferenced(table, locations, is_interrupted)
    delete_all(table.io, [locations[name] for name in orphans], is_interrupted)
    if orphans:
        of_table = ".".join(path)
        log.info(
            "table %s: deleted %d file(s) that earlier sessions left behind",
            of_table,
            len(orphans),
            extra=fields(Event.COLLECTED, table=of_table, files=len(orphans)),
        )
    return len(orphans)


def _condition(table: Table, writer: WriterId, staged: Collection[StagedCommit]) -> Callable[[FileOrigin], bool]:
    """Whether a file is ours, and its transaction is over."""
    begin, end = writer.key_range.split("-")  # ranges that begin here are ours to collect
    # A recovery may build on a closed value, but only with entries that the state names, and so with their files.
    in_state = {FileOrigin.of(file_name(location)) for commit in staged for location in commit.locations}

    def is_left_behind(origin: FileOrigin) -> bool:
        value = table.properties.get(origin.property_name)
        return (
            # Without a value, the writer's first transaction is still to come.
            value is not None
            and origin.table_uuid == str(table.metadata.table_uuid)
            and origin.writer_hash.startswith(fence.materialization_hash(writer))
            and begin <= origin.key_range.split("-")[0] <= end
            and fence.is_passed(origin.prev, value)
            and origin not in in_state
        )

    return is_left_behind


def _list_files(table: Table) -> Iterator[str]:
    """The locations of all files in the table's directories."""
    provider = load_location_provider(table.location(), table.properties)
    for directory in {provider.data_path, provider.metadata_path}:
        yield from files_under(table.io, directory)
