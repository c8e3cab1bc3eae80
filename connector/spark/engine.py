"""The engine of a session: Spark with its limits and directories. It starts before PyIceberg is imported."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from connector.host.cgroup import Cgroup
from connector.host.machine import is_in_memory
from connector.host.tempdirs import TemporaryDirectories, make_directories
from connector.spark.jvm.lanes import Lane, choose_lane
from connector.spark.jvm.spark_session import Spark
from connector.spark.limits import Limits


@dataclass(frozen=True)
class Engine:
    """Spark with a session's directories, and how large a spool may grow there."""

    spark: Spark
    directories: TemporaryDirectories
    spool_limit: int  # bytes
    disk_limit: int  # bytes of a spool and of sorted runs together


@contextmanager
def start_engine(settings: Mapping[str, str]) -> Iterator[Engine]:
    """Yield Spark while it is being started. Spark is killed when the block ends."""
    with make_directories() as directories:
        limits = Limits.of(Cgroup(), directories.files)
        lane = choose_lane(settings, limits.maintenance_tasks)
        spark = Spark({**_local_tasks(limits, lane), **settings}, directories, lane=lane)
        try:
            disk = limits.spool if is_in_memory(directories.files) else 2 * limits.spool
            yield Engine(spark, directories, limits.spool, disk)
        finally:
            spark.kill()


def _local_tasks(limits: Limits, lane: Lane) -> dict[str, str]:
    """Return the settings of tasks on this machine. A job of transactions never has more tasks than the limit."""
    if lane is not Lane.BESIDE:
        return {"spark.master": f"local[{limits.tasks}]"}
    return {
        "spark.master": f"local[{limits.tasks + limits.maintenance_tasks}]",
        "spark.default.parallelism": str(limits.tasks),
    }
