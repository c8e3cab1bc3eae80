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


def merge_runs(
    jobs: Jobs, layouts: Layouts, runs: Mapping[int, Sequence[StoredRun]]
) -> tuple[dict[int, tuple[DataFile, ...]], ConnectorError | None]:
    """Merge the runs of each table. Return the files, and what has stopped a merge, if something has."""
    current = {index: layouts.make(index) for index in runs}
    units = [
        unit for index, table_runs in runs.items() for unit in _plan(current[index], index, table_runs, jobs.cores)
    ]
    # Only the function goes to the tasks through a connection. Spark writes the units to a file on its way.
    merged = jobs.map(_Merging(current), units).result()
    files: dict[int, tuple[DataFile, ...]] = {}
    for unit, outcome in zip(units, merged, strict=True):
        if not isinstance(outcome, ConnectorError):
            files[unit.table_index] = files.get(unit.table_index, ()) + outcome
    return files, next((outcome for outcome in merged if isinstance(outcome, ConnectorError)), None)


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
