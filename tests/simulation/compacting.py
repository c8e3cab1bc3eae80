"""Compaction without Spark and without Parquet: the shipped plan and commit, in files that hold rows' names."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pytest

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.rewriting.file_groups import CompactedGroup, Compaction, FileGroup
from connector.iceberg.commits import compaction_changes, compaction_commit
from connector.iceberg.maintenance import compaction_plan, remove_task_orphans
from connector.model.state import DataFile
from connector.storage.storage_errors import translate_errors
from simulation.actors import Actor

MAX_AGE: Final = 100_000  # milliseconds
SKEW: Final = 7_200_000  # milliseconds between the clocks of two processes
LONG: Final = 9_000.0  # seconds, after which files of a compaction may be orphans
WAITS: Final = (0.0, 0.0, 1.0, 20.0, LONG + 100)  # seconds, before new files are committed
# Everything is merged, and a file is rewritten for one deleted row.
EAGER: Final = {"flow.compaction.min-input-files": "2", "flow.compaction.delete-ratio-threshold": "0.01"}


def compact(
    wait_for_commit: Callable[[Actor], None], compaction: Compaction, groups: Iterable[FileGroup], _: Any
) -> Iterator[CompactedGroup]:
    """Stands for Spark's tasks. A group makes one file or two. `wait_for_commit` waits until somebody has
    committed."""
    actor = Actor.present
    assert actor
    for group in groups:
        rows: list[str] = []
        kept = []
        for source in group.sources:
            live = _read(actor, source.path, find_deleted_rows(actor.store, source.path, source.position_deletes))
            rows += live
            kept.append(len(live))
        cut = actor.stage.random.choice((0, 0, len(rows) // 2))
        files = [_write(actor, compaction, part) for part in (rows[:cut], rows[cut:]) if part]
        yield CompactedGroup(group, tuple(files), tuple(kept))
    if actor.stage.chance(0.5):
        wait_for_commit(actor)
    else:
        actor.sleep(actor.stage.random.choice(WAITS))


def _read(actor: Actor, path: str, deleted: Any) -> list[str]:
    with translate_errors(path), actor.store.new_input(path).open() as stream:
        names = stream.read().decode().split()
    return [names[position] for position in np.setdiff1d(np.arange(len(names)), deleted)]


def _write(actor: Actor, compaction: Compaction, rows: Sequence[str]) -> DataFile:
    location = f"{compaction.location}/data/{compaction.file_prefix}-{actor.stage.uuid()}.parquet"
    content = "\n".join(rows).encode()
    with translate_errors(location), actor.store.new_output(location).create() as file:
        file.write(content)
    return DataFile(location, len(rows), len(content), (4,), ())


def compact_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction_plan, "GROWTH", 1)
    patch.setattr(compaction_changes, "_MOST_LOST", 1)
    patch.setattr(compaction_commit, "MAX_AGE", MAX_AGE)
    patch.setattr(remove_task_orphans, "COMPACTION_AGE", MAX_AGE + SKEW)


def end_after(seconds: float, actor: Actor) -> Callable[[Actor], None]:
    """What kills another process, wherever it is."""

    def kill(killer: Actor) -> None:
        killer.sleep(seconds)
        actor.kill()

    return kill
