"""Checks that depend on each other, each with its outcome as a value."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from connector.host.errors import ConnectorError

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Skipped:
    """The check was not made."""

    why: str


@dataclass(frozen=True)
class Step(Generic[T]):
    """A check, and what it found, or why it failed or was skipped."""

    name: str
    seconds: float
    outcome: T | ConnectorError | Skipped

    @property
    def error(self) -> ConnectorError | None:
        """Why the check failed; None if it did not."""
        return self.outcome if isinstance(self.outcome, ConnectorError) else None

    @property
    def found(self) -> T | None:
        """The result of the check; None if it failed or was skipped."""
        return None if isinstance(self.outcome, ConnectorError | Skipped) else self.outcome

    def then(self, name: str, check: Callable[[T], R | Skipped]) -> "Step[R]":
        """Make another check with what this one found."""
        match self.outcome:
            case ConnectorError():
                return Step(name, 0.0, Skipped(f"needs the {self.name}"))
            case Skipped() as skipped:
                return Step(name, 0.0, skipped)
            case found:
                return attempt(name, partial(check, found))


def attempt(name: str, check: Callable[[], T | Skipped]) -> Step[T]:
    """Make a check, and keep its result or its error."""
    started = time.monotonic()
    outcome: T | ConnectorError | Skipped
    try:
        outcome = check()
    except ConnectorError as error:
        outcome = error
    return Step(name, time.monotonic() - started, outcome)
