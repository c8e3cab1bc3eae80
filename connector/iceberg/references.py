"""Which files a table's snapshots refer to, read no further than the question asks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot


class SessionEndedError(Exception):
    """Nobody wants to know any more."""


def unreferenced(
    table: Table,
    names: Iterable[str],
    snapshots: Sequence[Snapshot],
    is_interrupted: Callable[[], bool] = lambda: False,
) -> set[str]:
    """The names to which none of these snapshots refers, neither as data nor as metadata.

    Names are compared without their directories: those of our files are unique, and a location has several spellings.
    """
    rest = set(names).difference(file_name(snapshot.manifest_list) for snapshot in snapshots)
    manifests = _manifests(table.io, snapshots)
    while rest and (manifest := next(manifests, None)):
        if is_interrupted():
            raise SessionEndedError
        rest.discard(file_name(manifest.manifest_path))
        if any(name.endswith(".parquet") for name in rest):
            rest.difference_update(
                file_name(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io)
            )
    return rest


def file_name(location: str) -> str:
    return PurePosixPath(location).name


def _manifests(io: FileIO, snapshots: Sequence[Snapshot]) -> Iterator[ManifestFile]:
    """Each once, those of the newest snapshot first: it refers to most of what is looked for."""
    read = set()
    for snapshot in sorted(snapshots, key=lambda snapshot: snapshot.sequence_number or 0, reverse=True):
        for manifest in read_manifest_list(io.new_input(snapshot.manifest_list)):
            if manifest.manifest_path not in read:
                read.add(manifest.manifest_path)
                yield manifest
