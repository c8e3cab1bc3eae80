"""What a test has planned to happen, such as a fault: without it, a test that passes has tested something else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from threading import Barrier, Event
from types import FunctionType
from typing import Any, Final


@dataclass(frozen=True)
class _Plan:
    what: str
    has_happened: Callable[[], object]


_PLANS: Final[list[_Plan]] = []


def plan(what: str, has_happened: Callable[[], object]) -> None:
    """The test fails at its end if this has not happened."""
    _PLANS.append(_Plan(what, has_happened))


def called(function: FunctionType) -> Any:
    """The same function; the test fails if nobody calls it before it ends."""
    calls = Event()

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        calls.set()
        return function(*arguments, **options)

    plan(f"a call of {function.__qualname__}", calls.is_set)
    return call


def meeting(number: int) -> Barrier:
    """Where so many threads wait for each other; the test fails if they have not met before it ends."""
    met = Event()
    plan(f"a meeting of {number} threads", met.is_set)
    return Barrier(number, met.set, timeout=60)


def forget_plans() -> None:
    """Those of a test whose fixtures have failed are no other test's."""
    _PLANS.clear()


@contextmanager
def checked_plans() -> Iterator[None]:
    """Around a test: raise AssertionError if what it has planned has not happened."""
    yield
    missed = [planned.what for planned in _PLANS if not planned.has_happened()]
    assert not missed, f"was planned, and has not happened: {', '.join(missed)}"
