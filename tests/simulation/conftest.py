"""`pytest tests/simulation -n 0 -k lands_once --seed 4711` tells one schedule event by event; `--schedules 1000000`
runs more."""

from typing import Final

import pytest

SCHEDULES: Final = 1_000
ENOUGH: Final = 16_000  # schedules to find each planted defect in; most are found within ten
QUICK_SCHEDULES: Final = 300
MANY_SCHEDULES: Final = 100_000
BLOCK: Final = 1_000  # schedules of one test at most
BLOCKS: Final = 4  # that run side by side, also of few schedules


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="run this one schedule of the simulation, and print what happens in it")
    parser.addoption("--schedules", type=int, help="how many schedules the simulation runs")
    parser.addoption("--record-seeds", action="store_true", help="record the seeds that find the planted defects")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`seeds` are those of a block."""
    if "seeds" in metafunc.fixturenames:
        blocks = _blocks(metafunc.config, is_slow=metafunc.definition.get_closest_marker("slow") is not None)
        metafunc.parametrize("seeds", blocks, ids=lambda seeds: f"{seeds.start}-{seeds[-1]}")


def _blocks(config: pytest.Config, *, is_slow: bool) -> list[range]:
    if (seed := config.getoption("--seed")) is not None:
        return [range(seed, seed + 1)]
    first = config.getoption("--schedules") or (QUICK_SCHEDULES if config.getoption("--quick") else SCHEDULES)
    seeds = range(first, first + MANY_SCHEDULES) if is_slow else range(first)
    size = min(BLOCK, len(seeds) // BLOCKS or 1)
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]
