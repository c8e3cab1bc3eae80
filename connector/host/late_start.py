"""Starts what only some runs need, when it is first needed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def start_when_needed(start: Callable[[], AbstractContextManager[T]]) -> Iterator[Callable[[], T]]:
    """Yield a function whose first call starts a resource. Each call returns the same one, which ends with the block.

    Threads must not make the first call at the same time.
    """
    with ExitStack() as resources:
        yield cache(lambda: resources.enter_context(start()))
