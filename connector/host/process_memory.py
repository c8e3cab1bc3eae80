"""How much memory this process and its descendants have: Spark's JVM, and its Python workers. Only Linux says it."""

import os
from collections import defaultdict
from pathlib import Path
from typing import Final

PROCESSES: Final = Path("/proc")
CONNECTOR: Final = "connector"
JVM: Final = "jvm"
WORKERS: Final = "workers"
_PARENT: Final = 1  # the place of a field after the name, in /proc/PID/stat
_RESIDENT: Final = 21


def read_memory(processes: Path = PROCESSES, root: int | None = None) -> dict[str, int]:
    """Return the resident bytes of the connector, the JVM and all workers. Empty where the system does not say it.

    Pages that workers share are counted for each of them.
    """
    children: defaultdict[int, list[int]] = defaultdict(list)
    resident: dict[int, int] = {}
    names: dict[int, str] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in processes.glob("[0-9]*/stat"):
        try:
            text = entry.read_text(errors="replace")  # a name may be any bytes
        except OSError:  # the process has ended
            continue
        number, _, rest = text.partition(" (")
        name, _, fields = rest.rpartition(") ")
        values = fields.split()
        children[int(values[_PARENT])].append(int(number))
        resident[int(number)], names[int(number)] = int(values[_RESIDENT]) * page, name
    root = os.getpid() if root is None else root
    if root not in resident:
        return {}
    found = {CONNECTOR: resident[root], JVM: 0, WORKERS: 0}
    left = [*children[root]]
    while left:
        process = left.pop()
        found[JVM if names[process] == "java" else WORKERS] += resident[process]
        left += children[process]
    return found
