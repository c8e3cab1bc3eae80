"""Many schedules, on all cores."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from simulation import schedule
from simulation.defects import DEFECTS
from simulation.environment import simulated
from simulation.schedule import Result

CHUNK: Final = 20  # schedules that a worker runs in one go


def workers() -> ProcessPoolExecutor:
    # Spawned, not forked: the libraries have started threads by now.
    return ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn"))


def violations(pool: ProcessPoolExecutor, seeds: range, defect: str | None = None) -> Iterator[Result]:
    """Of every chunk the first schedule in which a promise was broken."""
    chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
    futures = [pool.submit(_first_violation, chunk, defect) for chunk in chunks]
    try:
        for future in futures:
            if violation := future.result():
                yield violation
    finally:
        for future in futures:
            future.cancel()


def _first_violation(seeds: Sequence[int], defect: str | None) -> Result | None:
    with simulated() as patch:
        if defect:
            DEFECTS[defect](patch)
        return next((result for result in map(schedule.run, seeds) if result.violation), None)
