"""This process and its descendants: Spark's JVM, and its Python workers. Only Linux says something of them."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final

from connector.host.groups import group_by

PROCESSES: Final = Path("/proc")
CONNECTOR: Final = "connector"
JVM: Final = "jvm"
WORKERS: Final = "workers"
# Variables that this process has set for itself. Its child processes set them as they need them.
NOT_INHERITED: Final = set[str]()
_STOPPED: Final = "T"  # by a signal; a debugger's process has another letter
_STATE: Final = 0  # the place of a field after the name, in /proc/PID/stat
_PARENT: Final = 1
_RESIDENT: Final = 21


@dataclass(frozen=True)
class _Process:
    number: int
    name: str
    parent: int
    is_stopped: bool
    resident: int  # bytes


def read_memory(processes: Path = PROCESSES, root: int | None = None) -> dict[str, int]:
    """Return the resident bytes of the connector, the JVM and all workers. Empty where the system does not say it.

    Pages that workers share are counted for each of them.
    """
    found = _read_processes(processes)
    root = os.getpid() if root is None else root
    if root not in found:
        return {}
    memory = {CONNECTOR: found[root].resident, JVM: 0, WORKERS: 0}
    for process in _find_descendants(found, root):
        memory[JVM if process.name == "java" else WORKERS] += process.resident
    return memory


def find_stopped(root: int, processes: Path = PROCESSES) -> list[int]:
    """Return the numbers of a process's descendants that a signal has stopped (SIGSTOP)."""
    return [process.number for process in _find_descendants(_read_processes(processes), root) if process.is_stopped]


def _read_processes(processes: Path) -> dict[int, _Process]:
    page = os.sysconf("SC_PAGE_SIZE")
    found = {}
    for entry in processes.glob("[0-9]*/stat"):
        try:
            text = entry.read_text(errors="replace")  # a name may be any bytes
        except OSError:  # the process has ended
            continue
        number, _, rest = text.partition(" (")
        name, _, fields = rest.rpartition(") ")
        values = fields.split()
        is_stopped, resident = values[_STATE] == _STOPPED, int(values[_RESIDENT]) * page
        found[int(number)] = _Process(int(number), name, int(values[_PARENT]), is_stopped, resident)
    return found


def _find_descendants(processes: Mapping[int, _Process], root: int) -> Iterator[_Process]:
    children = group_by(processes.values(), attrgetter("parent"))
    left = [*children.get(root, ())]
    while left:
        process = left.pop()
        yield process
        left += children.get(process.number, ())
