"""Open: starts Spark's JVM first, and imports and opens everything else meanwhile."""

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.spark import engine
from protocol import request
from protocol.flow import WHOLE_RANGE

if TYPE_CHECKING:
    from connector.session.transactions import Session

# The connector does not use NumPy's linear algebra, whose threads would busy-wait.
NO_THREADS: Final = {"OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def handle_open(message: request.Open) -> Iterator[tuple["Session", EndpointConfig]]:
    """Open a session. Gives the session and its config."""
    task = message.materialization
    config, resource_configs = parse(task.config, [binding.resource_config for binding in task.bindings])
    os.environ.update(NO_THREADS)  # Spark's workers inherit it
    with _publish_metrics(config, message), engine.start_engine(config.advanced.spark) as started:
        # Imported here, because PyIceberg takes a second to load. The JVM starts in that second.
        with _without_garbage_collection():
            from connector.session.open_session import open_session

        with open_session(message, config, resource_configs, started) as session:
            yield session, config


def _publish_metrics(config: EndpointConfig, message: request.Open) -> AbstractContextManager[None]:
    if not config.advanced.metrics.are_on:
        return nullcontext()
    # Imported here: a session without metrics does not load the client of Prometheus.
    from connector.metrics.publishing import publish_metrics

    key_range = (message.range or WHOLE_RANGE).key_range
    return publish_metrics(config.advanced.metrics, message.materialization.name, key_range)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Make imports an eighth faster: they make a million objects, and no garbage to collect."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
