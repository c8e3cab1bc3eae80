"""Makes the same call for many things in threads. Here because all layers above use it."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(call: Callable[[T], R], things: Iterable[T], at_once: int, name: str) -> list[R]:
    """Return the result of each call, in order, or raise the first exception.

    If a signal interrupts this, it does not wait for running calls: they may hang on a network for longer than the
    process may take to end.
    """
    pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
    try:
        return list(pool.map(call, things))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
