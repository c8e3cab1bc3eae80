"""Deletes the files that our transactions have left behind: of killed processes and tasks, and of commits that lost a race.

The name of every file of ours says which lineage wrote it, for which table, and on which fence value (`FileOrigin`).
A transaction lands only while the property has the value that it was staged on, and no value ever comes back. So a
file whose value the property has passed has landed, and a snapshot refers to it, or it never will: a process that still
believes in it is fenced. The manifests of a commit bear the value that it asserts, so that they are no exception. All
that holds however stale the collecting process is: properties and positions only move on.

Files of tables that were dropped, by a backfill for instance, are left alone: something else may refer to them.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from pyarrow.fs import FileSelector, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider

from connector.iceberg import fence
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.file_names import FileOrigin
from connector.iceberg.references import SessionEndedError, file_name, unreferenced
from connector.parallel import side_by_side
from connector.state import Lineage, StagedCommit
from connector.table_change import Path

log = logging.getLogger(__name__)

DELETIONS_AT_ONCE: Final = 8


@contextmanager
def collecting(catalog: Catalog, tables: Sequence[BoundTable], staged: Sequence[StagedCommit]) -> Iterator[None]:
    """Collect in the background, table after table, until the session ends. `staged` is all that its state named."""
    ended = threading.Event()
    targets = [(table.binding.path, table.lineage) for table in tables]
    # A daemon, which nobody waits for: what it leaves undone the next session does.
    threading.Thread(target=_collect_all, args=(catalog, targets, staged, ended), name="orphans", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _collect_all(
    catalog: Catalog, targets: Sequence[tuple[Path, Lineage]], staged: Sequence[StagedCommit], ended: threading.Event
) -> None:
    for path, lineage in targets:
        try:
            collect(catalog, path, lineage, staged, ended.is_set)
        except SessionEndedError:
            return
        except Exception as error:
            if not ended.is_set():
                log.warning(
                    "table %s: the files that earlier sessions left behind stay until the next one: %s: %s",
                    ".".join(path),
                    type(error).__name__,
                    error,
                )


def collect(
    catalog: Catalog,
    path: Path,
    lineage: Lineage,
    staged: Collection[StagedCommit],
    is_interrupted: Callable[[], bool] = lambda: False,
) -> int:
    """Delete what is left behind in one table, and say how many files that were. `lineage` is the caller's own."""
    listed = list(_listed(catalog.load_table(path)))
    # Loaded after the files were listed: only an operator's reset takes a fence back, and what was staged after one must
    # not be judged by the value before it.
    table = catalog.load_table(path)
    is_left_behind = _condition(table, lineage, staged)
    locations = {
        name: location
        for location in listed
        if (origin := FileOrigin.of(name := file_name(location))) and is_left_behind(origin)
    }
    orphans = unreferenced(table, locations, table.metadata.snapshots, is_interrupted)

    def delete(name: str) -> None:
        if is_interrupted():
            raise SessionEndedError
        with suppress(FileNotFoundError):
            table.io.delete(locations[name])

    side_by_side(delete, sorted(orphans), DELETIONS_AT_ONCE, "orphans")
    if orphans:
        log.info("table %s: deleted %d file(s) that earlier sessions left behind", ".".join(path), len(orphans))
    return len(orphans)


def _condition(table: Table, lineage: Lineage, staged: Collection[StagedCommit]) -> Callable[[FileOrigin], bool]:
    """Whether a file is ours, and of a transaction that is over."""
    begin, end = lineage.key_range.split("-")  # what begins here is ours to collect: of a split range, one child's
    # A recovery may build on a closed value, but only with an entry that the state names: with its files, of course.
    in_state = {FileOrigin.of(file_name(location)) for commit in staged for location in commit.locations}

    def is_left_behind(origin: FileOrigin) -> bool:
        value = table.properties.get(origin.property_name)
        return (
            # Without a value the lineage's first transaction is still to come.
            value is not None
            and origin.table_uuid == str(table.metadata.table_uuid)
            and origin.lineage_hash.startswith(fence.materialization_hash(lineage))
            and begin <= origin.key_range.split("-")[0] <= end
            and origin.prev != value
            # A later value is still to come: a table that refuses its commits has several of them waiting.
            and fence.position(origin.prev) <= fence.position(value)
            and origin not in in_state
        )

    return is_left_behind


def _listed(table: Table) -> Iterator[str]:
    """The locations of all files in the table's directories."""
    provider = load_location_provider(table.location(), table.properties)
    for directory in {provider.data_path, provider.metadata_path}:
        yield from _files_under(table.io, directory)


def _files_under(io: FileIO, directory: str) -> Iterator[str]:
    assert isinstance(io, PyArrowFileIO), "the only one that open_catalog asks for"
    scheme, netloc, root = io.parse_location(directory, io.properties)
    selector = FileSelector(root, recursive=True, allow_not_found=True)
    for file in io.fs_by_scheme(scheme, netloc).get_file_info(selector):
        if file.type == FileType.File:
            yield directory + file.path.removeprefix(root)
