"""The runtime's side: a task, its recovery log with one state for all shards, and the sessions that may write to it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from protocol.flow import KEY_END, LabelSet, LabelValue, Materialization, Range, ShardTemplate
from simulation.actors import Actor
from simulation.lake import Lake, Path
from support.bindings import ID, collection, materialization_binding
from support.runtime import SHARED_STATE, merged

TASK: Final = "acme/task"

Json: TypeAlias = Any
Row: TypeAlias = tuple[Path, str, str]  # path and uuid of the table that it was staged for, and the row itself


class SessionOverError(Exception):
    """The runtime does not speak to this process any more."""


@dataclass
class Task:
    """What the log holds: the connector's state, and with it the rows that count."""

    tables: Sequence[Path]
    state: Json = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    backfills: dict[Path, int] = field(default_factory=dict)
    uuids: dict[Path, str] = field(default_factory=dict)  # of the tables that it was last published for

    def publish(self, lake: Lake) -> Materialization:
        """The task as a session opens it. A table that somebody has replaced is backfilled: it begins anew."""
        for path in self.tables:
            if self.uuids.setdefault(path, lake.uuid(path)) != lake.uuid(path):
                self.backfills[path] = self.backfills.get(path, 0) + 1
                lake.create(path)
                self.uuids[path] = lake.uuid(path)
        bindings = tuple(
            materialization_binding(collection(ID), table=path[1], backfill=self.backfills.get(path, 0))
            for path in self.tables
        )
        labels = LabelSet((LabelValue(SHARED_STATE["name"], SHARED_STATE["value"]),))
        return Materialization(TASK, bindings=bindings, shard_template=ShardTemplate(labels))

    def record(self, patches: Sequence[Json]) -> None:
        for patch in patches:
            if patch is not None:
                self.state = merged(self.state, patch)


class RuntimeSession:
    """All shards go through it in step: what they stage is committed for all of them or for none."""

    def __init__(self, task: Task, ranges: Sequence[Range], *, is_last: bool, records_at_once: bool) -> None:
        self.ranges = ranges
        self.is_last = is_last
        self.transactions = 0
        self.is_over = False
        self.is_forked = False  # it has a log of its own, which should never be
        self._task = task
        self._records_at_once = records_at_once  # what is acknowledged, or else with the next commit
        self._acknowledged: list[Json] = []
        self._round = _Round()

    def fork(self) -> None:
        """From now on what this session commits is in no log that a successor reads."""
        self.is_forked = True
        self._task = replace(self._task, rows=list(self._task.rows))

    def acknowledged(self, actor: Actor, patch: Json) -> None:
        """Returns when every shard has acknowledged."""
        if done := self._report(actor, patch, ()):
            self._acknowledged += done.patches
            if self._records_at_once:
                self._record_acknowledged()

    def started_commit(self, actor: Actor, patch: Json, rows: Sequence[Row]) -> None:
        """Returns when the log has committed the transaction of every shard."""
        if done := self._report(actor, patch, rows):
            self._record_acknowledged()
            self._task.record(done.patches)
            self._task.rows += done.rows
            self.transactions += 1
            actor.stage.tell(f"the log          commits {len(done.rows)} rows: {[row for *_, row in done.rows]}")

    def _record_acknowledged(self) -> None:
        self._task.record(self._acknowledged)
        self._acknowledged = []

    @property
    def rows(self) -> Sequence[Row]:
        """What its log holds."""
        return self._task.rows

    def _report(self, actor: Actor, patch: Json, rows: Sequence[Row]) -> "_Round | None":
        """The whole round, to the shard that completes it."""
        actor.pause()
        if self.is_over:
            raise SessionOverError
        current = self._round
        current.patches.append(patch)
        current.rows += rows
        if len(current.patches) == len(self.ranges):
            current.is_complete = True
            self._round = _Round()
            return current
        actor.wait_for(lambda: current.is_complete or self.is_over)
        if not current.is_complete:
            raise SessionOverError
        return None


@dataclass
class _Round:
    patches: list[Json] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    is_complete: bool = False


def split_at(*cuts: int) -> tuple[Range, ...]:
    """Ranges of the whole key space, cut at so many sixteenths of it."""
    begins = (0, *(cut << 28 for cut in cuts))
    ends = (*(begin - 1 for begin in begins[1:]), KEY_END)
    return tuple(Range(begin, end, 0, KEY_END) for begin, end in zip(begins, ends, strict=True))


TOPOLOGIES: Final = (split_at(), split_at(8), split_at(4, 8), split_at(8, 12), split_at(5))
