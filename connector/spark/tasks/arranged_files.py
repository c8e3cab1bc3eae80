"""Files of a table with partitions or a sort order: rows go to sorted runs, which are merged into data files."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyiceberg.io import FileIO

from connector.encoding.parquet.assembled_writer import AssembledWriter
from connector.encoding.parquet.data_files import ROW_GROUP_SIZE, DataFileWriter, GatheredRowGroup, RowGroupMemory
from connector.encoding.runs.run_merging import MergeRange, merge, plan_merge
from connector.encoding.runs.sort_columns import SortColumns
from connector.encoding.runs.sorted_runs import RowArrangement, RunPart, read_encoded, read_part
from connector.host.threads import StartedCalls
from connector.model.state import DataFile
from connector.spark.blocks.transaction_files import LocalFile, LocalRuns, StoredRun, TableLayout, TemporaryFile
from connector.storage.file_io import LARGEST_HELD, delete_if_possible, write_later

DISTRIBUTION: Final = "write.distribution-mode"


class RunWriter:
    """Gathers the rows of one table, and writes them as sorted runs.

    If the runs of the task take more of the disk than they may, those of this table are merged into data files at once.
    They are merged at the end if the table's distribution mode is `none`: then no task waits for the rows of others.
    """

    def __init__(
        self, layout: TableLayout, rows: RowGroupMemory, new_file: Callable[[], TemporaryFile], local_runs: LocalRuns
    ) -> None:
        """`rows` gathers the rows of a run. `new_file` returns a new file for a run. `local_runs` counts them."""
        self.runs: list[StoredRun] = []
        self._local_runs = local_runs
        self._layout, self._rows, self._new_file = layout, rows, new_file
        self._arrangement = RowArrangement(layout.binding.columns, layout.arrangement, layout.destination.options)
        self._is_merged_here = layout.destination.properties.get(DISTRIBUTION) == "none"
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

    def leave_room(self) -> None:
        """Merge the runs if they are merged here in the end, or if the next table would have less than half of the
        task's share for its own."""
        self.close_file()
        if self._is_merged_here or self._local_runs.size > self._layout.run_limit // 2:
            self._merge()

    def finish(self) -> list[DataFile]:
        """Return the data files. The rows that are in none of them are in `runs`."""
        self.close_file()
        if self._is_merged_here:
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
        self._local_runs.size += _local_size(self.runs[-1])
        # In the store, only those of one table are counted: a merge opens all of them.
        if max(self._local_runs.size, sum(each.run.size for each in self.runs)) >= self._layout.run_limit:
            self._merge()

    def _merge(self) -> None:
        if not self.runs:
            return
        self._rows.release()  # for the merge
        ranges = plan_merge([each.run for each in self.runs], self._arrangement.sort_columns, 1)
        self._files += write_merged(self._layout, ranges, [each.file for each in self.runs])
        self._remove_runs()

    def _remove_runs(self) -> None:
        for each in self.runs:
            each.file.remove(self._layout.io, "sorted runs")
            self._local_runs.size -= _local_size(each)
        self.runs = []


def _local_size(stored: StoredRun) -> int:
    return stored.run.size if isinstance(stored.file, LocalFile) else 0


def find_sort_columns(layout: TableLayout) -> SortColumns:
    """Return the columns by which the rows of a table are sorted."""
    return SortColumns(layout.binding.columns, layout.arrangement.sort)


def write_merged(
    layout: TableLayout, ranges: Sequence[MergeRange], run_files: Sequence[TemporaryFile]
) -> list[DataFile]:
    """Merge these ranges of runs into data files, which are complete and durable. `run_files` has the file of each run.

    Small files are uploaded while the next ones are encoded. An upload that fails ends this with the next rows. If this
    fails, no file stays, as far as possible.
    """
    sort_columns = find_sort_columns(layout)
    written: list[DataFile] = []
    # Files are deleted when their uploads have ended: one that ends later would bring its file back.
    with (
        ExitStack() as unfinished,
        _Runs(run_files, layout.io, layout.schema) as runs,
        StartedCalls(LARGEST_HELD) as uploads,
    ):
        new_files = replace(layout.new_files, write_file=partial(write_later, uploads))
        for merged in ranges:
            if merged.has_encoded:
                copying = AssembledWriter(new_files)
                unfinished.callback(copying.abort)
                files = _copy_range(copying, merged, runs, uploads)
            else:
                writer = DataFileWriter(new_files, GatheredRowGroup(ROW_GROUP_SIZE))
                unfinished.callback(writer.abort)
                files = _write_rows(writer, merge(merged, sort_columns, runs.read), uploads)
            written += [msgspec.structs.replace(file, partition=merged.partition) for file in files]
        uploads.finish()
        unfinished.pop_all()
    return written


def _write_rows(writer: DataFileWriter, batches: Iterator[pa.RecordBatch], uploads: StartedCalls) -> list[DataFile]:
    for rows in batches:
        uploads.check()
        writer.write(rows)
    return writer.finish()


def _copy_range(writer: AssembledWriter, merged: MergeRange, runs: "_Runs", uploads: StartedCalls) -> list[DataFile]:
    """Copy the row groups that are encoded already. Only rows between them are encoded here."""
    for run, part in merged.parts:
        uploads.check()
        if part.encoded:
            writer.append(part.encoded, runs.copy(run, part))
        else:
            writer.write(runs.read(run, part))
    return writer.finish()


class _Runs:
    """Reads the parts of runs. A run is opened with the first of its parts that is read."""

    def __init__(self, files: Sequence[TemporaryFile], io: FileIO, schema: pa.Schema) -> None:
        self._files, self._io, self._schema = files, io, schema
        self._open: dict[int, Any] = {}
        self._opened = ExitStack()

    def __enter__(self) -> "_Runs":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def read(self, run: int, part: RunPart) -> pa.RecordBatch:
        """Return the rows of a part."""
        with self._open_run(run) as file:
            return read_part(file, part, self._schema)

    def copy(self, run: int, part: RunPart) -> Iterator[bytearray]:
        """Yield the bytes of an encoded part."""
        with self._open_run(run) as file:
            yield from read_encoded(file, part)

    @contextmanager
    def _open_run(self, run: int) -> Iterator[Any]:
        file = self._files[run]
        with file.translate_errors():
            if run not in self._open:
                self._open[run] = self._opened.enter_context(file.open(self._io))
            yield self._open[run]
