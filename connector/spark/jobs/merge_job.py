"""The Spark job that merges the sorted runs of all tasks of a transaction into data files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connector.encoding.runs.run_merging import MergeRange, group_ranges, plan_merge
from connector.host.errors import ConnectorError
from connector.model.state import DataFile
from connector.spark.blocks.transaction_files import (
    Layouts,
    StoredObject,
    StoredRun,
    TableLayout,
    TemporaryFile,
    delete_unstaged,
    remove_objects,
)
from connector.spark.jvm.spark_session import Jobs
from connector.spark.tasks.arranged_files import find_sort_columns, write_merged
from connector.spark.tasks.write_task import explain_task_failure


@dataclass(frozen=True)
class MergeUnit:
    """What one call merges."""

    table_index: int
    ranges: tuple[MergeRange, ...]
    run_files: tuple[TemporaryFile, ...]  # of the table


@dataclass
class _Merging:
    """Merges the units of one task. After a failure, it merges no more of them."""

    layouts: Mapping[int, TableLayout]
    failure: ConnectorError | None = None

    def __call__(self, unit: MergeUnit) -> tuple[DataFile, ...] | ConnectorError:
        """Return the files, or why there are none: the driver has to know the files of other units."""
        if self.failure is None:
            try:
                return tuple(write_merged(self.layouts[unit.table_index], unit.ranges, unit.run_files))
            except ConnectorError as error:
                self.failure = error
            except OSError as error:
                self.failure = explain_task_failure(error)
        return self.failure


class MergeJob:
    """A job that merges the runs of each table."""

    def __init__(self, jobs: Jobs, layouts: Layouts, runs: Mapping[int, Sequence[StoredRun]]) -> None:
        current = {index: layouts.make(index) for index in runs}
        self._layouts = layouts
        self._units = [
            unit for index, table_runs in runs.items() for unit in _plan(current[index], index, table_runs, jobs.cores)
        ]
        # Only the function goes to the tasks through a connection. Spark writes the units to a file on its way.
        self._job = jobs.map(_Merging(current), self._units)

    def finish(self) -> dict[int, tuple[DataFile, ...]]:
        """Return the files of each table. Raises the first error that has stopped the job or a merge."""
        for outcome in self._job.result():
            if isinstance(outcome, ConnectorError):
                raise outcome
        return self._get_files()

    def discard(self) -> None:
        """Let the tasks end, and delete their files, as far as possible. Raises the error of a job whose files are not
        known."""
        if not self._job.cancel():  # a job that has begun goes on, whatever has ended this process's wait for it
            files = self._get_files().items()
            delete_unstaged(self._layouts, {index: [file.path for file in of_table] for index, of_table in files})

    def _get_files(self) -> dict[int, tuple[DataFile, ...]]:
        files: dict[int, tuple[DataFile, ...]] = {}
        for unit, outcome in zip(self._units, self._job.result(), strict=True):
            if not isinstance(outcome, ConnectorError):
                files[unit.table_index] = files.get(unit.table_index, ()) + outcome
        return files


def remove_runs(layouts: Layouts, runs: Mapping[int, Sequence[StoredRun]]) -> None:
    """Remove the runs in the object store. Those on the disk go with the spool. If it fails, only warn: a later session
    removes them."""
    for index, table_runs in runs.items():
        locations = [each.file.location for each in table_runs if isinstance(each.file, StoredObject)]
        remove_objects(layouts, index, locations, "sorted runs")


def _plan(layout: TableLayout, table_index: int, runs: Sequence[StoredRun], tasks: int) -> Iterator[MergeUnit]:
    ranges = plan_merge([each.run for each in runs], find_sort_columns(layout), tasks)
    files = tuple(each.file for each in runs)
    for group in group_ranges(ranges, tasks):
        yield MergeUnit(table_index, group, files)
