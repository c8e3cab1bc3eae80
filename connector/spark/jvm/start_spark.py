"""Starts Spark within the limits of this machine. It can be imported before PyIceberg is."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from connector.host.cgroup import Cgroup
from connector.host.tempdirs import TemporaryDirectories, make_directories
from connector.spark.jvm.lanes import Lane, choose_lane
from connector.spark.jvm.spark_session import Spark
from connector.spark.limits import Limits


@dataclass(frozen=True)
class SessionSpark:
    """Spark with a session's directories, and how much of the machine the session takes."""

    spark: Spark
    directories: TemporaryDirectories
    limits: Limits


@contextmanager
def start_spark(settings: Mapping[str, str], lane: Lane | None = None) -> Iterator[SessionSpark]:
    """Yield Spark while it is being started. Spark is killed when the block ends.

    `lane` is that of maintenance. None: the lane of a session on this machine.
    """
    with make_directories() as directories:
        limits = Limits.of(Cgroup(), directories.files)
        lane = lane or choose_lane(settings, limits.maintenance_tasks)
        spark = Spark({**_local_tasks(limits, lane), **settings}, directories, lane=lane)
        try:
            yield SessionSpark(spark, directories, limits)
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
