"""Compaction in the lane of maintenance: beside the jobs of transactions, with the lowest priority."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.parquet.file_options import Destination
from connector.encoding.rewriting.file_groups import CompactedGroup, FailedGroup, FileGroup
from connector.host.errors import ConnectorError, RetryableError, UserError
from connector.host.refresh import Lease, Refreshed
from connector.model.properties import Properties
from connector.spark.jobs.compaction_job import compact_in
from connector.spark.jvm.lanes import MAINTENANCE, TRANSACTIONS, Lane, choose_lane
from support.repository import REPOSITORY
from support.snapshots import check_text

pytestmark = pytest.mark.xdist_group("compaction_job")  # one process of the tests runs the scenarios

SCENARIOS = Path(__file__).with_name("lane_scenarios.py")
COMPACTION = TargetFiles((), Destination("file:///table", Properties(), "compact-1"))
GROUPS = [FileGroup((SourceFile(f"file:///{number}", 1),)) for number in range(5)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What happened in the scenarios, by their names."""
    command = [sys.executable, str(SCENARIOS), str(tmp_path_factory.mktemp("lane"))]
    return json.loads(subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, timeout=240).stdout)


@pytest.mark.spark
def test_groups_are_compacted_while_a_transaction_holds_its_tasks(found: Any) -> None:
    assert found["compact_beside_a_transaction"] == [[1, 2, 3], [4, 5], False]


@pytest.mark.spark
def test_a_transaction_has_its_tasks_while_a_group_is_compacted(found: Any) -> None:
    """It has two, and not the one beside them."""
    assert found["transact_beside_a_compaction"] == [1, 2, 2, False]


@pytest.mark.spark
def test_a_job_of_a_transaction_never_has_more_tasks_than_its_share(found: Any) -> None:
    """A third one would start a third worker, which stays. Neighbours go to different tasks, and results are in
    order."""
    assert found["divide_among_tasks"] == [[0, 0], [1, 1], [2, 0], [3, 1], [4, 0]]


@pytest.mark.spark
def test_each_kind_of_job_has_its_pool(found: Any) -> None:
    """On a cluster, a pool says which tasks get a free core first."""
    assert found["find_pools"] == [[TRANSACTIONS], [TRANSACTIONS], [MAINTENANCE]]


@pytest.mark.spark
def test_each_kind_of_job_is_watched_for_hanging(found: Any) -> None:
    assert found["find_watched"] == [True, True, True]


@pytest.mark.spark
def test_no_worker_of_low_priority_runs_a_task_of_a_transaction(found: Any) -> None:
    assert found["find_policies"] == [os.sched_getscheduler(0)] * 5


@pytest.mark.spark
def test_a_group_that_fails_does_not_stop_the_others(found: Any) -> None:
    missing, broken, rows = found["fail_some"]
    assert "missing.parquet" in missing
    assert broken.startswith("UnreadableFileError: ")
    assert rows == [1]


@pytest.mark.spark
def test_groups_that_are_left_fail_when_spark_is_killed(found: Any) -> None:
    rows, *_, last = found["end_early"]
    assert rows == [1]
    assert last.startswith("RetryableError: ")


class Jobs:
    """Jobs that are done at once."""

    def __init__(self, tasks: int, *failures: Exception) -> None:
        self.maintenance_tasks = tasks
        self.given: list[Properties] = []
        self._failures = iter(failures)

    def maintain(self, task: Callable[[Iterable[int]], Iterable[Any]]) -> "Future[list[Any]]":
        assert isinstance(task, partial)
        _, properties, group = task.args
        self.given.append(properties)
        done: Future[list[Any]] = Future()
        if error := next(self._failures, None):
            done.set_exception(error)
        else:
            done.set_result([CompactedGroup(group, (), ())])
        return done


def access(*values: Properties | ConnectorError) -> Refreshed[Properties]:
    """Credentials that are refreshed with each use."""
    remaining = iter(values)

    def fetch() -> Lease[Properties]:
        value = next(remaining, Properties())
        if isinstance(value, ConnectorError):
            raise value
        return Lease(value, None, time.time())

    return Refreshed("the credentials", fetch)


@pytest.mark.parametrize("tasks", [1, 3])
def test_no_more_groups_are_submitted_than_tasks_may_run(tasks: int) -> None:
    jobs = Jobs(tasks)
    outcomes = compact_in(jobs)(COMPACTION, GROUPS, access())
    first = next(outcomes)
    assert len(jobs.given) == tasks
    assert {first.group, *(outcome.group for outcome in outcomes)} == {*GROUPS}


def test_when_no_more_groups_come_those_that_run_are_finished() -> None:
    taken: list[FileGroup] = []

    def take() -> Iterator[FileGroup]:
        while len(taken) < 3:
            taken.append(GROUPS[len(taken)])
            yield taken[-1]

    outcomes = compact_in(Jobs(2))(COMPACTION, take(), access())
    assert next(outcomes).group in taken
    assert len(taken) == 2, "a group is taken when a task is free"
    assert len([*outcomes]) == 2


def test_each_group_gets_credentials_that_are_valid() -> None:
    jobs = Jobs(1)
    some = [Properties({"token": str(number)}) for number in range(5)]
    outcomes = [*compact_in(jobs)(COMPACTION, GROUPS, access(*some))]
    assert jobs.given == some
    assert [outcome.group for outcome in outcomes] == GROUPS


def test_a_group_without_valid_credentials_fails_alone() -> None:
    refused = UserError("refused")
    outcomes = [*compact_in(Jobs(1))(COMPACTION, GROUPS[:2], access(refused))]
    assert outcomes == [FailedGroup(GROUPS[0], refused), CompactedGroup(GROUPS[1], (), ())]


def test_a_group_whose_job_was_cancelled_says_that_spark_was_stopped() -> None:
    [outcome, _] = compact_in(Jobs(1, RuntimeError("cannot schedule new futures")))(COMPACTION, GROUPS[:2], access())
    assert isinstance(outcome, FailedGroup)
    assert isinstance(outcome.error, RetryableError)
    check_text("spark_errors", "a compaction that Spark's end has stopped", str(outcome.error))


@dataclass
class Broken:
    """Jobs of a Spark that did not start."""

    error: ConnectorError

    @property
    def maintenance_tasks(self) -> int:
        raise self.error

    def maintain(self, _: Callable[[Iterable[int]], Iterable[Any]]) -> "Future[list[Any]]":
        raise AssertionError


def test_all_groups_fail_if_spark_does_not_start() -> None:
    error = RetryableError("no JVM")
    assert [*compact_in(Broken(error))(COMPACTION, GROUPS, access())] == [FailedGroup(each, error) for each in GROUPS]


@pytest.mark.parametrize(
    ("settings", "spare_tasks", "lane"),
    [
        ({}, 1, Lane.BESIDE),
        ({}, 0, Lane.BETWEEN),
        ({"spark.master": "local[1]"}, 1, Lane.BETWEEN),
        ({"spark.master": "spark://host:7077"}, 0, Lane.ON_A_CLUSTER),
    ],
)
def test_the_lane_of_a_session(settings: dict[str, str], spare_tasks: int, lane: Lane) -> None:
    assert choose_lane(settings, spare_tasks) is lane
