"""Data files from sorted runs: one partition after the other, with one file open at a time."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyiceberg.io import FileIO

from connector.encoding.data_files import ROW_GROUP_SIZE
from connector.encoding.gathered_rows import GatheredRowGroup
from connector.encoding.run_merging import MergeRange, merge
from connector.encoding.sorted_runs import RowArrangement, RunPart, SortedRun, read_part
from connector.model.state import DataFile
from connector.spark.block_transfer import Source, SpooledFile
from connector.spark.table_files import TableLayout, open_file_writer
from connector.storage import storage_errors


@dataclass(frozen=True)
class StoredRun:
    """A sorted run, and where it is."""

    source: Source
    run: SortedRun


def arrange(layout: TableLayout) -> RowArrangement:
    """Return how the rows of a table are arranged."""
    return RowArrangement(layout.binding.columns, layout.arrangement)


def write_merged(
    layout: TableLayout, arrangement: RowArrangement, ranges: Sequence[MergeRange], sources: Sequence[Source]
) -> list[DataFile]:
    """Merge these ranges of runs into data files, which are complete and durable. `sources` has the place of each run.

    If this fails, no file stays, as far as possible.
    """
    io = layout.io
    written: list[DataFile] = []
    with _Runs(sources, io, layout.schema) as runs:
        try:
            for merged in ranges:
                writer = open_file_writer(layout, ROW_GROUP_SIZE, GatheredRowGroup)
                with _abort_on_failure(writer):
                    for rows in merge(merged, arrangement.sort_columns, runs.read):
                        writer.write(rows)
                    written += [replace(file, partition=merged.partition) for file in writer.finish()]
        except BaseException:
            for file in written:
                with suppress(OSError):
                    io.delete(file.path)
            raise
    return written


@contextmanager
def _abort_on_failure(writer: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        writer.abort()
        raise


class _Runs:
    """Reads the parts of runs. A run is opened with the first of its parts that is read."""

    def __init__(self, sources: Sequence[Source], io: FileIO, schema: pa.Schema) -> None:
        self._sources, self._io, self._schema = sources, io, schema
        self._open: dict[int, Any] = {}
        self._opened = ExitStack()

    def __enter__(self) -> "_Runs":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def read(self, run: int, part: RunPart) -> pa.RecordBatch:
        source = self._sources[run]
        if isinstance(source, SpooledFile):
            return self._read(run, part)
        with storage_errors.translate_errors(source.location):
            return self._read(run, part)

    def _read(self, run: int, part: RunPart) -> pa.RecordBatch:
        if run not in self._open:
            self._open[run] = self._opened.enter_context(self._open_source(self._sources[run]))
        return read_part(self._open[run], part, self._schema)

    def _open_source(self, source: Source) -> Any:
        if isinstance(source, SpooledFile):
            return source.path.open("rb", buffering=0)
        return self._io.new_input(source.location).open()
