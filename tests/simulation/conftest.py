"""`pytest tests/simulation --seed 4711` tells one schedule event by event; `--schedules 100000` runs more of them."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="run this one schedule of the simulation, and print what happens in it")
    parser.addoption("--schedules", type=int, default=0, help="how many schedules the simulation runs")
