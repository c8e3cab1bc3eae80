"""Compaction without Spark and without Parquet: the shipped plan and commit, in files that hold rows' names."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting import row_order
from connector.encoding.rewriting.file_groups import CompactedGroup, FileGroup
from connector.encoding.rewriting.row_order import RowOrderWriter
from connector.encoding.runs.partition_values import PartitionKey
from connector.iceberg.commits import compaction_commit
from connector.iceberg.maintenance import compaction_plan, void_files
from connector.model.state import DataFile
from connector.storage.storage_errors import translate_errors
from simulation.actors import Actor
from simulation.partitions import encoded, partition_of
from support import private_connector

MAX_AGE: Final = 100_000  # milliseconds
SKEW: Final = 7_200_000  # milliseconds between the clocks of two processes
LONG: Final = 9_000.0  # seconds, after which files of a compaction may be orphans
WAITS: Final = (0.0, 0.0, 1.0, 20.0, LONG + 100)  # seconds, before new files are committed
# Everything is merged, and a file is rewritten for one deleted row.
EAGER: Final = {"flow.compaction.min-input-files": "2", "flow.compaction.delete-ratio-threshold": "0.01"}


class _Row(NamedTuple):
    """A live row of a source."""

    name: str
    source: int  # its place in the group
    position: int


def compact(
    wait_for_commit: Callable[[Actor], None], target: TargetFiles, groups: Iterable[FileGroup], _: Any
) -> Generator[CompactedGroup, None, None]:
    """Stands for Spark's tasks. A group makes one file or two, or one for each partition that its rows move to.
    `wait_for_commit` waits until somebody has committed."""
    actor = Actor.present
    assert actor
    for group in groups:
        rows: list[_Row] = []
        kept = []
        for place, source in enumerate(group.sources):
            deleted = find_deleted_rows(actor.store, source.path, source.position_deletes)
            live = list(_read(actor, place, source.path, deleted))
            rows += live
            kept.append(len(live))
        if target.arrangement.partition:
            files, order = _divide(actor, target, rows)
        else:
            cut = actor.stage.random.choice((0, 0, len(rows) // 2))
            files, order = [_write(actor, target, part) for part in (rows[:cut], rows[cut:]) if part], None
        yield CompactedGroup(group, tuple(files), tuple(kept), order)
    if actor.stage.chance(0.5):
        wait_for_commit(actor)
    else:
        actor.sleep(actor.stage.random.choice(WAITS))


def _read(actor: Actor, source: int, path: str, deleted: Any) -> Iterator[_Row]:
    with translate_errors(path), actor.store.new_input(path).open() as stream:
        names = stream.read().decode().split()
    for position in np.setdiff1d(np.arange(len(names)), deleted):
        yield _Row(names[position], source, int(position))


def _divide(actor: Actor, target: TargetFiles, rows: Iterable[_Row]) -> tuple[list[DataFile], str]:
    """Write a file for each partition, and the order of the rows."""
    by_partition: dict[PartitionKey, list[_Row]] = {}
    for row in rows:
        partition = encoded(target.arrangement.spec_id, partition_of(row.name))
        by_partition.setdefault(partition, []).append(row)
    new = target.destination
    location = f"{new.location}/metadata/{new.prefix}-{actor.stage.uuid()}{row_order.SUFFIX}"
    order = RowOrderWriter(actor.store, location)
    files = []
    for partition, its in by_partition.items():
        files.append(_write(actor, target, its, partition))
        sources, positions = [row.source for row in its], [row.position for row in its]
        order.write(pa.array(sources, pa.int32()), pa.array(positions, pa.int64()))
    return files, order.finish()


def _write(actor: Actor, target: TargetFiles, rows: Sequence[_Row], partition: PartitionKey = ()) -> DataFile:
    new = target.destination
    location = f"{new.location}/data/{new.prefix}-{actor.stage.uuid()}.parquet"
    content = "\n".join(row.name for row in rows).encode()
    with translate_errors(location), actor.store.new_output(location).create() as file:
        file.write(content)
    return DataFile(location, len(rows), len(content), (4,), (), partition)


def compact_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction_plan, "GROWTH", 1)
    patch.setattr(*private_connector.MOST_ROWS_LOST, 1)
    patch.setattr(compaction_commit, "MAX_AGE", MAX_AGE)
    patch.setattr(void_files, "COMPACTION_AGE", MAX_AGE + SKEW)


def end_after(seconds: float, actor: Actor) -> Callable[[Actor], None]:
    """What kills another process, wherever it is."""

    def kill(killer: Actor) -> None:
        killer.sleep(seconds)
        actor.kill()

    return kill
