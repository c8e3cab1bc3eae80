"""A schedule: a task is published and its sessions follow each other, faults and other engines come in between, and the
last session is well."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import chain
from random import Random
from typing import Final

from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, RESTError, ServiceUnavailableError

from connector.host.errors import ConnectorError, FencedError
from connector.model.state_reader import read_state
from protocol.request import Open
from simulation import people
from simulation.actors import STEPS_ALLOWED, Actor, Stage, StuckError
from simulation.checks import check_exact, check_keys, check_nothing_doubled, check_nothing_lost, check_readable
from simulation.engines import SCHEMA, Engine
from simulation.instance import Instance
from simulation.lake import BrokenPromiseError, Lake, Path
from simulation.network import Network
from simulation.takeovers import Author
from simulation.task import TASK, BoundTable, Kind, Row, RuntimeSession, SessionOverError, Task
from simulation.weather import Climate, Weather, weather

FREEZES: Final = 0.5
# What a task has, one for each binding.
SEVERAL_TABLES: Final[Sequence[Sequence[Kind]]] = (
    [Kind.ROWS, Kind.ROWS],
    [Kind.REJECTING],
    [Kind.ROWS, Kind.UPDATES],
)
BINDINGS: Final[Sequence[Sequence[Kind]]] = (
    *4 * [[Kind.ROWS]],
    *SEVERAL_TABLES[:2],
    [Kind.UPDATES],
    *SEVERAL_TABLES[2:],
)
PARTITIONED: Final = 0.5  # of the tables that others have made
VERSION_3: Final = 0.25  # of the tasks with updates
UPGRADED: Final = 0.25  # of the others: another engine upgrades their tables
UPGRADING: Final = 0.5  # after a session
STAYS: Final = 0.3  # the topology, from one session to the next
TRIES: Final = 30  # to publish a task
EXPECTED: Final = (  # what may end a process while anything is disturbed
    ConnectorError,
    NoSuchTableError,
    RESTError,
    OSError,
    SessionOverError,
)
MISTAKES: Final = (AttributeError, NameError, TypeError)  # of the simulation or of a planted defect: they prove nothing


@dataclass(frozen=True)
class Result:
    """What became of a schedule."""

    seed: int
    violation: str | None
    events: list[str] = field(repr=False)


class Versions(Enum):
    """The format versions that the tables of a task have."""

    TWO = "2"
    UPGRADED = "2, until another engine upgrades them"
    THREE = "3"


@dataclass(frozen=True)
class Outline:
    """What a schedule can have."""

    weather: Weather
    kinds: Sequence[Kind]
    versions: Versions

    @property
    def has_updates(self) -> bool:
        return Kind.UPDATES in self.kinds

    @property
    def has_compactions(self) -> bool:
        return self.weather.compacting > 0

    @property
    def has_refusals(self) -> bool:
        """Whether commits may have to wait."""
        return self.weather.refusing > 0 or self.weather.begins_refused > 0


def outline(random: Random) -> Outline:
    drawn = weather(random)
    kinds = random.choice(SEVERAL_TABLES if drawn.climate is Climate.OUTAGES else BINDINGS)
    return Outline(drawn, kinds, _choose_versions(random) if Kind.UPDATES in kinds else Versions.TWO)


def _choose_versions(random: Random) -> Versions:
    if random.random() < VERSION_3:
        return Versions.THREE
    return Versions.UPGRADED if random.random() < UPGRADED else Versions.TWO


def outline_of(seed: int) -> Outline:
    return outline(Stage(seed).random)


def run(seed: int) -> Result:
    stage = Stage(seed)
    violation: str | None = None
    try:
        Schedule(stage).run()
    except (BrokenPromiseError, StuckError, ConnectorError) as error:  # the last: a state that nobody can read
        violation = str(error)
    except MISTAKES as error:
        error.add_note(f"--seed {seed}")
        raise
    finally:
        stage.clear()
    return Result(seed, violation, stage.events)


class Schedule:
    """Directs the stage."""

    def __init__(self, stage: Stage) -> None:
        random = stage.random
        self._stage = stage
        drawn = outline(random)
        self._weather, kinds = drawn.weather, drawn.kinds
        stage.stalls = drawn.weather.stalling
        self._lake = Lake(lambda: stage.now, stage.uuid)
        self._engine = Engine(self._lake, random)
        bound = [BoundTable(("shop", f"table-{number}"), kind) for number, kind in enumerate(kinds)]
        for table in bound:
            if stage.chance(0.5):
                self._lake.create(table.path, SCHEMA, {})
                if stage.chance(PARTITIONED):
                    self._engine.repartition(table.path)
        self._task = Task(bound, hard_delete=drawn.has_updates and stage.chance(0.7))
        self._network = Network(stage, self._lake, self._weather)
        self._tells_state = stage.chance(0.7)  # to apply: one of the two runtimes does
        self._other_logs: list[Task] = []
        self._skipped: set[Row] = set()  # by the operator
        self._is_reset = False
        self._sessions = 0
        self._topology = random.choice(self._weather.topologies)
        self._crew: dict[Actor, RuntimeSession | None] = {}  # None: a person's
        self._is_upgrading = drawn.versions is Versions.UPGRADED
        if drawn.versions is Versions.THREE:
            for table in bound:
                table.format_version = 3
            for path in self._lake.tables:
                self._lake.upgrade(path)

    def run(self) -> None:
        for _ in range(self._weather.sessions):
            self._live_on()
        self._network.calm_down()
        self._put_back()
        if self._other_logs and self._stage.chance(0.5):
            self._run_out()
            self._reset()
            self._finish()
            check_nothing_lost(self._lake, self._task, self._skipped)
        else:
            self._finish()
        check_readable(self._lake)
        if not self._is_reset:  # or else a version may have been added to which nobody has looked for an older one
            check_keys(self._lake, [bound.path for bound in self._task.bound if bound.kind is Kind.UPDATES])
        if self._other_logs:
            logs = [log.rows for log in self._other_logs]
            check_nothing_doubled(self._lake, [*chain(self._task.rows, *logs), *self._engine.rows])
        else:
            check_exact(self._lake, self._task, self._engine.rows)

    def _live_on(self) -> None:
        """A session, and what becomes of the task after it."""
        if self._publish():
            self._live_through(self._begin(is_last=False))
        if self._is_upgrading and self._stage.chance(UPGRADING):
            for path in self._lake.tables:
                self._lake.upgrade(path)
                self._stage.tell(f"another engine   upgrades {path[1]}")
        if self._stage.chance(self._weather.cleaning) and not self._other_logs:
            self._stop_for_days()
        if self._stage.chance(self._weather.restoring):
            self._restore()
        if self._other_logs and self._stage.chance(self._weather.resetting):
            self._go_on(self._stage.random.randrange(100))
            self._reset()

    def _finish(self) -> None:
        """One more session, which nothing disturbs, until nobody is left."""
        last = self._begin(is_last=True) if self._publish() else None
        if last:
            self._live_through(last)
        self._run_out()
        if not self._other_logs and (last is None or last.transactions == 0):
            raise BrokenPromiseError("the last session has committed nothing")

    def _go_on(self, steps: int) -> None:
        while steps and self._stage.step():
            self._disturb()
            self._bury()
            steps -= 1

    def _run_out(self) -> None:
        self._go_on(STEPS_ALLOWED)
        while self._network.on_their_way:
            self._network.deliver()

    def _publish(self) -> bool:
        """Whether the task can be opened: nobody but an operator helps one that is fenced."""
        self._specify()
        new = self._task.specification()
        publish = partial(
            people.publish, network=self._network, task=self._task, new=new, tells_state=self._tells_state
        )
        for number in range(TRIES):
            if number > TRIES / 2:
                self._network.refusing.clear()
                self._put_back()
                self._engine.drop_from(self._list_unusable())
            if self._task.published == new or self._run_errand(f"apply {self._sessions}.{number}", publish):
                for bound in self._task.bound:
                    bound.uuids = {path: self._lake.uuid(path) for path in bound.paths}
                return True
        if self._other_logs:
            return False
        raise BrokenPromiseError("the task cannot be published")

    def _specify(self) -> None:
        """The user changes the task, and backfills a table that somebody else has replaced."""
        for bound in self._task.bound:
            tables = self._lake.tables
            is_replaced = any(path in tables and self._lake.uuid(path) != uuid for path, uuid in bound.uuids.items())
            if is_replaced or (bound.uuids and self._stage.chance(self._weather.specifying)):
                bound.backfill += 1
                self._task.keeps_rows = self._stage.chance(0.5)
            if self._stage.chance(self._weather.specifying):
                bound.columns += 1

    def _stop_for_days(self) -> None:
        """Every process ends, and another engine takes what is staged for orphans."""
        self._run_out()
        entries = [*read_state(TASK, self._task.state)]
        self._engine.remove(location for entry in entries for location in entry.locations)
        self._stage.tell(f"another engine   removes {len(self._engine.removed)} staged files")

    def _put_back(self) -> None:
        if self._engine.removed:
            self._engine.put_back()
            self._stage.tell("somebody         puts the staged files back")

    def _restore(self) -> None:
        """Somebody has lost the log, and has an older copy of it."""
        for session in dict.fromkeys(self._crew.values()):
            if session and not session.is_forked:
                self._end(session)
        if copies := min(len(self._task.copies), 4):
            self._other_logs.append(self._task.restore(self._stage.random.randint(1, copies)))
            self._network.has_other_logs = True
            self._stage.tell("the log          is restored from a copy")

    def _reset(self) -> None:
        """The operator helps a task that another log's processes have fenced."""
        self._is_reset = True
        self._run_errand(
            "operator", partial(people.reset, network=self._network, task=self._task, skipped=self._skipped)
        )

    def _list_unusable(self) -> Iterator[Path]:
        """A table of another's is never taken for that of rejected rows. If it has rows, it is not taken for one with
        updates either: they have no documents."""
        for bound in self._task.bound:
            yield from bound.paths[1:]
            is_new = bound.path in self._lake.tables and self._lake.uuid(bound.path) != bound.uuids.get(bound.path)
            if bound.kind is Kind.UPDATES and is_new:
                yield bound.path

    def _run_errand(self, name: str, run: Callable[[Actor], None]) -> bool:
        """Whether it has come to its end."""
        actor = Actor(self._stage, name, run)
        self._crew[actor] = None
        self._stage.enter(actor)
        while not actor.is_done:
            self._disturb()
            if not self._network.is_calm and self._stage.chance(self._weather.giving_up):
                actor.kill()
            self._stage.step()
            self._bury()
        return not actor.is_killed and actor.error is None

    def _begin(self, *, is_last: bool) -> RuntimeSession:
        """Start a session's processes, on the log as it is now."""
        random = self._stage.random
        self._sessions += 1
        if not self._stage.chance(STAYS):
            self._topology = random.choice(self._weather.topologies)
        if not is_last and self._stage.chance(self._weather.begins_refused):
            self._refuse(random.choice([*self._lake.tables]))
        session = RuntimeSession(
            self._task, self._topology, is_last=is_last, records_at_once=is_last or self._stage.chance(0.5)
        )
        transactions = 1 if is_last else random.choice(self._weather.transactions)
        acknowledges_last = is_last or self._stage.chance(0.5)
        assert self._task.published
        for number, held in enumerate(session.ranges):
            instance = Instance(
                Author(self._sessions, held.key_range),
                Open(self._task.published, "1", held, self._task.state),
                session,
                self._network,
                transactions,
                acknowledges_last=acknowledges_last,
            )
            name = f"{self._sessions}.{number}/{held.key_range[0]}-{held.key_range[9]}"
            actor = Actor(self._stage, name, instance.run, clock_skew=random.choice((0.0, 0.0, -3600.0, 3600.0)))
            self._crew[actor] = session
            self._stage.enter(actor)
        self._stage.tell(f"the runtime      begins session {self._sessions} of {len(session.ranges)} shard(s)")
        return session

    def _live_through(self, session: RuntimeSession) -> None:
        while session in self._crew.values() and not (session.is_over or session.is_forked):
            self._disturb()
            if not session.is_last and self._stage.chance(self._weather.giving_up):
                self._give_up(session)
            self._stage.step()
            self._bury()

    def _disturb(self) -> None:
        """What others do meanwhile."""
        stage, network = self._stage, self._network
        if network.on_their_way and stage.chance(self._weather.delivering):
            network.deliver()
        if network.refusing and stage.chance(self._weather.yielding):
            network.refusing.clear()
        if self._engine.removed and stage.chance(self._weather.yielding):
            self._put_back()
        if not self._lake.tables or not stage.chance(
            self._weather.foreign + self._weather.refusing + self._weather.replacing
        ):
            return
        path = stage.random.choice([*self._lake.tables])
        rates = {self._come_to: self._weather.foreign}
        if not network.is_calm and None not in self._crew.values():  # what a person does comes to an end
            rates |= {self._refuse: self._weather.refusing, self._replace: self._weather.replacing}
        [act] = stage.random.choices([*rates], [*rates.values()]) if any(rates.values()) else [None]
        if act:
            act(path)

    def _come_to(self, path: Path) -> None:
        engine = self._engine
        acts = [engine.append, engine.compact, engine.expire, engine.tag, engine.repartition]
        act = self._stage.random.choice([*acts, engine.upgrade] if self._is_upgrading else acts)
        self._stage.tell(f"another engine   comes to {path[1]} ({act.__name__})")
        act(path)

    def _replace(self, path: Path) -> None:
        self._stage.tell(f"another engine   replaces {path[1]}")
        self._engine.replace(path)

    def _refuse(self, path: Path) -> None:
        errors = (ForbiddenError, ServiceUnavailableError, ServiceUnavailableError)
        refused = [*self._lake.tables] if self._weather.climate is Climate.OUTAGES else [path]
        self._network.refusing |= dict.fromkeys(refused, self._stage.random.choice(errors))

    def _give_up(self, session: RuntimeSession) -> None:
        """The runtime takes the session's processes for dead: most are, some only freeze, some even go on.

        A runtime that is none lets them all go on, sooner or later, with the log as it is now.
        """
        if self._weather.forks:
            self._other_logs.append(session.fork())
            self._network.has_other_logs = True
            self._stage.tell("the runtime      lets the session go on beside its successor")
            for actor in self._processes(session):
                if not self._stage.chance(self._weather.going_on):
                    self._freeze(actor)
        else:
            self._end(session)

    def _end(self, session: RuntimeSession) -> None:
        if session.is_over:
            return
        session.is_over = True
        for actor in self._processes(session):
            if self._stage.chance(self._weather.going_on):
                actor.tell("is given up, and goes on")
            elif self._stage.chance(FREEZES):
                self._freeze(actor)
            else:
                actor.kill()

    def _processes(self, session: RuntimeSession) -> list[Actor]:
        return [actor for actor, its in self._crew.items() if its is session and not actor.is_done]

    def _freeze(self, actor: Actor) -> None:
        actor.tell("is given up, and freezes")
        actor.frozen_until = self._stage.steps + self._stage.random.randrange(5, self._stage.random.choice((100, 1000)))

    def _bury(self) -> None:
        """Judge those that have ended."""
        while self._stage.ended:
            actor = self._stage.ended.pop()
            session = self._crew.pop(actor, None)
            if actor.error is None:
                continue
            if isinstance(actor.error, MISTAKES):
                raise actor.error
            if not isinstance(actor.error, EXPECTED) or self._is_surprise(session, actor.error):
                raise BrokenPromiseError(f"process {actor.name}: {''.join(traceback.format_exception(actor.error))}")
            if session:
                self._end(session)

    def _is_surprise(self, session: RuntimeSession | None, error: Exception) -> bool:
        is_fenced = isinstance(error, FencedError) and session is not None and not session.is_over
        return not self._other_logs and (is_fenced or (session is not None and session.is_last))
