"""The same call for many things at once."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(call: Callable[[T], R], things: Iterable[T], at_once: int, name: str) -> list[R]:
    """Every call's result, in order, or the first exception. Who is interrupted meanwhile, by a signal, does not wait
    for the calls that are still under way: they may hang on a network for longer than a process has to end."""
    pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
    try:
        return list(pool.map(call, things))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
