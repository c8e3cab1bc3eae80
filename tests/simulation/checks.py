"""What must hold when a schedule is over."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.typedef import IcebergBaseModel

from connector.model.state_reader import read_state
from simulation.lake import BrokenPromiseError, Lake, Metadata, Path
from simulation.task import TASK, Row, Task
from simulation.updates import doubled_keys, remaining


def check_exact(lake: Lake, task: Task, foreign_rows: Iterable[Row]) -> None:
    """Every row that the log committed is in its table once, or in that of rejected rows where it is invalid, and no
    other is."""
    every = [*task.rows, *foreign_rows]
    for path in lake.tables:
        found, wanted = lake.rows(path), remaining(_of_table(lake, path, every))
        if found != wanted:
            lost, surplus = sorted((wanted - found).elements()), sorted((found - wanted).elements())
            raise BrokenPromiseError(f"{path[1]}: lost {lost}, doubled or never committed {surplus}")
    uuids = {lake.generation(path, TASK) for path in lake.tables}
    if left := [entry.next for entry in read_state(TASK, task.state) if entry.table_uuid in uuids]:
        raise BrokenPromiseError(f"the state still names {left}")


def check_nothing_doubled(lake: Lake, in_any_log: Iterable[Row]) -> None:
    """Where two runtimes have written to logs of their own, only this can be promised: and that one of them stops."""
    for path in lake.tables:
        if surplus := lake.rows(path) - Counter(_of_table(lake, path, set(in_any_log))):
            raise BrokenPromiseError(f"{path[1]}: doubled or never committed {sorted(surplus.elements())}")


def check_nothing_lost(lake: Lake, task: Task, skipped: set[Row]) -> None:
    """After the operator has helped, every row is in its table but those that he was told of."""
    for path in lake.tables:
        wanted = remaining(_of_table(lake, path, [row for row in task.rows if row not in skipped]))
        if lost := wanted - lake.rows(path):
            raise BrokenPromiseError(f"{path[1]}: lost {sorted(lost.elements())}, although its operator has helped")


def check_readable(lake: Lake) -> None:
    """Other engines can read the table, at every snapshot that it still has."""
    for path, metadata in lake.tables.items():
        for file in lake.referenced_files(path):
            lake.content(file.file_path)
        _check_sequence_numbers(lake, path)
        _check_metadata(path, metadata)


def check_keys(lake: Lake, paths: Iterable[Path]) -> None:
    """No snapshot has two rows of a key."""
    for path in paths:
        for snapshot in lake.table(path).snapshots:
            if doubled := doubled_keys(chain.from_iterable(lake.contents(path, snapshot).values())):
                raise BrokenPromiseError(f"{path[1]}: snapshot {snapshot.snapshot_id} has two rows of {doubled}")


def _of_table(lake: Lake, path: Path, rows: Iterable[Row]) -> list[str]:
    uuid = lake.shown(path)
    return [row[-1] for row in rows if row[:2] == (path, uuid)]


def _check_sequence_numbers(lake: Lake, path: Path) -> None:
    for manifest in lake.manifests(path):
        if manifest.sequence_number != lake.added_at.get(manifest.added_snapshot_id or 0):
            raise BrokenPromiseError(
                f"{path[1]}: a manifest bears another sequence number than the snapshot that added it"
            )
        if any((entry.sequence_number or 0) > manifest.sequence_number for entry in lake.entries([manifest])):
            raise BrokenPromiseError(f"{path[1]}: a file is newer than the snapshot that added it")


def _check_metadata(path: Path, metadata: Metadata) -> None:
    if TableMetadataUtil.parse_raw(IcebergBaseModel.model_dump_json(metadata)) != metadata:
        raise BrokenPromiseError(f"{path[1]}: its metadata is not what its file says")
    times = [entry.timestamp_ms for entry in metadata.snapshot_log]
    if times != sorted(times) or (times and metadata.last_updated_ms < times[-1]):
        raise BrokenPromiseError(f"{path[1]}: its times go back")
