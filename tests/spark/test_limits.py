"""A session takes no more than its control group has, and says at once where that is too little."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connector.host import machine
from connector.host.cgroup import Cgroup
from connector.host.errors import UserError
from connector.host.refresh import Lease
from connector.model.properties import Properties
from connector.spark import limits
from connector.spark.jobs import compaction_job, rewrite_job
from connector.spark.jvm import start_spark
from connector.spark.limits import SPOOL_LIMIT, Limits

MB = 1 << 20
ON_TMPFS = Path("/dev/shm")
CORES = len(os.sched_getaffinity(0))


def group(directory: Path, **files: str) -> Cgroup:
    (directory / "membership").write_text("0::/\n")
    for name, text in files.items():
        (directory / name.replace("_", ".")).write_text(text)
    return Cgroup(directory / "membership", directory)


def test_without_limits_there_is_a_task_for_every_core(tmp_path: Path) -> None:
    assert Limits.of(group(tmp_path), tmp_path) == Limits(CORES, SPOOL_LIMIT, maintenance_tasks=1)


@pytest.mark.parametrize(("quota", "tasks"), [("20000", 1), ("100000", 1), ("6400000", CORES)])
def test_tasks_are_no_more_than_the_quota_of_processor_time_has_cores(tmp_path: Path, quota: str, tasks: int) -> None:
    assert Limits.of(group(tmp_path, cpu_max=f"{quota} 100000"), tmp_path).tasks == tasks


def test_little_memory_makes_fewer_tasks(tmp_path: Path) -> None:
    assert Limits.of(group(tmp_path, memory_max=str(620 * MB)), tmp_path) == Limits(1, SPOOL_LIMIT)


@pytest.mark.parametrize(("memory", "tasks"), [(1000 * MB, 3), (64_000 * MB, 8), (None, 8)])
def test_a_machine_with_many_cores_and_little_memory_has_fewer_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int | None, tasks: int
) -> None:
    """Without a control group that limits it."""
    monkeypatch.setattr(limits, "count_cores", lambda: 8)
    monkeypatch.setattr(limits, "measure_memory", lambda: memory)
    assert Limits.of(group(tmp_path), tmp_path).tasks == tasks


def test_a_machine_has_the_memory_of_its_kernel() -> None:
    (total,) = (line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    assert machine.measure_memory() == int(total.split()[1]) << 10


def test_a_system_that_does_not_say_its_memory_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: int(name))
    assert machine.measure_memory() is None


class _StartedError(Exception):
    """Spark was started with this master."""


def _begin_rewrite() -> None:
    source: Any = SimpleNamespace(size=1)
    access: Any = SimpleNamespace(current=lambda: Lease.until(Properties(), None))
    with rewrite_job.rewrite_jobs({}) as rewrite:
        rewrite(source, [source], access)


def _begin_compaction() -> None:
    with compaction_job.compaction_jobs({}):
        pass


@pytest.mark.parametrize("begin", [_begin_rewrite, _begin_compaction])
def test_jobs_without_a_session_keep_to_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[[], None]
) -> None:
    def start(settings: Mapping[str, str], *_: object, **__: object) -> None:
        raise _StartedError(settings["spark.master"])

    monkeypatch.setattr(start_spark, "Cgroup", lambda: group(tmp_path, memory_max=str(620 * MB)))
    monkeypatch.setattr(start_spark, "Spark", start)
    with pytest.raises(_StartedError, match=r"local\[1\]"):
        begin()


@pytest.mark.parametrize(("tasks_of_room", "maintenance_tasks"), [(CORES, 0), (CORES + 1, 1)])
def test_maintenance_has_a_task_where_the_memory_is_enough_for_one_more(
    tmp_path: Path, tasks_of_room: int, maintenance_tasks: int
) -> None:
    memory = (448 + tasks_of_room * 160) * MB
    share = Limits.of(group(tmp_path, memory_max=str(memory)), tmp_path)
    assert share == Limits(CORES, SPOOL_LIMIT, maintenance_tasks)


def test_a_spool_in_memory_comes_before_a_task_of_maintenance(tmp_path: Path) -> None:
    enough = (448 + (CORES + 1) * 160 + 256) * MB
    assert Limits.of(group(tmp_path, memory_max=str(enough)), ON_TMPFS) == Limits(CORES, 256 * MB, 1, True)
    assert Limits.of(group(tmp_path, memory_max=str(enough - 1)), ON_TMPFS) == Limits(CORES, 416 * MB - 1, 0, True)


@pytest.mark.parametrize(("directory", "spools"), [(None, 2), (ON_TMPFS, 1)])
def test_sorted_runs_have_as_much_of_the_disk_as_the_spool(tmp_path: Path, directory: Path | None, spools: int) -> None:
    """In memory, they share what the tasks leave."""
    share = Limits.of(group(tmp_path, memory_max=str(1024 * MB)), directory or tmp_path)
    assert share.disk == spools * share.spool


def test_a_spool_in_memory_has_what_tasks_leave_of_it(tmp_path: Path) -> None:
    share = Limits.of(group(tmp_path, memory_max=str(1024 * MB)), ON_TMPFS)
    assert share.spool == (1024 - 448 - share.tasks * 160) * MB >= 96 * MB


@pytest.mark.parametrize(("directory", "needed"), [(None, 608), (ON_TMPFS, 704)])
def test_too_little_memory_is_said_with_what_is_needed(tmp_path: Path, directory: Path | None, needed: int) -> None:
    little = group(tmp_path, memory_max=str((needed - 1) * MB))
    with pytest.raises(UserError, match=rf"has {needed - 1} MB of memory, and a session needs {needed} MB"):
        Limits.of(little, directory or tmp_path)
    enough = group(tmp_path, memory_max=str(needed * MB))
    assert Limits.of(enough, directory or tmp_path).tasks == 1
