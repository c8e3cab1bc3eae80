"""Open: Spark's JVM starts first, and while it does, everything is imported and opened that a session needs beside it."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from connector.config.settings import parse
from connector.spark import engine
from protocol import request

if TYPE_CHECKING:
    from connector.transactions import Session

# NumPy's library of linear algebra, which nothing here uses, starts threads that wait by turning round.
NO_THREADS: Final = {"OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def opened(message: request.Open) -> Iterator[tuple["Session", timedelta]]:
    """A session, and its upload interval, with everything that writes its files."""
    task = message.materialization
    config, resource_configs = parse(task.config, [binding.resource_config for binding in task.bindings])
    os.environ.update(NO_THREADS)  # Spark's workers inherit it
    with engine.starting(dict(config.spark)) as started:
        # Not before: to import PyIceberg takes a second, in which the JVM can be starting.
        with _keeping_all():
            from connector.transactions import open_session

        with open_session(message, config, resource_configs, started) as session:
            yield session, config.upload_interval


@contextmanager
def _keeping_all() -> Iterator[None]:
    """For imports, which make no garbage: to look for some among a million objects is an eighth of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
