"""Which files a table's snapshots refer to, read no further than the question asks."""

from collections.abc import Callable, Iterable, Iterator

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

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
