"""Processes of which one runs at a time: at every boundary a seed decides which goes on, which sleeps and which is
dead."""

import random
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

BEGINNING: Final = 1_800_000_000.0  # seconds since the epoch
LONGEST_STALL: Final = 400.0  # seconds
STEPS_ALLOWED: Final = 20_000  # a schedule takes some hundred

T = TypeVar("T")
R = TypeVar("R")


class Killed(BaseException):
    """The process has ended here: nothing that it would have done next happens."""


class StuckError(Exception):
    """The schedule does not come to an end."""


class Stage:
    """Where actors run. `now` is the true time; nobody knows it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = BEGINNING
        self.steps = 0
        self.keep_running = self.random.choice((0.0, 0.5, 0.9))
        self.falls_back = self.random.choice((0.0, 0.0, 0.01, 0.04))  # behind all others, in an order; 0: there is none
        self.stalls = 0.0  # a thread at a boundary, for minutes; 0: none
        self.events: list[str] = []
        self.actors: list[Actor] = []
        self.ended: list[Actor] = []
        self.baton = _held_lock()

    def tell(self, event: str) -> None:
        self.events.append(f"{self.now - BEGINNING:9.3f} s  {event}")

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.random.randbytes(16), version=4)

    def enter(self, actor: "Actor") -> None:
        self.actors.append(actor)

    def step(self) -> bool:
        """Let one actor run to its next boundary; False when no actor is left."""
        if not self.actors:
            return False
        self.steps += 1
        if self.steps > STEPS_ALLOWED:
            raise StuckError(f"the schedule still runs after {STEPS_ALLOWED} steps")
        able = [actor for actor in self.actors if actor.is_ready is _always or actor.is_ready()]
        if not able:
            raise StuckError("every process waits for another one")
        awake = [actor for actor in able if actor.process.frozen_until <= self.steps] or able
        chosen = self._chosen(awake)
        # Time passes when nobody has anything to do.
        self._resume(chosen if chosen.wakes_at <= self.now else min(awake, key=lambda actor: actor.wakes_at))
        return True

    def _chosen(self, awake: Sequence["Actor"]) -> "Actor":
        """Anyone, or the first in an order that changes now and then: one process stands still for long, wherever it
        is."""
        if not self.falls_back:
            return awake[int(self.random.random() * len(awake))]
        chosen = max(awake, key=lambda actor: (actor.wakes_at <= self.now, actor.priority))
        if self.chance(self.falls_back):
            chosen.priority = -float(self.steps)
        return chosen

    def clear(self) -> None:
        """Kill whoever is left."""
        for actor in [*self.actors]:
            actor.kill()
            self._resume(actor)

    def _resume(self, actor: "Actor") -> None:
        self.now = max(self.now, actor.wakes_at)
        actor.resume()
        self.baton.acquire()
        if actor.is_done:
            self.actors.remove(actor)
            self.ended.append(actor)


class Actor:
    """A process of the connector, or a thread of one. Whatever it does at a boundary it does in `pause`, or after it in
    one go."""

    present: "Actor | None" = None  # who runs now

    def __init__(self, stage: Stage, name: str, run: Callable[["Actor"], None], clock_skew: float = 0.0) -> None:
        self.stage = stage
        self.name = name
        self.catalog: Any = None  # the process's own connection
        self.store: Any = None  # the same, to the object store
        self.process = self  # a thread freezes with its process
        self.is_ready: Callable[[], bool] = _always
        self.frozen_until = 0  # steps
        self.wakes_at = 0.0
        self.is_killed = self.is_done = False
        self.error: Exception | None = None
        self.clock_skew = clock_skew  # seconds, of its wall clock
        self.priority = stage.random.random()
        self._run = run
        self._body: _Body | None = None

    def resume(self) -> None:
        """Let it run to its next boundary, on a thread of its own."""
        if self._body is None:
            self._body = _Body.free.pop() if _Body.free else _Body()
            self._body.actor = self
        Actor.present = self
        self._body.baton.release()

    def live(self) -> None:
        try:
            if not self.is_killed:
                self._run(self)
        except Killed:
            self.tell("is killed")
        except Exception as error:  # noqa: BLE001 - the schedule judges it
            self.error = error
            self.tell(f"ends with {type(error).__name__}: {error}")
        self.is_done = True

    def tell(self, event: str) -> None:
        self.stage.tell(f"{self.name:16} {event}")

    def kill(self) -> None:
        """It ends when it is resumed, at the boundary where it stands."""
        self.is_killed = True
        self.is_ready = _always
        self.wakes_at = 0.0

    def pause(self) -> None:
        """A boundary: others may run now, and this process may end here or freeze."""
        self.stage.now += 0.001
        if self.is_killed or not self.stage.chance(self.stage.keep_running):
            self._switch()
        if self.stage.stalls and self.stage.chance(self.stage.stalls):
            self.sleep(self.stage.random.uniform(0, LONGEST_STALL))

    def sleep(self, seconds: float) -> None:
        self.wakes_at = self.stage.now + seconds
        self._switch()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        self.is_ready = condition
        self._switch()
        self.is_ready = _always

    def map_in_threads(self, call: Callable[[T], R], things: Iterable[T], name: str) -> list[R]:
        """Return what the calls return. Each has a thread; the last one has this one, which waits for the others. If
        it is killed or fails, they are killed."""
        results: dict[int, R] = {}

        def run(number: int, thing: T, _: Actor) -> None:
            results[number] = call(thing)

        runs = [partial(run, number, thing) for number, thing in enumerate(things)]
        threads = [self._start_thread(f"{name} {number}", each) for number, each in enumerate(runs[:-1])]
        try:
            for each in runs[-1:]:
                each(self)
            if threads:
                self.wait_for(lambda: all(thread.is_done for thread in threads))
        finally:
            for thread in threads:
                thread.kill()
        for error in filter(None, (thread.error for thread in threads)):
            raise error
        return [results[number] for number in range(len(runs))]

    def _start_thread(self, name: str, run: Callable[["Actor"], None]) -> "Actor":
        thread = Actor(self.stage, f"{self.name} {name}", run, self.clock_skew)
        thread.catalog, thread.store, thread.process = self.catalog, self.store, self.process
        self.stage.enter(thread)
        return thread

    def _switch(self) -> None:
        assert self._body
        if not self.is_killed:
            self.stage.baton.release()
            self._body.baton.acquire()
        if self.is_killed:
            raise Killed


class _Body(threading.Thread):
    """A thread that is one actor after another."""

    free: Final[list["_Body"]] = []

    def __init__(self) -> None:
        super().__init__(name="actors", daemon=True)
        self.actor: Actor | None = None
        self.baton = _held_lock()
        self.start()

    def run(self) -> None:
        while True:
            self.baton.acquire()
            assert self.actor
            actor, stage = self.actor, self.actor.stage
            actor.live()
            self.free.append(self)
            stage.baton.release()


def running() -> Actor:
    """The process that runs now, or its thread."""
    assert Actor.present, "only simulated processes ask"
    return Actor.present


def _held_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def _always() -> bool:
    return True
