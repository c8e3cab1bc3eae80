"""What a spec request costs: a process from its start to its end, which answers one."""

import os
import resource
import subprocess
import sys
import time
from statistics import median
from typing import Final

RUNS: Final = 15
REQUEST: Final = b'{"spec":{}}\n'


def main() -> int:
    measured = [_run() for _ in range(RUNS)]
    wall, cpu = (sorted(values) for values in zip(*measured, strict=True))
    print(f"{RUNS} runs, load before {os.getloadavg()[0]:.2f}; milliseconds: least, median, most")
    for name, values in (("start to end", wall), ("process time", cpu)):
        print(f"{name:14}{values[0] * 1000:8.0f}{median(values) * 1000:8.0f}{values[-1] * 1000:8.0f}")
    return 0


def _run() -> tuple[float, float]:
    before, began = _children_cpu(), time.perf_counter()
    answer = subprocess.run([sys.executable, "-m", "connector"], input=REQUEST, capture_output=True, check=True).stdout
    seconds = time.perf_counter() - began
    assert answer.startswith(b'{"spec":')
    return seconds, _children_cpu() - before


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
