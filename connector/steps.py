"""Checks, one after the other: what came of each is a value."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from connector.errors import ConnectorError

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Skipped:
    """Not done, because another step failed."""

    needs: str


@dataclass(frozen=True)
class Step(Generic[T]):
    """A check, and what it found, or why it failed."""

    name: str
    seconds: float
    outcome: T | ConnectorError | Skipped

    @property
    def error(self) -> ConnectorError | None:
        return self.outcome if isinstance(self.outcome, ConnectorError) else None

    def then(self, name: str, check: Callable[[T], R]) -> "Step[R]":
        """Check something else on what this step has found."""
        match self.outcome:
            case ConnectorError():
                return Step(name, 0.0, Skipped(self.name))
            case Skipped() as skipped:
                return Step(name, 0.0, skipped)
            case found:
                return attempt(name, partial(check, found))


def attempt(name: str, check: Callable[[], T]) -> Step[T]:
    started = time.monotonic()
    outcome: T | ConnectorError
    try:
        outcome = check()
    except ConnectorError as error:
        outcome = error
    return Step(name, time.monotonic() - started, outcome)
