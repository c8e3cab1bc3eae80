"""The same call for many things, in threads."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(call: Callable[[T], R], things: Iterable[T], at_once: int, name: str) -> list[R]:
    """Every call's result, in order, or the first exception.

    When a signal interrupts it, calls that are still under way are not waited for: they may hang on a network for
    longer than the process has to end.
    """
    pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
    try:
        return list(pool.map(call, things))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
