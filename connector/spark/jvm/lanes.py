"""Lanes: how maintenance gets its turn beside the jobs of transactions, which come first.

On one machine, maintenance has a task of its own, beside one for each core. Its worker has the lowest priority, so it
takes a core only while no other process needs it. A cluster's tasks are shared: Spark's fair scheduler gives each free
core to a transaction first, and a maintenance task is short.
"""

from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Final

from connector.spark.jvm.cluster import is_local

POOL: Final = "spark.scheduler.pool"  # a property of the thread that submits a job
TRANSACTIONS: Final = "transactions"
MAINTENANCE: Final = "maintenance"
THREADS: Final = 64  # that submit jobs, at most
_ON_A_CLUSTER: Final = 2  # tasks at the same time

# A pool that has less than its minShare gets free cores before all others.
_POOLS: Final = f"""<?xml version="1.0"?>
<allocations>
  <pool name="{TRANSACTIONS}"><schedulingMode>FIFO</schedulingMode><minShare>1000000</minShare></pool>
  <pool name="{MAINTENANCE}"><schedulingMode>FIFO</schedulingMode><minShare>0</minShare></pool>
</allocations>
"""


class Lane(Enum):
    """When the tasks of maintenance run."""

    BETWEEN = auto()  # after other jobs, which then wait: there is no memory for another task
    BESIDE = auto()  # at the same time as the tasks of other jobs
    ON_A_CLUSTER = auto()  # the same, on the cores that other jobs leave free
    ALONE = auto()  # on all cores: there are no other jobs

    def tasks(self, cores: int) -> int:
        """Return how many maintenance tasks may run at the same time. `cores` are those of the transactions."""
        match self:
            case Lane.ALONE:
                return min(cores, THREADS)
            case Lane.ON_A_CLUSTER:
                return _ON_A_CLUSTER
            case Lane.BETWEEN | Lane.BESIDE:
                return 1


def choose_lane(settings: Mapping[str, str], spare_tasks: int) -> Lane:
    """Return the lane of a session. `spare_tasks` are those that this machine has room for, beside one for each core.

    A number of tasks that a user has set is kept.
    """
    if not is_local(settings):
        return Lane.ON_A_CLUSTER
    return Lane.BESIDE if spare_tasks and "spark.master" not in settings else Lane.BETWEEN


def write_pools(directory: Path) -> dict[str, str]:
    """Write the file of the pools. Return the settings of Spark's fair scheduler."""
    file = directory / "pools.xml"
    file.write_text(_POOLS)
    return {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": file.as_uri()}
