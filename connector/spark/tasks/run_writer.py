"""Writes the rows of a table with partitions or a sort order: to sorted runs, which are merged later."""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from connector.encoding.parquet.data_files import RowGroupMemory
from connector.encoding.runs.merge_plan import plan_merge
from connector.encoding.runs.sorted_runs import RowArrangement
from connector.model.state import DataFile
from connector.spark.blocks.transaction_files import StoredRun, TableLayout, TemporaryFile
from connector.spark.tasks.merged_files import write_merged
from connector.storage.file_io import delete_if_possible

DISTRIBUTION: Final = "write.distribution-mode"


class RunWriter:
    """Gathers the rows of one table, and writes them as sorted runs.

    If the runs take more of the disk than they may, they are merged into data files at once. They are merged at the end
    if the table's distribution mode is `none`: then no task waits for the rows of others.
    """

    def __init__(self, layout: TableLayout, rows: RowGroupMemory, new_file: Callable[[], TemporaryFile]) -> None:
        """`rows` gathers the rows of a run. `new_file` returns a new file for a run."""
        self.runs: list[StoredRun] = []
        self._layout, self._rows, self._new_file = layout, rows, new_file
        self._arrangement = RowArrangement(layout.binding.columns, layout.arrangement, layout.destination.options)
        self._first_line = 0
        self._files: list[DataFile] = []

    def begin_block(self, first_line: int) -> None:
        """Expect the rows of a block. Without a sort order, they go to another run: rows stay in the order of the
        input, and the blocks of a task do not follow each other."""
        if not self._arrangement.sort_columns:
            self.close_file()
        self._first_line = first_line

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        for batches in self._rows.fill(batch):
            self._write_run(batches)

    def close_file(self) -> None:
        """Make the rows durable."""
        if batches := self._rows.take():
            self._write_run(batches)

    def finish(self) -> list[DataFile]:
        """Return the data files. The rows that are in none of them are in `runs`."""
        self.close_file()
        if self._layout.destination.properties.get(DISTRIBUTION) == "none":
            self._merge()
        return self._files

    def abort(self) -> None:
        """Delete files and runs, as far as possible. Nothing refers to them."""
        self._remove_runs()
        delete_if_possible(self._layout.io, [file.path for file in self._files])

    def _write_run(self, batches: Sequence[pa.RecordBatch]) -> None:
        file = self._new_file()
        try:
            with file.create(self._layout.io) as sink:
                run = self._arrangement.write_run(sink, batches, self._first_line)
        except BaseException:
            file.remove(self._layout.io, "sorted runs")
            raise
        self.runs.append(StoredRun(file, run))
        if sum(each.run.size for each in self.runs) >= self._layout.run_limit:
            self._merge()

    def _merge(self) -> None:
        self._rows.release()  # for the merge
        ranges = plan_merge([each.run for each in self.runs], self._arrangement.sort_columns, 1)
        self._files += write_merged(self._layout, ranges, [each.file for each in self.runs])
        self._remove_runs()

    def _remove_runs(self) -> None:
        for each in self.runs:
            each.file.remove(self._layout.io, "sorted runs")
        self.runs = []
