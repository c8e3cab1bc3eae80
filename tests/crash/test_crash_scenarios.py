"""Every scenario twice: as the connector is it keeps its promise, and with a defect that the scenario exists to catch
it is seen not to."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from crash.engines import Engines
from crash.faults import Faults
from crash.lakes import Kind, Servers, open_lake
from crash.ledger import PromiseBrokenError
from crash.scenarios import (
    CAUGHT_LATE,
    IN_CI,
    PLANTED,
    READ_BY_SPARK_IN_CI,
    SCENARIOS,
    SIMULATED,
    WITHOUT_CI,
    Planted,
    Scenario,
)
from crash.shards import Event
from crash.task import Task
from simulation.crash_defects import CRASH_DEFECTS
from simulation.defects import DEFECTS
from simulation.update_defects import UPDATE_DEFECTS
from support.consistency_report import MEASURED
from support.engines.spark_sql import IN_ITS_WORKER
from support.sessions.connector_process import ConnectorEndedError

pytestmark = [pytest.mark.spark, pytest.mark.crash]

BROKEN: Final = (PromiseBrokenError, ConnectorEndedError)

Record: TypeAlias = Callable[[str, object], None]


@dataclass(frozen=True)
class Stage:
    """Where scenarios are held: the servers, the engines that read what they leave, and a directory for one task."""

    servers: Servers
    engines: Engines
    directory: Path

    @contextmanager
    def task(self, scenario: Scenario, kind: Kind, defect: str | None) -> Iterator[Task]:
        faults = Faults(self.directory / "faults")
        with (
            open_lake(kind, self.servers, self.directory, faults) as lake,
            closing(Task(self.directory, lake, faults, defect, scenario.format_version)) as task,
        ):
            yield task

    def hold(self, scenario: Scenario, task: Task) -> int:
        """The fault, transactions after it, and every row of every table; how many rows each engine has read."""
        scenario.fault(task)
        assert task.faults.unmet() == []
        assert task.fired
        task.run_to(Event.RECORDED, 2)
        task.end()
        task.check(complete=True)
        assert not task.staged
        assert task.runtime.checkpoint > task.committed_at_fault
        return task.audit(self.engines)


@pytest.fixture
def stage(servers: Servers, scenario: Scenario, request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    reads_with_spark = request.config.getoption("--all") or scenario.name in READ_BY_SPARK_IN_CI
    engines = request.getfixturevalue("engines_with_spark" if reads_with_spark else "engines")
    return Stage(servers, engines, tmp_path)


def _marks(scenario: Scenario, *, in_ci: bool) -> list[pytest.MarkDecorator]:
    spark = [IN_ITS_WORKER] if scenario.name in READ_BY_SPARK_IN_CI else []
    return spark if in_ci else [*spark, pytest.mark.slow]


def _matrix() -> Iterator[Any]:
    for scenario in SCENARIOS:
        for kind in (*scenario.on, *scenario.without_defects_on):
            marks = _marks(scenario, in_ci=scenario.name in IN_CI[kind])
            yield pytest.param(scenario, kind, id=f"{scenario.name}-{kind}", marks=marks)


@pytest.mark.parametrize(("scenario", "kind"), list(_matrix()))
def test_every_committed_row_is_in_its_table_once(
    scenario: Scenario, kind: Kind, stage: Stage, record_property: Record
) -> None:
    measured: dict[str, object] = {"scenario": scenario.name, "catalog": kind.value}
    record_property(MEASURED, measured)
    with stage.task(scenario, kind, defect=None) as task:
        rows = stage.hold(scenario, task)
        measured |= {"faults": task.fired, "conflicts": task.conflicts, "sessions": task.sessions_opened, "rows": rows}


def _defects() -> Iterator[Any]:
    """A defect that another scenario catches already takes its other turns only with --all."""
    caught = {*SIMULATED, *CAUGHT_LATE}
    for planted in PLANTED:
        (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == planted.scenario]
        kinds = planted.on or scenario.on
        for kind in kinds:
            is_new = planted.defect not in caught and scenario.name not in WITHOUT_CI
            marks = _marks(scenario, in_ci=kind is kinds[0] and is_new)
            yield pytest.param(scenario, planted, kind, id=f"{scenario.name}-{planted.defect}-{kind}", marks=marks)
        caught.add(planted.defect)


@pytest.mark.parametrize(("scenario", "planted", "kind"), list(_defects()))
def test_a_planted_defect_is_caught(
    scenario: Scenario, planted: Planted, kind: Kind, stage: Stage, record_property: Record
) -> None:
    record_property(MEASURED, {"scenario": scenario.name, "catalog": kind.value, "defect": planted.defect})
    with stage.task(scenario, kind, planted.defect) as task, pytest.raises(BROKEN, match=planted.caught):
        stage.hold(scenario, task)


def test_every_scenario_has_a_defect_to_catch() -> None:
    assert {planted.scenario for planted in PLANTED} == {scenario.name for scenario in SCENARIOS}


def test_a_defect_that_is_left_to_the_simulation_is_planted_there() -> None:
    assert SIMULATED.keys() <= {planted.defect for planted in PLANTED}
    assert {*SIMULATED.values()} <= DEFECTS.keys() | UPDATE_DEFECTS.keys() | CRASH_DEFECTS.keys()
