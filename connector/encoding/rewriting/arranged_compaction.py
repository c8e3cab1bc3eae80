"""Compacts a file group by partition and sort order: gathers its rows in sorted runs on the disk, and merges these."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.lineage_columns import lineage_columns
from connector.encoding.live_rows.source_rows import open_source, read_live_rows
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.parquet.data_files import DataFileWriter, GatheredRowGroup
from connector.encoding.rewriting.file_groups import FileGroup
from connector.encoding.rewriting.group_writer import GroupWriter
from connector.encoding.rewriting.rewritten_schemas import RewrittenSchema
from connector.encoding.rewriting.row_order import ORIGIN
from connector.encoding.runs.run_merging import merge, plan_merge
from connector.encoding.runs.sorted_runs import RowArrangement, RunPart, SortedRun, read_part
from connector.encoding.values.arrays import Positions
from connector.host.errors import RetryableError
from connector.host.tempdirs import advise, translate_disk_errors
from connector.model.binding import Arrangement

RUN_SIZE: Final = 24 << 20  # bytes of Arrow data that are sorted together
# A merge holds a part of each run. The order is one of the rows of a file, so a larger group is sorted in pieces.
MOST_RUNS: Final = 96


def write_arranged(io: FileIO, target: TargetFiles, group: FileGroup, writer: GroupWriter[DataFileWriter]) -> list[int]:
    """Write the live rows of the sources by the arrangement. Return how many rows of each source they are."""
    kept = []
    with ExitStack() as resources:
        with translate_disk_errors("file"):
            runs = resources.enter_context(tempfile.TemporaryFile(buffering=0))
        sorter = _Sorter(writer, target.arrangement, runs)
        for index, source in enumerate(group.sources):
            kept.append(0)
            with open_source(io, source, len(target.columns), target.mapping) as opened:
                columns = (*target.columns, *lineage_columns(source.lineage))
                schema = RewrittenSchema.of(columns, opened.schema, source)
                sorter.expect(schema)
                for rows in read_live_rows(opened, find_deleted_rows(io, source.path, source.position_deletes)):
                    sorter.add(schema.convert(rows), index, rows.positions)
                    kept[index] += rows.batch.num_rows
        sorter.finish()
    return kept


class _Sorter:
    """Sorts rows: those of one schema together, as far as a merge can hold a part of each run."""

    def __init__(self, writer: GroupWriter[DataFileWriter], arrangement: Arrangement, runs: Any) -> None:
        """`runs` is an empty file, for one run after the other."""
        self._writer = writer
        self._arrangement = arrangement
        self._file = runs
        self._gathered = GatheredRowGroup(RUN_SIZE)
        self._runs: list[SortedRun] = []
        self._columns: RewrittenSchema | None = None

    def expect(self, schema: RewrittenSchema) -> None:
        """Expect rows with these columns."""
        if self._columns is None or not self._columns.is_same(schema):
            self.finish()
            self._columns = schema
            self._schema = pa.schema([*schema.schema, *ORIGIN])  # until the rows are merged
            self._rows = RowArrangement(schema.with_statistics, self._arrangement)

    def add(self, batch: pa.RecordBatch, source: int, positions: Positions) -> None:
        """Add rows of a source, with their positions in it."""
        origin = [pa.array(np.full(len(positions), source, np.int32)), pa.array(positions)]
        rows = pa.RecordBatch.from_arrays([*batch.columns, *origin], schema=self._schema)
        for batches in self._gathered.fill(rows):
            self._write_run(batches)

    def finish(self) -> None:
        """Write all rows to the new files, in their order."""
        self._write_run(self._gathered.take())
        self._merge()

    def _write_run(self, batches: list[pa.RecordBatch]) -> None:
        if not batches:
            return
        if len(self._runs) == MOST_RUNS:
            self._merge()
        with _translate_errors():
            self._runs.append(self._rows.write_run(self._file, batches, len(self._runs)))

    def _merge(self) -> None:
        if not self._runs:
            return
        assert self._columns is not None
        order = self._rows.sort_columns
        for merged in plan_merge(self._runs, order, tasks=1):
            self._writer.begin_file(merged.partition)
            for rows in merge(merged, order, self._read):
                *columns, sources, positions = rows.columns
                batch = pa.RecordBatch.from_arrays(columns, schema=self._columns.schema)
                self._writer.find_writer(self._columns).write(batch)
                self._writer.write_order(sources, positions)
        self._runs = []
        with _translate_errors():
            self._file.seek(0)
            self._file.truncate()

    def _read(self, _: int, part: RunPart) -> pa.RecordBatch:
        with _translate_errors():
            return read_part(self._file, part, self._schema)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RetryableError(
            f"rows that are sorted for a compaction could not be written to the disk ({error.strerror or error}). The "
            f"table is as it was. {advise(error)}"
        ) from error
