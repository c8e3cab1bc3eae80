"""Garbage collection, which has nothing to do while modules are imported."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Make imports an eighth faster: they make a million objects, and no garbage to collect.

    What is there at the end is never looked at again. So garbage that the block has made would stay.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
