"""Spark, started in the background when a session opens, so that nobody waits for it who does not need it yet."""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from connector.errors import RetryableError
from connector.scratch import Scratch

if TYPE_CHECKING:
    from pyspark import SparkContext

    from connector.spark.jvm import Jvm

log = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_SETTINGS: Final = {
    "spark.master": "local[*]",
    "spark.app.name": "materialize-iceberg",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Unix sockets between JVM and workers: TCP's delayed acknowledgements cost 40 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "connector.spark.daemon",
    # A task that ran has consumed blocks and cannot run again: its failure is the transaction's, which is replayed.
    "spark.task.maxFailures": "1",
}
LOCAL_SETTINGS: Final = {
    # Where the host's name does not resolve, Spark would neither find itself nor be quiet about it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class Spark:
    """A Spark context that is being started, and the thread that runs its jobs one after the other."""

    def __init__(self, settings: Mapping[str, str], directories: Scratch, class_sharing: str | None = None) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark")
        self._started: Future[tuple[Jvm, SparkContext]] = self._executor.submit(
            _start, settings, directories, class_sharing
        )

    def run(self, task: Callable[[Iterable[int]], Iterable[T]], tasks: int | None = None) -> "Future[list[T]]":
        """Run a job of that many tasks (default: one per core); a task gets an iterator of one number."""
        return self._executor.submit(self._run, task, tasks)

    def stop(self) -> None:
        """End Spark in good order, jobs included."""
        jvm, context = self._started.result()
        context.stop()
        jvm.stop()
        self._executor.shutdown()

    def kill(self) -> None:
        """End Spark now; a job that is running fails."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        if not self._started.cancelled() and self._started.exception() is None:
            self._started.result()[0].kill()

    def _run(self, task: Callable[[Iterable[int]], Iterable[T]], tasks: int | None) -> list[T]:
        from py4j.protocol import Py4JError

        jvm, context = self._started.result()
        try:
            parallelism = tasks or context.defaultParallelism
            return context.parallelize(range(parallelism), parallelism).mapPartitions(task).collect()
        except (Py4JError, OSError, EOFError) as error:
            if jvm.has_ended:
                raise RetryableError(f"Spark's JVM has ended: {jvm.last_words or 'killed'}") from error
            raise RetryableError(f"A Spark job failed: {_cause(error)}") from error


def _start(settings: Mapping[str, str], directories: Scratch, class_sharing: str | None) -> "tuple[Jvm, SparkContext]":
    from pyspark import SparkConf, SparkContext

    from connector.spark import jvm

    running = jvm.start(directories.files, class_sharing)
    conf = SparkConf(loadDefaults=False)
    local = {} if "spark.master" in settings and not settings["spark.master"].startswith("local") else LOCAL_SETTINGS
    paths = {
        "spark.local.dir": str(directories.files),
        "spark.python.unix.domain.socket.dir": str(directories.sockets),
    }
    conf.setAll([*{**DEFAULT_SETTINGS, **local, **paths, **settings}.items()])
    context = SparkContext(gateway=running.gateway, conf=conf)
    context.pythonExec = sys.executable
    # It would print a traceback when the JVM goes first; nobody here uses accumulators.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # no public way
    return running, context


def _cause(error: BaseException) -> str:
    """The line of Spark's long message that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("org.apache.spark", "Caused by", "pyspark.errors"))]
    return (told or lines or [repr(error)])[0][:500]
