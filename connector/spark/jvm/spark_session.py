"""Spark: starts in the background, and runs jobs."""

import gc
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from connector.config.values import SECRET_SETTING
from connector.host.errors import ConnectorError, RetryableError
from connector.host.signals import ending_if_it_hangs
from connector.host.tempdirs import TemporaryDirectories
from connector.spark.jvm.class_path import list_jars
from connector.spark.jvm.cluster import (
    MASTER,
    PYTHON,
    check_master,
    is_local,
    make_cluster_settings,
    wait_for_executor,
    write_addresses,
)
from connector.spark.jvm.jvm_command import find_spark_home
from connector.spark.jvm.jvm_process import Jvm
from connector.spark.jvm.lanes import MAINTENANCE, POOL, THREADS, TRANSACTIONS, Lane, write_pools
from connector.spark.jvm.spark_errors import explain_lost_task, translate_errors

if TYPE_CHECKING:
    from connector.spark.jvm.client import RDD, SparkContext

S = TypeVar("S")
T = TypeVar("T")

CONTEXT_TIMEOUT: Final = 300.0  # seconds: a cluster may let the application wait in a queue
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
    "spark.python.daemon.module": "connector.spark.tasks.daemon",
    # A task that has consumed blocks cannot run again: its failure fails the transaction, which is replayed.
    "spark.task.maxFailures": "1",
    # PySpark writes a larger function to a file, which stays until the session ends, with the credentials in it.
    "spark.broadcast.UDFCompressionThreshold": "1g",
}
HEAP: Final = "spark.driver.memory"
DEFAULT_HEAP: Final = "512m"  # tasks return a few kilobytes each; Spark refuses less than 450 MiB
LOCAL_SETTINGS: Final = {
    # Where the host's name does not resolve, Spark would not find itself, and print a warning to stdout.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The JVM sends heartbeats to itself. If the clock is set forward, or the container was paused, it would take itself
    # for lost, and end ten minutes later.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "10000d",
    # Spark makes a secret for the session. Without it, every user of the machine could read the functions of jobs from
    # Spark's port, with the credentials in them.
    "spark.authenticate": "true",
}
LOCAL_ENVIRONMENT: Final = {"SPARK_LOCAL_IP": "127.0.0.1"}  # for the time before Spark has read its settings


class Jobs(Protocol):
    """The jobs of Spark."""

    @property
    def cores(self) -> int:
        """How many tasks run at the same time."""

    def run(self, task: Callable[[Iterable[int]], Iterable[T]]) -> Future[list[T]]:
        """Submit a job of one task per core."""

    def map(self, call: Callable[[S], T], things: Sequence[S]) -> Future[list[T]]:
        """Submit a job that calls `call` for each thing. Return the results in order, or raise the ConnectorError
        of a call."""


class Spark:
    """A Spark context that is being started, the thread that runs its jobs one after the other, and the lane of
    maintenance."""

    def __init__(
        self, settings: Mapping[str, str], directories: TemporaryDirectories, lane: Lane = Lane.BETWEEN
    ) -> None:
        """`lane` is that of maintenance."""
        self.is_local = is_local(settings)
        environment = LOCAL_ENVIRONMENT if self.is_local else {}
        jars = list_jars(find_spark_home() / "jars", is_local=self.is_local)
        self._jvm = Jvm(directories.files, settings.get(HEAP, DEFAULT_HEAP), jars, environment)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark")
        self._numbers: dict[int, RDD[int]] = {}  # by the number of tasks
        self._lane = lane
        self._maintenance = (
            self._executor if lane is Lane.BETWEEN else ThreadPoolExecutor(THREADS, thread_name_prefix=MAINTENANCE)
        )
        fair = write_pools(directories.files) if lane is Lane.ON_A_CLUSTER else {}
        self._client_is_loaded: Future[None] = Future()
        self._context: Future[SparkContext] = self._executor.submit(
            _connect, self._jvm, self._client_is_loaded, {**fair, **settings}, directories
        )
        # The first job starts the Python workers: rows should not have to wait for them.
        self._executor.submit(self._run, list)

    def load_client(self) -> None:
        """Import PySpark, unless this is done. Spark's own thread waits for it, and then connects to the JVM.

        That thread does not import it: PySpark imports NumPy, as PyArrow does. If two threads imported both at the same
        time, one could get a module that is not complete.
        """
        from connector.spark.jvm import client  # noqa: F401

        with suppress(InvalidStateError):  # it is done
            self._client_is_loaded.set_result(None)

    @property
    def cores(self) -> int:
        """How many tasks run at the same time. Waits until Spark has started."""
        self.load_client()
        context = self._context.result()
        with translate_errors(self._jvm, "A Spark job failed"):
            return context.defaultParallelism

    def run(self, task: Callable[[Iterable[int]], Iterable[T]]) -> "Future[list[T]]":
        """Submit a job of one task per core, and return its results. Each task gets an iterator of one number."""
        self.load_client()
        return self._executor.submit(self._run, task)

    def map(self, call: Callable[[S], T], things: Sequence[S]) -> "Future[list[T]]":
        """Submit a job that calls `call` for each thing, with several things per task. Return the results in order.

        Raises the ConnectorError of a call, as it was raised in the task.
        """
        return self.map_shares(partial(_call_each, call), things)

    def map_shares(self, call: Callable[[Iterable[S]], Iterable[T]], things: Sequence[S]) -> "Future[list[T]]":
        """Submit a job that calls `call` once in each task, for the things of its share. Return the results in order.

        `call` yields one result for each thing, in order. Raises the ConnectorError of a call.
        """
        self.load_client()
        return self._executor.submit(self._map_shares, call, things)

    @property
    def maintenance_tasks(self) -> int:
        """How many maintenance tasks may run at the same time. Waits until Spark has started."""
        return self._lane.tasks(self.cores)

    def maintain(self, task: Callable[[Iterable[int]], Iterable[T]]) -> "Future[list[T]]":
        """Submit a job of one task to the lane of maintenance, and return its results."""
        self.load_client()
        return self._maintenance.submit(self._run_one, task)

    def explain_lost_task(self) -> RetryableError:
        """Return the error that says why a task of this machine was lost. Waits some seconds for the JVM to end too."""
        return explain_lost_task(self._jvm)

    def stop(self) -> None:
        """Wait for all jobs but those of maintenance, then stop Spark."""
        self.load_client()
        self._executor.shutdown()
        self._maintenance.shutdown(wait=False, cancel_futures=True)
        self._context.result().stop()
        self._jvm.stop()

    def kill(self) -> None:
        """Kill Spark at once, even while it starts. A running job fails."""
        self._client_is_loaded.cancel()
        self._jvm.kill()
        for executor in (self._executor, self._maintenance):
            executor.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _begin_job(self, pool: str) -> "Iterator[SparkContext]":
        """Yield the context for one job, when Spark has started, and translate the job's errors."""
        context = self._context.result()
        with translate_errors(self._jvm, "A Spark job failed"):
            context.setLocalProperty(POOL, pool)
            yield context

    def _run(self, task: Callable[[Iterable[int]], Iterable[T]]) -> list[T]:
        with self._begin_job(TRANSACTIONS) as context:
            return _perform(self._number_tasks(context, context.defaultParallelism), task)

    def _run_one(self, task: Callable[[Iterable[int]], Iterable[T]]) -> list[T]:
        with self._begin_job(MAINTENANCE) as context:
            return _perform(self._number_tasks(context, 1), task)

    def _number_tasks(self, context: "SparkContext", tasks: int) -> "RDD[int]":
        """Return the input of jobs with so many tasks: one number for each. It is made once, which saves each job
        milliseconds."""
        if tasks not in self._numbers:
            # PySpark reads a range itself, and a task must be able to leave its input unread: see `compaction_job`.
            self._numbers[tasks] = context.parallelize([*range(tasks)], tasks)
        return self._numbers[tasks]

    def _map_shares(self, call: Callable[[Iterable[S]], Iterable[T]], things: Sequence[S]) -> list[T]:
        # Spark would run a further task in the slot beside them, with a worker that the memory is not planned for.
        tasks_per_core = 1 if self._lane is Lane.BESIDE else TASKS_PER_CORE
        with self._begin_job(TRANSACTIONS) as context:
            tasks = min(len(things), tasks_per_core * context.defaultParallelism)
            shares = [things[first::tasks] for first in range(tasks)]  # neighbours are alike, and go to different tasks
            outcomes = _perform(context.parallelize(shares, tasks), partial(map, partial(_call_once, call)))
        found = [*map(_get_results, outcomes)]
        return [found[index % tasks][index // tasks] for index in range(len(things))]


def _perform(inputs: "RDD[S]", task: Callable[[Iterable[S]], Iterable[T]]) -> list[T]:
    """Return the results of a job: of a task for each part of its input.

    For PySpark's own `collect`, Spark reads the code of two of its largest classes in each job, to check functions of
    its own: a third of what the JVM does for a job.
    """
    batches = inputs.mapPartitions(partial(_perform_task, task))._jrdd.collectAsync().get()
    return [each for number in range(batches.size()) for each in pickle.loads(batches.get(number))]


def _perform_task(task: Callable[[Iterable[S]], Iterable[T]], part: Iterable[S]) -> Iterator[T]:
    with ending_if_it_hangs():
        gc.collect()  # the daemon has turned the automatic collection off
        yield from task(part)


def _call_each(call: Callable[[S], T], things: Iterable[S]) -> Iterator[T]:
    for thing in things:
        gc.collect()  # a task has several things
        yield call(thing)


def _call_once(call: Callable[[Iterable[S]], Iterable[T]], things: Iterable[S]) -> list[T] | ConnectorError:
    """Call in a worker. An error is returned, since Spark would hide its type."""
    try:
        return list(call(things))
    except ConnectorError as error:
        return error


def _get_results(outcome: list[T] | ConnectorError) -> list[T]:
    if isinstance(outcome, ConnectorError):
        raise outcome
    return outcome


def _make_conf(settings: Mapping[str, str], directories: TemporaryDirectories) -> dict[str, str]:
    sockets = {"spark.python.unix.domain.socket.dir": str(directories.sockets)}  # other machines do not have it
    return {
        **DEFAULT_SETTINGS,
        **(LOCAL_SETTINGS | sockets if is_local(settings) else make_cluster_settings(settings)),
        "spark.local.dir": str(directories.files),
        **write_addresses(settings),
    }


def _explain_silence(master: str) -> str:
    return (
        f"the connector has killed it, because Spark has not started on {master} within {CONTEXT_TIMEOUT:.0f} s. Check "
        "that this cluster can be reached from here, and that it accepts the application. Spark's last words"
    )


def _connect(
    jvm: Jvm, client_is_loaded: Future[None], settings: Mapping[str, str], directories: TemporaryDirectories
) -> "SparkContext":
    check_master(settings)  # to fail at once if it cannot be reached
    jvm.wait()
    client_is_loaded.result()
    from connector.spark.jvm.client import SparkConf, SparkContext

    with translate_errors(jvm, "Spark did not start"):
        gateway = jvm.connect()
        # PySpark would use the gateway and the context of an earlier JVM of this process, which has ended.
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        conf = SparkConf(loadDefaults=False).setAll([*_make_conf(settings, directories).items()])
        with jvm.limit_time(CONTEXT_TIMEOUT, _explain_silence(settings.get(MASTER, "local"))):
            context = SparkContext(gateway=gateway, conf=conf)
        if not is_local(settings):
            wait_for_executor(context, jvm)
    context.pythonExec = settings.get(PYTHON, sys.executable)
    # It would print a traceback when the JVM ends first. No job here uses accumulators.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # no public way
    return context
