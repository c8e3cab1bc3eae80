"""Spark, started in the background: only a job waits for it."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from connector.config.patterns import SECRET_SETTING
from connector.host.errors import RetryableError
from connector.host.tempdirs import TemporaryDirectories
from connector.spark.class_path import class_path
from connector.spark.cluster import EXECUTOR_TIMEOUT, PYTHON, cluster_settings, is_local, where_tasks_run
from connector.spark.jvm import Jvm
from connector.spark.jvm_command import spark_home
from connector.spark.spark_errors import end_of_task, translate_errors

if TYPE_CHECKING:
    from pyspark import SparkContext

S = TypeVar("S")
T = TypeVar("T")

TASKS_PER_CORE: Final = 4  # few enough to start cheaply, enough that a long last one holds up little

DEFAULT_SETTINGS: Final = {
    "spark.master": "local[*]",
    "spark.app.name": "materialize-iceberg",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Nobody looks at the history of jobs, which would fill the memory over thousands of transactions.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    # Unix sockets between JVM and workers: TCP's delayed acknowledgements cost 40 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    # Of what its pages and its event log show.
    "spark.redaction.regex": SECRET_SETTING,
    "spark.python.daemon.module": "connector.spark.daemon",
    # A task that has consumed blocks cannot run again: its failure fails the transaction, which is replayed.
    "spark.task.maxFailures": "1",
}
HEAP: Final = "spark.driver.memory"
DEFAULT_HEAP: Final = "512m"  # tasks return a few kilobytes each; Spark refuses less than 450 MiB
LOCAL_SETTINGS: Final = {
    # Where the host's name does not resolve, Spark would not find itself, and print a warning to stdout.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
LOCAL_ENVIRONMENT: Final = {"SPARK_LOCAL_IP": "127.0.0.1"}  # for the time before Spark has read its settings


class Spark:
    """A Spark context that is being started, and the thread that runs its jobs one after the other."""

    def __init__(
        self, settings: Mapping[str, str], directories: TemporaryDirectories, class_sharing: str | None = None
    ) -> None:
        self.is_local = is_local(settings)
        environment = LOCAL_ENVIRONMENT if self.is_local else {}
        jars = class_path(spark_home() / "jars", is_local=self.is_local)
        self._jvm = Jvm(directories.files, settings.get(HEAP, DEFAULT_HEAP), jars, environment, class_sharing)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark")
        self._context: Future[SparkContext] = self._executor.submit(_connect, self._jvm, settings, directories)
        self.run(list)  # the first job starts the Python workers: rows should not have to wait for them

    def run(self, task: Callable[[Iterable[int]], Iterable[T]]) -> "Future[list[T]]":
        """Run a job of one task per core; a task gets an iterator of one number."""
        return self._executor.submit(self._run, task)

    def map(self, call: Callable[[S], T], things: Sequence[S]) -> "Future[list[T]]":
        """Run a job that calls `call` for each thing, several things per task."""
        return self._executor.submit(self._map, call, things)

    def end_of_task(self) -> RetryableError:
        """Why a task of this machine has ended without a word. Waits a moment for the JVM, which may be ending too."""
        return end_of_task(self._jvm)

    def stop(self) -> None:
        """End Spark in good order, after its jobs."""
        self._executor.shutdown()
        self._context.result().stop()
        self._jvm.stop()

    def kill(self) -> None:
        """End Spark now, starting or not; a job that is running fails."""
        self._jvm.kill()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _run(self, task: Callable[[Iterable[int]], Iterable[T]]) -> list[T]:
        context = self._context.result()
        with translate_errors(self._jvm, "A Spark job failed"):
            tasks = context.defaultParallelism
            return context.parallelize(range(tasks), tasks).mapPartitions(task).collect()

    def _map(self, call: Callable[[S], T], things: Sequence[S]) -> list[T]:
        context = self._context.result()
        with translate_errors(self._jvm, "A Spark job failed"):
            tasks = min(len(things), TASKS_PER_CORE * context.defaultParallelism)
            return context.parallelize(things, tasks).map(call).collect()


def _conf(settings: Mapping[str, str], directories: TemporaryDirectories) -> dict[str, str]:
    sockets = {"spark.python.unix.domain.socket.dir": str(directories.sockets)}  # other machines do not have it
    return {
        **DEFAULT_SETTINGS,
        **(LOCAL_SETTINGS | sockets if is_local(settings) else cluster_settings(settings)),
        "spark.local.dir": str(directories.files),
        **settings,
    }


def _connect(jvm: Jvm, settings: Mapping[str, str], directories: TemporaryDirectories) -> "SparkContext":
    where_tasks_run(settings)  # to fail at once where they cannot
    with translate_errors(jvm, "Spark did not start"):
        gateway = jvm.connect()
        from pyspark import SparkConf, SparkContext

        conf = SparkConf(loadDefaults=False).setAll([*_conf(settings, directories).items()])
        context = SparkContext(gateway=gateway, conf=conf)
        if not is_local(settings):
            _wait_for_executor(context, jvm)
    context.pythonExec = settings.get(PYTHON, sys.executable)
    # It would print a traceback when the JVM ends first; nobody here uses accumulators.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # no public way
    return context


def _wait_for_executor(context: "SparkContext", jvm: Jvm) -> None:
    deadline = time.monotonic() + EXECUTOR_TIMEOUT
    scala = context._jsc.sc()
    while scala.isStopped() or scala.getExecutorMemoryStatus().size() == 1:  # that of the driver itself
        if scala.isStopped():
            reason = jvm.last_words.rpartition("Reason: ")[2].partition(" | ")[0].rstrip(".")
            raise RetryableError(
                f"the Spark master {context.master} does not run this application: {reason}. Its log and its workers' "
                "say more."
            )
        if time.monotonic() > deadline:
            raise RetryableError(
                f"the Spark master {context.master} has given no executor within {EXECUTOR_TIMEOUT:.0f} s. Check that "
                "its workers have the cores and the memory that spark.* in /advanced/spark asks for."
            )
        time.sleep(0.1)
