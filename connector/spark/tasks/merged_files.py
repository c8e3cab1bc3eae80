"""Data files from sorted runs: one partition after the other, with one file open at a time."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.io import FileIO

from connector.encoding.parquet.assembled_writer import AssembledWriter
from connector.encoding.parquet.data_files import ROW_GROUP_SIZE, DataFileWriter, GatheredRowGroup
from connector.encoding.runs.run_merging import MergeRange, merge
from connector.encoding.runs.sort_columns import SortColumns
from connector.encoding.runs.sorted_runs import RunPart, read_encoded, read_part
from connector.host.threads import StartedCalls
from connector.model.state import DataFile
from connector.spark.blocks.transaction_files import TableLayout, TemporaryFile
from connector.storage.file_io import LARGEST_HELD, write_later


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
