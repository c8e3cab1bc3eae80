"""What a spec request costs: a process from its start to its answer, and to its end."""

import argparse
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.parts.report import conditions, publish

RUNS: Final = 15
REQUEST: Final = b'{"spec":{}}\n'


@dataclass(frozen=True)
class Measurement:
    """Milliseconds: medians, and the least."""

    runs: int
    to_the_answer: float
    to_the_answer_least: float
    to_the_end: float
    processor_time: float


def main() -> int:
    argparse.ArgumentParser(prog="scripts/bench spec", description=__doc__).parse_args()
    before = conditions()
    publish("spec", before, [measure()])
    return 0


def measure() -> Measurement:
    answered, ended, cpu = zip(*(_run() for _ in range(RUNS)), strict=True)
    return Measurement(
        RUNS, *(1000 * figure for figure in (median(answered), min(answered), median(ended), median(cpu)))
    )


def _run() -> tuple[float, float, float]:
    """Seconds to the answer and to the end, and of the processor."""
    before, began = _children_cpu(), time.perf_counter()
    command = [sys.executable, "-m", "connector"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(REQUEST)
        process.stdin.close()
        answer = process.stdout.readline()
        answered = time.perf_counter() - began
        status = process.wait()
    if status or not answer.startswith(b'{"spec":'):
        sys.exit(f"spec was expected, not {answer[:200]!r}: nothing is reported")
    return answered, time.perf_counter() - began, _children_cpu() - before


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
