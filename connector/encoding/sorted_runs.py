"""Sorted runs: rows that a task has gathered, in order of partition and sort columns, on their way to data files.

A run is a stream of Arrow's. It is read part by part: a part has rows of one partition only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from connector.encoding.gathered_rows import GatheredRows, Places
from connector.encoding.partition_values import Partition, PartitionValues
from connector.encoding.sort_columns import SortColumns
from connector.model.binding import Arrangement, Column

PART_SIZE: Final = 512 << 10  # bytes of Arrow data: a merge holds one part or more of each run
_COPIED_AT_ONCE: Final = 4 << 20  # bytes of Arrow data


@dataclass(frozen=True)
class RunPart:
    """Consecutive rows of a run, all of one partition."""

    partition: Partition
    offset: int  # in the run's file
    size: int  # bytes in the file
    memory: int  # bytes of Arrow data


@dataclass(frozen=True)
class SortedRun:
    """The index of a run."""

    first_line: int  # of the input, among the run's rows
    parts: tuple[RunPart, ...]
    first_rows: pa.RecordBatch  # the sort columns of each part's first row

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return sum(part.size for part in self.parts)


class RowArrangement:
    """Knows in which order the rows of a table are written, and which of them are of one partition."""

    def __init__(self, columns: Sequence[Column], arrangement: Arrangement) -> None:
        """`columns` are those of the rows, in their order."""
        self.sort_columns = SortColumns(columns, arrangement.sort)
        self._partitions = PartitionValues(columns, arrangement.partition)

    def write_run(self, sink: Any, batches: Sequence[pa.RecordBatch], first_line: int) -> SortedRun:
        """Write the rows to a file, in their order. Rows that are equal to it stay in the order of the batches."""
        partitions = self._partitions.of(batches)
        order = self._sort(batches, partitions.places)
        counts = np.bincount(partitions.places, minlength=len(partitions.values))
        row_size = max(sum(batch.nbytes for batch in batches) // max(len(order), 1), 1)
        rows = GatheredRows(batches)
        pieces = list(_divide([*map(int, counts)], max(PART_SIZE // row_size, 1)))
        parts, first_rows = [], []
        with pa.ipc.new_stream(sink, batches[0].schema) as stream:
            stream.write_batch(batches[0].slice(0, 0))  # the schema goes with the first rows
            for some in _group(pieces, max(_COPIED_AT_ONCE // row_size, 1)):
                begin = some[0].begin
                taken = rows.take(order[begin : some[-1].end])
                for piece in some:
                    part = taken.slice(piece.begin - begin, piece.end - piece.begin)
                    offset = sink.tell()
                    stream.write_batch(part)
                    values = partitions.values[piece.partition]
                    parts.append(RunPart(values, offset, sink.tell() - offset, part.nbytes))
                firsts = pa.array([piece.begin - begin for piece in some])
                first_rows.append(self.sort_columns.of(taken.take(firsts)))
        return SortedRun(first_line, tuple(parts), pa.concat_batches(first_rows))

    def _sort(self, batches: Sequence[pa.RecordBatch], partitions: Places) -> Places:
        if not self.sort_columns:
            return np.argsort(partitions, kind="stable")
        order: Places = self.sort_columns.sort(self.sort_columns.of_all(batches)).to_numpy().astype(np.int64)
        return order[np.argsort(partitions[order], kind="stable")]


def read_part(file: Any, part: RunPart, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a part. `schema` is that of the rows."""
    file.seek(part.offset)
    content = bytearray(part.size)
    held = 0
    with memoryview(content) as view:
        while held < part.size:
            read = file.readinto(view[held:])
            if not read:
                raise OSError(f"a sorted run ends after {part.offset + held} bytes")
            held += read
    return pa.ipc.read_record_batch(pa.ipc.read_message(content), schema)


@dataclass(frozen=True)
class _Piece:
    """Rows of one part, by their places in the order."""

    partition: int
    begin: int
    end: int


def _divide(counts: Sequence[int], most_rows: int) -> Iterator[_Piece]:
    """Yield the parts of a run whose partitions have these numbers of rows."""
    begin = 0
    for partition, count in enumerate(counts):
        end = begin + count
        for first in range(begin, end, most_rows):
            yield _Piece(partition, first, min(first + most_rows, end))
        begin = end


def _group(pieces: Sequence[_Piece], enough_rows: int) -> Iterator[list[_Piece]]:
    """Yield pieces that are copied together."""
    some: list[_Piece] = []
    for piece in pieces:
        some.append(piece)
        if piece.end - some[0].begin >= enough_rows:
            yield some
            some = []
    if some:
        yield some
