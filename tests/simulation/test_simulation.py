"""Every row once, in thousands of schedules in which processes die, freeze and wake up, and any answer may be wrong.

Only the machine around the connector is simulated: sessions, fence, state, recovery, commits and the collection of
orphans are the shipped code, and the metadata are PyIceberg's. What a schedule breaks is told with its seed, which
replays it exactly: `pytest tests/simulation -k once --seed 4711`.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import Final

import pytest

from simulation import schedule
from simulation.campaign import violations, workers
from simulation.defects import DEFECTS
from simulation.environment import simulated

SCHEDULES: Final = 2_500
MANY_SCHEDULES: Final = 50_000
ENOUGH: Final = 2_000  # schedules to find a defect; most are found within ten


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with workers() as pool:
        yield pool


def test_every_row_of_a_committed_transaction_lands_once(
    pool: ProcessPoolExecutor, pytestconfig: pytest.Config
) -> None:
    if (seed := pytestconfig.getoption("--seed", None)) is not None:
        _tell(seed)
    else:
        _assert_none(pool, range(pytestconfig.getoption("--schedules", 0) or SCHEDULES))


@pytest.mark.slow
def test_every_row_lands_once_in_many_more_schedules(pool: ProcessPoolExecutor) -> None:
    _assert_none(pool, range(SCHEDULES, SCHEDULES + MANY_SCHEDULES))


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(pool: ProcessPoolExecutor, defect: str) -> None:
    assert any(violations(pool, range(ENOUGH), defect))


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_replays_its_schedule_exactly(seed: int) -> None:
    with simulated():
        assert schedule.run(seed) == schedule.run(seed)


def _assert_none(pool: ProcessPoolExecutor, seeds: range) -> None:
    found = list(islice(violations(pool, seeds), 10))
    told = "\n".join(f"--seed {result.seed}: {result.violation}" for result in found)
    assert not found, f"at least {len(found)} of {len(seeds)} schedules break a promise:\n{told}"


def _tell(seed: int) -> None:
    with simulated():
        result = schedule.run(seed)
    print(*result.events, sep="\n")
    assert result.violation is None, result.violation
