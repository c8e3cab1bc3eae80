"""Open: Spark's JVM starts first; meanwhile everything else that a session needs is imported and opened."""

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
    from connector.session.transactions import Session

# NumPy's linear algebra, which nothing here uses, would start threads that busy-wait.
NO_THREADS: Final = {"OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def handle_open(message: request.Open) -> Iterator[tuple["Session", timedelta]]:
    """A session with everything that writes its files, and its upload interval."""
    task = message.materialization
    config, resource_configs = parse(task.config, [binding.resource_config for binding in task.bindings])
    os.environ.update(NO_THREADS)  # Spark's workers inherit it
    with engine.start_engine(dict(config.advanced.spark)) as started:
        # Not before: importing PyIceberg takes a second, in which the JVM can be starting.
        with _without_garbage_collection():
            from connector.session.recovery import open_session

        with open_session(message, config, resource_configs, started) as session:
            yield session, config.upload_interval


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """For imports, which make no garbage: looking for it among a million objects takes an eighth of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
