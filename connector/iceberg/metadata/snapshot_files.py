"""Finds the files to which a table's snapshots refer, and those to which only expired snapshots referred.

Manifests are read only as far as the answer needs them, a few at the same time: a long history has thousands.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from posixpath import basename
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from connector.encoding.search import located_rows
from connector.host.groups import divide
from connector.host.interruption import NEVER, Interruption
from connector.host.threads import map_in_threads
from connector.iceberg.metadata.manifests import manifests_of, read_all_entries, read_entries
from connector.iceberg.metadata.table_directories import keep_own

# What is read at the same time: small files, each of which waits for the store most of the time. With more of them, or
# larger ones, a session's other threads would wait for the interpreter.
_FILES: Final = 4
_SIZE: Final = 1 << 20  # bytes of manifests


def _is_listed(name: str) -> bool:
    """Whether a manifest may list our file of this name: a data file or a delete file, but not located rows."""
    return name.endswith((".parquet", ".puffin")) and not name.endswith(located_rows.SUFFIX)


def find_unreferenced(
    table: Table,
    names: Iterable[str],
    interruption: Interruption = NEVER,
    is_data: Callable[[str], bool] = _is_listed,
) -> set[str]:
    """Return the file names to which no snapshot of the table refers, neither as data nor as metadata.

    Only names with `is_data` are looked for in manifests. Names are compared without their directories: the names of
    our files are unique, and a location has several spellings. InterruptedMaintenanceError if interrupted.
    """
    wanted = frozenset(names)
    while True:
        try:
            return _find_unreferenced(table, wanted, interruption, is_data)
        except FileNotFoundError:
            # A snapshot that has expired meanwhile has lost its files, and does not count any more. But another table
            # of the same name does not count either: files of the old one may be live under another name.
            newer = table.catalog.load_table(table.name())
            if newer.metadata.table_uuid != table.metadata.table_uuid or list_snapshot_ids(
                table.metadata
            ) <= list_snapshot_ids(newer.metadata):
                raise
            table = newer


def _find_unreferenced(
    table: Table, names: frozenset[str], interruption: Interruption, is_data: Callable[[str], bool]
) -> set[str]:
    rest = set(names).difference(basename(snapshot.manifest_list) for snapshot in table.metadata.snapshots)
    parts = divide(_manifests(table, interruption), _SIZE, _weigh)

    def find(manifest: ManifestFile) -> set[str]:
        return rest.intersection(basename(entry.data_file.file_path) for entry in read_entries(table.io, manifest))

    while rest and (part := next(parts, None)):
        interruption.check()
        rest.difference_update(basename(manifest.manifest_path) for manifest in part)
        if any(map(is_data, rest)):
            rest.difference_update(*map_in_threads(find, part, "references"))
    return rest


def _manifests(table: Table, interruption: Interruption) -> Iterator[ManifestFile]:
    """Yield each manifest once; those of the newest snapshot first, since it refers to most of the wanted files."""
    read = set()
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0, reverse=True)
    for first in range(0, len(snapshots), _FILES):
        interruption.check()
        part = snapshots[first : first + _FILES]
        for manifest in chain.from_iterable(map_in_threads(partial(manifests_of, table), part, "references")):
            if manifest.manifest_path not in read:
                read.add(manifest.manifest_path)
                yield manifest


def find_free(table: Table, names: Iterable[str], interruption: Interruption) -> set[str]:
    """Return the file names to which neither a snapshot nor the table's metadata refers, whatever files they are."""
    named = set(_list_metadata(table))
    return find_unreferenced(table, set(names) - named, interruption, is_data=lambda _: True)


def _list_metadata(table: Table) -> Iterator[str]:
    """Yield the names of the files that the metadata itself refers to."""
    metadata = table.metadata
    yield basename(table.metadata_location)
    yield from (basename(entry.metadata_file) for entry in metadata.metadata_log)
    yield from (basename(file.statistics_path) for file in (*metadata.statistics, *metadata.partition_statistics))


def _weigh(manifest: ManifestFile) -> int:
    return max(int(manifest.manifest_length), _SIZE // _FILES)


def list_snapshot_ids(metadata: TableMetadata) -> set[int]:
    """Return the ids of all snapshots that the table has."""
    return {snapshot.snapshot_id for snapshot in metadata.snapshots}


def find_unreachable(before: TableMetadata, table: Table, interruption: Interruption) -> list[str]:
    """Return the locations of files to which a snapshot of `before` refers, but no snapshot of the table as it is now.

    Only files in the table's own directories: a file elsewhere may belong to another table, too.
    InterruptedMaintenanceError if interrupted.
    """
    remaining = list_snapshot_ids(table.metadata)
    expired = [snapshot for snapshot in before.snapshots if snapshot.snapshot_id not in remaining]
    manifests = {basename(manifest.manifest_path): manifest for manifest in _manifests_of(table, expired, interruption)}
    metadata = {basename(snapshot.manifest_list): snapshot.manifest_list for snapshot in expired}
    metadata |= {name: manifest.manifest_path for name, manifest in manifests.items()}
    free = find_unreferenced(table, metadata, interruption)
    locations = [location for name, location in metadata.items() if name in free]
    if _may_have_dropped_data(before, expired):
        locations += _data(table, [manifest for name, manifest in manifests.items() if name in free], interruption)
    locations += _find_statistics(before, table.metadata)
    return keep_own(table, locations)


def _find_statistics(before: TableMetadata, after: TableMetadata) -> set[str]:
    """Return the statistics files that only the removed snapshots had."""
    named, kept = (
        {file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics)}
        for metadata in (before, after)
    )
    return named - kept


def _manifests_of(table: Table, snapshots: Iterable[Snapshot], interruption: Interruption) -> Iterable[ManifestFile]:
    for snapshot in snapshots:
        interruption.check()
        with suppress(FileNotFoundError):  # another process has expired the same snapshot
            yield from manifests_of(table, snapshot)


def _may_have_dropped_data(before: TableMetadata, expired: Sequence[Snapshot]) -> bool:
    """Whether a data file of an expired snapshot may be in none of the later ones. Appends alone drop no data file.

    To know it exactly, every manifest would have to be read.
    """
    main = {snapshot.snapshot_id for snapshot in ancestors_of(before.current_snapshot(), before)}
    return any(snapshot.snapshot_id not in main for snapshot in expired) or any(
        snapshot.summary is None or snapshot.summary.operation != Operation.APPEND for snapshot in before.snapshots
    )


def _data(table: Table, manifests: Iterable[ManifestFile], interruption: Interruption) -> list[str]:
    """Return the files that these manifests list, but no manifest of the table."""
    locations = {}
    for manifest in manifests:
        interruption.check()
        with suppress(FileNotFoundError):
            for entry in read_all_entries(table.io, manifest):
                locations[basename(entry.data_file.file_path)] = entry.data_file.file_path
    free = find_unreferenced(table, locations, interruption, is_data=lambda _: True)
    return [locations[name] for name in free]
