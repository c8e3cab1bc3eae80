"""How much of the machine a session takes: fewer concurrent tasks and a smaller spool where there is less memory."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from connector.host.cgroup import Cgroup
from connector.host.errors import UserError
from connector.host.machine import count_cores, is_in_memory, measure_memory

_MB: Final = 1 << 20
# What a session with a table of tens of columns was measured to take, and a quarter more; see docs/performance.md.
_FIXED: Final = 448 * _MB  # the JVM, this process, and the workers' parent
_TASK: Final = 160 * _MB
SPOOL_LIMIT: Final = 1 << 30  # bytes: what arrives at full speed while a cold Spark starts
_LEAST_SPOOL: Final = 96 * _MB  # room for blocks to be written while others are being filled
_SPOOL_BEFORE_MAINTENANCE: Final = 256 * _MB  # a smaller one would slow transactions down


@dataclass(frozen=True)
class Limits:
    """How many tasks a session runs at the same time, and how large its spool may grow."""

    tasks: int  # of transactions, at the same time
    spool: int  # bytes
    maintenance_tasks: int = 0  # beside them; 0: there is no memory for one
    spools_in_memory: bool = False  # the directory of the spool is in memory

    @classmethod
    def of(cls, group: Cgroup, spool_directory: Path) -> "Limits":
        """Return the limits for this machine or container. Raises UserError if its memory is too small."""
        spools_in_memory = is_in_memory(spool_directory)
        cores = count_cores()
        if group.cores:
            cores = min(cores, math.ceil(group.cores))
        memory = find_memory(group)
        if memory is None:
            return cls(cores, SPOOL_LIMIT, 1, spools_in_memory)
        return _divide(memory, cores, spools_in_memory=spools_in_memory)

    @property
    def disk(self) -> int:
        """How many bytes a spool and sorted runs may have together."""
        return self.spool if self.spools_in_memory else 2 * self.spool


def find_memory(group: Cgroup) -> int | None:
    """Return the bytes of memory of this machine or container. None: without a limit."""
    return min(filter(None, (group.memory, measure_memory())), default=None)


def _divide(memory: int, cores: int, *, spools_in_memory: bool) -> Limits:
    available = memory - _FIXED - (_LEAST_SPOOL if spools_in_memory else 0)
    if available < _TASK:
        least = (memory - available + _TASK) // _MB
        raise UserError(
            f"this machine or container has {memory // _MB} MB of memory, and a session needs {least} MB"
            f"{', its temporary files among them' if spools_in_memory else ''}: give it more."
        )
    tasks = min(cores, available // _TASK)
    left = memory - _FIXED - tasks * _TASK
    maintenance_tasks = int(left >= _TASK + (_SPOOL_BEFORE_MAINTENANCE if spools_in_memory else 0))
    spool = left - maintenance_tasks * _TASK if spools_in_memory else SPOOL_LIMIT
    return Limits(tasks, min(spool, SPOOL_LIMIT), maintenance_tasks, spools_in_memory)
