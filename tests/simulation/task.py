"""The runtime's side: a task as it is published, its recovery log with one state for all shards, and its sessions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, TypeAlias

from msgspec import structs

from connector.config.catalog import REST
from connector.config.values import ALLOW_EXISTING_TABLES, RETAIN_EXISTING_DATA
from connector.model.invalid_values import REJECTED_SUFFIX, OnInvalid
from connector.model.table_identifier import TableIdentifier
from protocol.flow import KEY_END, LabelSet, LabelValue, Materialization, MaterializationBinding, Range, ShardTemplate
from simulation.actors import Actor
from simulation.lake import Path
from support.bindings import DOCUMENT, ID, collection, materialization_binding, projection
from support.sessions.runtime import SHARED_STATE, merged

TASK: Final = "acme/task"
LABELS: Final = LabelSet((LabelValue(SHARED_STATE["name"], SHARED_STATE["value"]),))

Json: TypeAlias = Any
Row: TypeAlias = tuple[Path, str, str]  # path of its table, uuid of its generation, and the row itself


class Kind(Enum):
    ROWS = "a row for each stored document"
    REJECTING = "the same, and a table of rejected rows"
    UPDATES = "a row for each key"


class SessionOverError(Exception):
    """The runtime does not speak to this process any more."""


@dataclass
class BoundTable:
    """A binding's specification, as its user changes it."""

    path: Path
    kind: Kind = Kind.ROWS
    backfill: int = 0
    columns: int = 0  # beside the key
    format_version: int = 2  # of the table, when it is created
    uuids: Mapping[Path, str] = field(default_factory=dict)  # of the tables that it was last published for

    @property
    def paths(self) -> Sequence[Path]:
        """Of its tables."""
        return (
            [self.path, TableIdentifier(self.path[0], self.path[1] + REJECTED_SUFFIX)]
            if self.kind is Kind.REJECTING
            else [self.path]
        )

    def binding(self) -> MaterializationBinding:
        values = [f"value_{number}" for number in range(self.columns)]
        bound = collection(ID, DOCUMENT, *(projection(value, "string") for value in values))
        has_updates = self.kind is Kind.UPDATES
        document = DOCUMENT.field if has_updates else ""
        made = materialization_binding(bound, *values, document=document, table=self.path[1], backfill=self.backfill)
        on_invalid = OnInvalid.QUARANTINE if self.kind is Kind.REJECTING else OnInvalid.STOP
        resource = {"on_invalid": on_invalid, "delta_updates": not has_updates, "format_version": self.format_version}
        return structs.replace(
            made, resource_config={**made.resource_config, **resource}, delta_updates=not has_updates
        )


@dataclass
class Task:
    """What the log holds: the connector's state, and with it the rows that count."""

    bound: Sequence[BoundTable]
    hard_delete: bool = False
    keeps_rows: bool = False  # when it is backfilled
    published: Materialization | None = None
    state: Json = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    copies: list[tuple[Json, list[Row]]] = field(default_factory=list)  # of the log, as it was

    def specification(self) -> Materialization:
        catalog = {"catalog_type": REST, "uri": "http://localhost", "warehouse": "lake"}
        flags = [ALLOW_EXISTING_TABLES, *([RETAIN_EXISTING_DATA] if self.keeps_rows else [])]  # others make tables, too
        advanced = {"feature_flags": ",".join(flags)}
        return Materialization(
            TASK,
            config={"namespace": "shop", "catalog": catalog, "advanced": advanced, "hard_delete": self.hard_delete},
            bindings=tuple(bound.binding() for bound in self.bound),
            shard_template=ShardTemplate(LABELS),
        )

    def record(self, patches: Sequence[Json], rows: Sequence[Row] = ()) -> None:
        self.copies.append((self.state, self.rows))
        for patch in patches:
            if patch is not None:
                self.state = merged(self.state, patch)
        self.rows = [*self.rows, *rows]

    def restore(self, age: int) -> "Task":
        """Go back to what the log was, and forget what has become of it; returns that."""
        before = replace(self, copies=[])
        self.state, self.rows = self.copies[-age]
        del self.copies[-age:]
        return before


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

    def fork(self) -> Task:
        """From now on what this session commits is in a log of its own, which no successor reads."""
        self.is_forked = True
        self._task = replace(self._task, copies=[])
        return self._task

    def rows_of(self, path: Path, uuid: str | None = None) -> list[str]:
        """What the log has for a table, or for all that have had its name."""
        return [row[-1] for row in self._task.rows if row[0] == path and uuid in (None, row[1])]

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
            self._task.record(done.patches, done.rows)
            self.transactions += 1
            actor.stage.tell(f"the log          commits {len(done.rows)} rows: {[row for *_, row in done.rows]}")

    def _record_acknowledged(self) -> None:
        self._task.record(self._acknowledged)
        self._acknowledged = []

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


WHOLE: Final = split_at()
TOPOLOGIES: Final = (WHOLE, WHOLE, split_at(8), split_at(8), split_at(5), split_at(4, 8))
