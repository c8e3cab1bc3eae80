"""Spark jobs that compact file groups: one short task for each group, in the lane of maintenance."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.file_groups import Compact, FailedGroup, FileGroup, GroupOutcome
from connector.host.errors import BrokenTaskError, ConnectorError, RetryableError
from connector.host.machine import lower_priority
from connector.host.refresh import Refreshed
from connector.model.properties import Properties
from connector.spark.jvm.lanes import Lane
from connector.spark.jvm.start_spark import start_spark
from connector.storage.file_io import open_file_io

T = TypeVar("T")


class MaintenanceJobs(Protocol):
    """The jobs of maintenance, as `Spark` has them."""

    @property
    def maintenance_tasks(self) -> int:
        """How many of them may run at the same time."""

    def maintain(self, task: Callable[[Iterable[int]], Iterable[T]]) -> "Future[list[T]]":
        """Submit a job of one task."""


def compact_in(jobs: MaintenanceJobs) -> Compact:
    """Return a function that compacts file groups with these jobs.

    It raises nothing. If Spark fails or ends, the groups that are left fail.
    """

    def compact(
        target: TargetFiles, groups: Iterable[FileGroup], access: Refreshed[Properties]
    ) -> Generator[GroupOutcome, None, None]:
        try:
            most = jobs.maintenance_tasks
        except (ConnectorError, CancelledError) as error:
            yield from (FailedGroup(group, _as_connector_error(error)) for group in groups)
            return
        waiting = iter(groups)
        running: dict[Future[list[GroupOutcome]], FileGroup] = {}
        while True:
            for group in islice(waiting, most - len(running)):
                running[_submit(jobs, target, group, access)] = group
            if not running:
                return
            for job in wait(running, return_when=FIRST_COMPLETED).done:
                yield _get_outcome(job, running.pop(job))

    return compact


@contextmanager
def compaction_jobs(settings: Mapping[str, str]) -> Iterator[Compact]:
    """Yield a function that compacts file groups on all cores of a Spark of its own, which is killed when the block
    ends."""
    with start_spark(settings, Lane.ALONE) as started:
        yield compact_in(started.spark)


def _submit(
    jobs: MaintenanceJobs, target: TargetFiles, group: FileGroup, access: Refreshed[Properties]
) -> "Future[list[GroupOutcome]]":
    # Credentials may expire before the last group is compacted. Each group gets fresh ones.
    try:
        return jobs.maintain(partial(_compact, target, access.current().value, group))
    except (ConnectorError, RuntimeError) as error:
        failed: Future[list[GroupOutcome]] = Future()
        failed.set_exception(error)
        return failed


def _get_outcome(job: "Future[list[GroupOutcome]]", group: FileGroup) -> GroupOutcome:
    try:
        [outcome] = job.result()
    except (ConnectorError, CancelledError, RuntimeError) as error:
        return FailedGroup(group, _as_connector_error(error))
    return outcome


def _as_connector_error(error: Exception) -> ConnectorError:
    """Return the error. The others are those of jobs that were cancelled, or submitted too late."""
    if isinstance(error, ConnectorError):
        return error
    return RetryableError("Spark was stopped before the files were compacted. The table is as it was.")


def _compact(
    target: TargetFiles, file_properties: Properties, group: FileGroup, _: Iterable[int]
) -> Iterator[GroupOutcome]:
    """Compact a group in a Python worker. An error is returned, since Spark would hide its type.

    The input is left unread. So Spark replaces the worker, which keeps its low priority and its memory.
    """
    from connector.encoding.rewriting.group_compaction import compact_group  # only workers compact

    began = time.process_time()
    lower_priority()
    try:
        outcome: GroupOutcome = compact_group(open_file_io(file_properties), target, group)
    except ConnectorError as error:
        outcome = FailedGroup(group, error)
    except Exception as error:  # noqa: BLE001 - the driver gets every failure of a task
        outcome = FailedGroup(group, BrokenTaskError(type(error).__name__, str(error)))
    yield replace(outcome, processor_seconds=time.process_time() - began)
