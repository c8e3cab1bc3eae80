"""Threads of which one runs at a time: at every boundary a seed decides which goes on, which sleeps and which is dead."""

import random
import threading
import uuid
from collections.abc import Callable
from typing import Final

BEGINNING: Final = 1_800_000_000.0  # seconds since the epoch
STEPS_ALLOWED: Final = 20_000  # a schedule takes some hundred


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
        self.events: list[str] = []
        self.actors: list[Actor] = []
        self.failed: list[Actor] = []
        self.baton = _held_lock()

    def tell(self, event: str) -> None:
        self.events.append(f"{self.now - BEGINNING:9.3f} s  {event}")

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.random.randbytes(16), version=4)

    def enter(self, actor: "Actor") -> None:
        self.actors.append(actor)
        actor.start()

    def step(self) -> bool:
        """Let one actor run to its next boundary; False when no actor is left."""
        self.actors = [actor for actor in self.actors if not actor.is_done]
        if not self.actors:
            return False
        self.steps += 1
        if self.steps > STEPS_ALLOWED:
            raise StuckError(f"the schedule still runs after {STEPS_ALLOWED} steps")
        able = [actor for actor in self.actors if actor.is_ready()]
        awake = [actor for actor in able if actor.frozen_until <= self.steps]
        if not able:
            raise StuckError("every process waits for another one")
        chosen = self.random.choice(awake or able)
        # Time passes when nobody has anything to do.
        self._resume(chosen if chosen.wakes_at <= self.now else min(awake or able, key=lambda actor: actor.wakes_at))
        return True

    def clear(self) -> None:
        """Kill whoever is left."""
        for actor in self.actors:
            if not actor.is_done:
                actor.kill()
                self._resume(actor)
            actor.join()

    def _resume(self, actor: "Actor") -> None:
        self.now = max(self.now, actor.wakes_at)
        actor.baton.release()
        self.baton.acquire()


class Actor(threading.Thread):
    """A process of the connector. Whatever it does at a boundary it does in `pause`, or after it in one go."""

    def __init__(self, stage: Stage, name: str, run: Callable[["Actor"], None], clock_skew: float = 0.0) -> None:
        super().__init__(name=name, daemon=True)
        self.stage = stage
        self.baton = _held_lock()
        self.is_ready: Callable[[], bool] = _always
        self.frozen_until = 0  # steps
        self.wakes_at = 0.0
        self.is_killed = self.is_done = False
        self.error: Exception | None = None
        self.clock_skew = clock_skew  # seconds, of its wall clock
        self._run = run

    def run(self) -> None:
        self.baton.acquire()
        try:
            if not self.is_killed:
                self._run(self)
        except Killed:
            self.tell("is killed")
        except Exception as error:  # judged by whoever directs the schedule
            self.error = error
            self.stage.failed.append(self)
            self.tell(f"ends with {type(error).__name__}: {error}")
        self.is_done = True
        self.stage.baton.release()

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

    def sleep(self, seconds: float) -> None:
        self.wakes_at = self.stage.now + seconds
        self._switch()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        self.is_ready = condition
        self._switch()
        self.is_ready = _always

    def _switch(self) -> None:
        if not self.is_killed:
            self.stage.baton.release()
            self.baton.acquire()
        if self.is_killed:
            raise Killed


def _held_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def _always() -> bool:
    return True
