"""Spark's part in Loads, without Spark."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any


class RecordingSpark:
    """Runs the calls of a job here, and keeps the things that Spark would write to a file on their way."""

    is_local = True

    def __init__(self) -> None:
        self.jobs: list[Sequence[Any]] = []

    def map_shares(self, call: Callable[[Iterable[Any]], Iterable[Any]], things: Sequence[Any]) -> Future[list[Any]]:
        self.jobs.append(things)
        outcomes: Future[list[Any]] = Future()
        outcomes.set_result([*call(things)])
        return outcomes
