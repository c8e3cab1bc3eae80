"""The files that only expired snapshots have referred to."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from connector.iceberg.metadata.avro_files import read_manifest_list
from connector.iceberg.metadata.references import SessionEndedError, file_name, find_unreferenced


def find_unreachable(
    before: TableMetadata, table: Table, is_interrupted: Callable[[], bool] = lambda: False
) -> list[str]:
    """The locations of the files to which a snapshot of `before` refers and none of the table's, as it is now.

    Only what is in the table's own directories: what was added from elsewhere may be in another table too.
    """
    remaining = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    expired = [snapshot for snapshot in before.snapshots if snapshot.snapshot_id not in remaining]
    manifests = {file_name(manifest.manifest_path): manifest for manifest in _manifests(table, expired, is_interrupted)}
    metadata = {file_name(snapshot.manifest_list): snapshot.manifest_list for snapshot in expired}
    metadata |= {name: manifest.manifest_path for name, manifest in manifests.items()}
    free = find_unreferenced(table, metadata, is_interrupted)
    locations = [metadata[name] for name in free]
    if _may_have_dropped_data(before, expired):
        locations += _data(table, [manifests[name] for name in free & manifests.keys()], is_interrupted)
    return [location for location in locations if _is_own(table, location)]


def _manifests(
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
