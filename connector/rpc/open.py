"""Open: starts Spark's JVM, opens the tables for the answer, and opens the session once Open was answered.

Imports take most of the time to the answer. The JVM takes longer than all of them, so it starts first. The answer needs
what reads tables; what writes and searches them is imported after it, while the JVM still starts. So each step has a
module of `session/`, and none of them imports the next one when it is imported itself:

1. `open_tables` opens the catalog and binds the tables. If earlier sessions have staged commits, it first starts
   `session_threads`, and `recovery` commits them.
2. Open is answered.
3. `open_session` starts `session_threads`, if that is not done yet, and makes the session: its jobs and `transactions`.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from connector import REVISION_VARIABLE, VERSION
from connector.config.settings import parse
from connector.host.garbage import pause_garbage_collection
from connector.host.logs import Event, fields
from connector.spark.jvm.start_spark import start_spark
from protocol import request
from protocol.flow import WHOLE_RANGE

if TYPE_CHECKING:
    from connector.config.endpoint_config import EndpointConfig
    from connector.session.open_tables import OpenedTables
    from connector.session.transactions import Session

log = logging.getLogger(__name__)

# Set before the libraries are imported, also by Spark's workers, which inherit it.
ENVIRONMENT: Final = {
    "OPENBLAS_NUM_THREADS": "1",  # the connector does not use NumPy's linear algebra, whose threads would busy-wait
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # it would look for some in the metadata of every installed package
}


@contextmanager
def handle_open(message: request.Open) -> Iterator["OpenedTables"]:
    """Start Spark and open the tables. The answer can be given then."""
    task = message.materialization
    _log_opening(message)
    os.environ.update(ENVIRONMENT)
    with ExitStack() as resources:
        with pause_garbage_collection():
            config, resource_configs = parse(task.config, [binding.resource_config for binding in task.bindings])
            resources.enter_context(_publish_metrics(config, message))
            started = resources.enter_context(start_spark(config.advanced.spark))
            from connector.session.open_tables import open_tables

        yield resources.enter_context(open_tables(message, config, resource_configs, started))


def start_session(tables: "OpenedTables", interrupt: Callable[[Exception], None]) -> AbstractContextManager["Session"]:
    """Open the session of these tables, once the answer has been given."""
    with pause_garbage_collection():
        tables.session_spark.spark.load_client()  # first: the JVM may wait for it
        from connector.session.open_session import open_session

    return open_session(tables, interrupt)


def _log_opening(message: request.Open) -> None:
    """Log which connector opens which task: what comes next, errors too, may be all that is left of a session."""
    task, key_range = message.materialization, message.shard_range.key_range
    revision = os.environ.get(REVISION_VARIABLE, "")
    log.info(
        "materialize-iceberg %s opens the task %s%s, with %d binding(s)",
        f"{VERSION} (revision {revision})" if revision else VERSION,
        task.name,
        "" if key_range == WHOLE_RANGE.key_range else f" for the key range {key_range}",
        len(task.bindings),
        extra=fields(
            Event.OPENING,
            version=VERSION,
            revision=revision,
            task=task.name,
            keyRange=key_range,
            bindings=len(task.bindings),
        ),
    )


def _publish_metrics(config: "EndpointConfig", message: request.Open) -> AbstractContextManager[None]:
    if not config.advanced.metrics.are_on:
        return nullcontext()
    # Imported here: a session without metrics does not load the client of Prometheus.
    from connector.metrics.publishing import publish_metrics

    return publish_metrics(config.advanced.metrics, message.materialization.name, message.shard_range.key_range)
