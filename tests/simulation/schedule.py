"""A schedule: sessions of a task follow each other, faults and other engines come in between, and the last one is well."""

import traceback
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from pyiceberg.exceptions import ForbiddenError, RESTError, ServiceUnavailableError

from connector.errors import ConnectorError, FencedError
from protocol.request import Open
from simulation.actors import Actor, Stage, StuckError
from simulation.checks import check_exact, check_nothing_doubled, check_readable
from simulation.faults import Author, Network, Refusal
from simulation.instance import Instance
from simulation.lake import BrokenPromiseError, Lake, Path
from simulation.task import TOPOLOGIES, Row, RuntimeSession, SessionOverError, Task

GOES_ON: Final = 0.2  # of the processes that the runtime has given up; it has killed the others
FREEZES: Final = 0.4
STAYS: Final = 0.4  # the topology, from one session to the next
EXPECTED: Final = (
    ConnectorError,
    RESTError,
    OSError,
    SessionOverError,
)  # what may end a process before the last session


@dataclass(frozen=True)
class Result:
    """What became of a schedule."""

    seed: int
    violation: str | None
    events: list[str] = field(repr=False)


def run(seed: int) -> Result:
    stage = Stage(seed)
    violation: str | None = None
    try:
        Schedule(stage).run()
    except (BrokenPromiseError, StuckError) as error:
        violation = str(error)
    finally:
        stage.clear()
    return Result(seed, violation, stage.events)


class Schedule:
    """Directs the stage. Every rate is the probability of one step."""

    def __init__(self, stage: Stage) -> None:
        random = stage.random
        self._stage = stage
        self._lake = Lake(lambda: stage.now, stage.uuid)
        self._paths: list[Path] = [("shop", f"table-{number}") for number in range(random.choice((1, 1, 2)))]
        for path in self._paths:
            self._lake.create(path)
        self._task = Task(self._paths)
        self._foreign_rows: list[Row] = []
        self._network = Network(
            stage,
            self._lake,
            load=random.choice((0.0, 0.0, 0.03)),
            commit=random.choice((0.0, 0.1, 0.4)),
            store=random.choice((0.0, 0.0, 0.02)),
        )
        self._giving_up = random.choice((0.0, 0.01, 0.03))
        self._foreign = random.choice((0.0, 0.0, 0.02))
        self._refusing = random.choice((0.0, 0.0, 0.03))
        self._replacing = random.choice((0.0, 0.0, 0.0, 0.02))
        self._forks = stage.chance(0.35)
        self._forked: list[RuntimeSession] = []
        self._delivering = random.choice((0.02, 0.1))
        self._sessions = 0
        self._topology = random.choice(TOPOLOGIES)
        self._crew: dict[Actor, RuntimeSession] = {}

    def run(self) -> None:
        for _ in range(self._stage.random.choice((1, 2, 2, 3))):
            self._live_through(self._begin(is_last=False))
        self._network.calm_down()
        last = self._begin(is_last=True)
        self._live_through(last)
        if last.transactions == 0 and not self._forked:
            raise BrokenPromiseError("the last session has committed nothing")
        while self._stage.step():
            self._disturb()
            self._bury()
        self._bury()
        while self._network.on_their_way:
            self._network.deliver()
        check_readable(self._lake)
        if self._forked:
            logs = [session.rows for session in self._forked]
            check_nothing_doubled(self._lake, [*chain(self._task.rows, *logs), *self._foreign_rows])
        else:
            check_exact(self._lake, self._task, self._foreign_rows)

    def _begin(self, *, is_last: bool) -> RuntimeSession:
        """Start a session's processes, on the log as it is now."""
        random = self._stage.random
        self._sessions += 1
        if not self._stage.chance(STAYS):
            self._topology = random.choice(TOPOLOGIES)
        if self._refusing and not is_last and self._stage.chance(0.3):
            self._refuse(random.choice(self._paths))
        session = RuntimeSession(
            self._task, self._topology, is_last=is_last, records_at_once=is_last or self._stage.chance(0.5)
        )
        publication = self._task.publish(self._lake)
        transactions = random.choice((1, 2) if is_last else (0, 1, 2, 3))
        acknowledges_last = is_last or self._stage.chance(0.5)
        for number, held in enumerate(session.ranges):
            instance = Instance(
                Author(self._sessions, held.key_range),
                Open(publication, "1", held, self._task.state),
                session,
                self._network,
                transactions,
                acknowledges_last=acknowledges_last,
                has_rows_for_all=is_last,
            )
            skew = random.choice((0.0, 0.0, -3600.0, 3600.0))
            actor = Actor(
                self._stage, f"{self._sessions}.{number}/{held.key_range[0]}-{held.key_range[9]}", instance.run, skew
            )
            self._crew[actor] = session
            self._stage.enter(actor)
        self._stage.tell(f"the runtime      begins session {self._sessions} of {len(session.ranges)} shard(s)")
        return session

    def _live_through(self, session: RuntimeSession) -> None:
        while session in self._crew.values() and not (session.is_over or session.is_forked):
            self._disturb()
            if not session.is_last and self._stage.chance(self._giving_up):
                self._give_up(session)
            self._stage.step()
            self._bury()

    def _disturb(self) -> None:
        """What others do meanwhile."""
        stage, path = self._stage, self._stage.random.choice(self._paths)
        if self._network.on_their_way and stage.chance(self._delivering):
            self._network.deliver()
        if stage.chance(self._foreign):
            action = stage.random.choice((self._append, self._lake.compact, self._lake.expire, self._lake.tag))
            stage.tell(f"another engine   comes to {path[1]} ({action.__name__})")
            action(path)
        if not self._network.is_calm and stage.chance(self._refusing):
            self._refuse(path)
        if not self._network.is_calm and stage.chance(self._replacing):
            stage.tell(f"another engine   replaces {path[1]}")
            self._lake.create(path)

    def _refuse(self, path: Path) -> None:
        error = self._stage.random.choice((ForbiddenError, ServiceUnavailableError, ServiceUnavailableError))
        self._network.refusing[path] = Refusal(error, self._stage.random.randrange(1, 30))

    def _append(self, path: Path) -> None:
        self._foreign_rows.append((path, self._lake.uuid(path), self._lake.append(path)))

    def _give_up(self, session: RuntimeSession) -> None:
        """The runtime takes the session's processes for dead: most are, some only freeze, some even go on.

        A runtime that is none lets them all go on, with the log as it is now.
        """
        if self._forks:
            session.fork()
            self._forked.append(session)
            self._stage.tell("the runtime      lets the session go on beside its successor")
        else:
            self._end(session)

    def _end(self, session: RuntimeSession) -> None:
        if session.is_over:
            return
        session.is_over = True
        for actor in [actor for actor, its in self._crew.items() if its is session and not actor.is_done]:
            if self._stage.chance(GOES_ON):
                actor.tell("is given up, and goes on")
            elif self._stage.chance(FREEZES):
                actor.tell("is given up, and freezes")
                actor.frozen_until = self._stage.steps + self._stage.random.randrange(5, 100)
            else:
                actor.kill()

    def _bury(self) -> None:
        """Judge those that have ended."""
        for actor in self._stage.failed:
            session = self._crew.get(actor)
            if session is None or not self._may_fail(session, actor.error):
                raise BrokenPromiseError(f"process {actor.name}: {''.join(traceback.format_exception(actor.error))}")
            self._end(session)
        self._stage.failed.clear()
        self._crew = {actor: session for actor, session in self._crew.items() if not actor.is_done}

    def _may_fail(self, session: RuntimeSession, error: Exception | None) -> bool:
        if not isinstance(error, EXPECTED):
            return False
        is_surprise = session.is_last or (isinstance(error, FencedError) and not session.is_over)
        return bool(self._forked) or not is_surprise
