"""Which files a table's snapshots refer to, read no further than the question asks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from connector.iceberg.metadata.avro_files import read_manifest_list


class SessionEndedError(Exception):
    """Nobody wants to know any more."""


def _never() -> bool:
    return False


def _is_parquet(name: str) -> bool:
    return name.endswith(".parquet")


def find_unreferenced(
    table: Table,
    names: Iterable[str],
    is_interrupted: Callable[[], bool] = _never,
    is_data: Callable[[str], bool] = _is_parquet,
) -> set[str]:
    """The names to which none of the table's snapshots refers, neither as data nor as metadata.

    Names are compared without their directories: those of our files are unique, and a location has several spellings.
    """
    wanted = frozenset(names)
    while True:
        try:
            return _find_unreferenced(table, wanted, is_interrupted, is_data)
        except FileNotFoundError:
            # A snapshot that has expired meanwhile loses its files, and its say. Another table of the same name never
            # had one: what the old one refers to may be live under another name.
            newer = table.catalog.load_table(table.name())
            if newer.metadata.table_uuid != table.metadata.table_uuid or _snapshot_ids(table) <= _snapshot_ids(newer):
                raise
            table = newer


def _find_unreferenced(
    table: Table, names: frozenset[str], is_interrupted: Callable[[], bool], is_data: Callable[[str], bool]
) -> set[str]:
    rest = set(names).difference(file_name(snapshot.manifest_list) for snapshot in table.metadata.snapshots)
    manifests = _manifests(table, is_interrupted)
    while rest and (manifest := next(manifests, None)):
        rest.discard(file_name(manifest.manifest_path))
        if any(map(is_data, rest)):
            rest.difference_update(
                file_name(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io)
            )
    return rest


def file_name(location: str) -> str:
    return location.rpartition("/")[2]


def _manifests(table: Table, is_interrupted: Callable[[], bool]) -> Iterator[ManifestFile]:
    """Each once, those of the newest snapshot first: it refers to most of what is looked for."""
    read = set()
    for snapshot in sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0, reverse=True):
        for manifest in read_manifest_list(table.io.new_input(snapshot.manifest_list)):
            if is_interrupted():
                raise SessionEndedError
            if manifest.manifest_path not in read:
                read.add(manifest.manifest_path)
                yield manifest


def _snapshot_ids(table: Table) -> set[int]:
    return {snapshot.snapshot_id for snapshot in table.metadata.snapshots}


def find_unreachable(
    before: TableMetadata, table: Table, is_interrupted: Callable[[], bool] = lambda: False
) -> list[str]:
    """The locations of the files to which a snapshot of `before` refers and none of the table's, as it is now.

    Only what is in the table's own directories: what was added from elsewhere may be in another table too.
    """
    remaining = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    expired = [snapshot for snapshot in before.snapshots if snapshot.snapshot_id not in remaining]
    manifests = {
        file_name(manifest.manifest_path): manifest for manifest in _manifests_of(table, expired, is_interrupted)
    }
    metadata = {file_name(snapshot.manifest_list): snapshot.manifest_list for snapshot in expired}
    metadata |= {name: manifest.manifest_path for name, manifest in manifests.items()}
    free = find_unreferenced(table, metadata, is_interrupted)
    locations = [metadata[name] for name in free]
    if _may_have_dropped_data(before, expired):
        locations += _data(table, [manifests[name] for name in free & manifests.keys()], is_interrupted)
    return [location for location in locations if _is_own(table, location)]


def _manifests_of(
    table: Table, snapshots: Iterable[Snapshot], is_interrupted: Callable[[], bool]
) -> Iterable[ManifestFile]:
    for snapshot in snapshots:
        if is_interrupted():
            raise SessionEndedError
        with suppress(FileNotFoundError):  # somebody else has expired the very same snapshot
            yield from read_manifest_list(table.io.new_input(snapshot.manifest_list))


def _may_have_dropped_data(before: TableMetadata, expired: Sequence[Snapshot]) -> bool:
    """Whether a data file may have been in an expired snapshot, and be in none of those that followed it: whoever only
    appends drops none. To find out takes reading every manifest."""
    main = {snapshot.snapshot_id for snapshot in ancestors_of(before.current_snapshot(), before)}
    return any(snapshot.snapshot_id not in main for snapshot in expired) or any(
        snapshot.summary is None or snapshot.summary.operation != Operation.APPEND for snapshot in before.snapshots
    )


def _data(table: Table, manifests: Iterable[ManifestFile], is_interrupted: Callable[[], bool]) -> list[str]:
    """The files that these manifests list and none that the table has."""
    locations = {}
    for manifest in manifests:
        if is_interrupted():
            raise SessionEndedError
        with suppress(FileNotFoundError):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                locations[file_name(entry.data_file.file_path)] = entry.data_file.file_path
    free = find_unreferenced(table, locations, is_interrupted, is_data=lambda _: True)
    return [locations[name] for name in free]


def _is_own(table: Table, location: str) -> bool:
    provider = load_location_provider(table.location(), table.properties)
    directories = (table.location(), provider.data_path, provider.metadata_path)
    return location.startswith(tuple(f"{directory.rstrip('/')}/" for directory in directories))
