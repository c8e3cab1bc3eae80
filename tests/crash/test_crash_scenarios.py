"""Every scenario twice: as the connector is it keeps its promise, and with a defect that the scenario exists to catch it
is seen not to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crash.ledger import PromiseBrokenError
from crash.scenarios import PLANTED, SCENARIOS, Planted, Scenario
from crash.shards import Event
from crash.task import Task
from support.connector_process import ConnectorEndedError

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def run(scenario: Scenario, directory: Path, defect: str | None) -> None:
    """The fault, transactions after it, and every row of every table."""
    task = Task(directory, defect)
    try:
        scenario.fault(task)
        assert task.fired
        task.run_to(Event.RECORDED, 2)
        task.end()
        task.check(complete=True)
        assert not task.staged
        assert task.runtime.checkpoint > task.committed_at_fault
    finally:
        task.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_committed_row_is_in_its_table_once(scenario: Scenario, tmp_path: Path) -> None:
    run(scenario, tmp_path, defect=None)


def _cases() -> Iterator[Any]:
    """A defect that another scenario catches already takes its other turns only with --all."""
    caught = set()
    for planted in PLANTED:
        marks = [pytest.mark.slow] if planted.defect in caught else []
        yield pytest.param(planted, id=f"{planted.scenario}-{planted.defect}", marks=marks)
        caught.add(planted.defect)


@pytest.mark.parametrize("planted", list(_cases()))
def test_a_planted_defect_is_caught(planted: Planted, tmp_path: Path) -> None:
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == planted.scenario]
    with pytest.raises((PromiseBrokenError, ConnectorEndedError), match=planted.caught):
        run(scenario, tmp_path, planted.defect)


def test_every_scenario_has_a_defect_to_catch() -> None:
    assert {planted.scenario for planted in PLANTED} == {scenario.name for scenario in SCENARIOS}
