"""Sorted runs: rows that a task has gathered, in order of partition and sort columns, on their way to data files.

A run is read part by part: a part has rows of one partition only. If the table has no sort order, many rows of one
partition are encoded at once, since their place in a data file is known: behind those of the runs before. All other
rows are kept as Arrow's batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from connector.encoding.parquet.encoded_row_groups import EncodedRowGroup, write_row_group
from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.runs.partition_values import PartitionKey, PartitionValues
from connector.encoding.runs.sort_columns import SortColumns
from connector.encoding.values.arrays import Indices
from connector.encoding.values.gathered_rows import GatheredRows
from connector.host.groups import divide
from connector.model.binding import Arrangement, Column

PART_SIZE: Final = 512 << 10  # bytes of Arrow data: a merge holds one part or more of each run
# A quarter of the row groups that other tables get: smaller ones compress worse, and readers need more calls for them.
LEAST_ENCODED: Final = 8 << 20  # bytes of Arrow data
_TAKEN_AT_ONCE: Final = 1 << 20  # bytes of Arrow data: more of them leave the processor's cache
_COPIED_AT_ONCE: Final = 4 << 20  # bytes


@dataclass(frozen=True)
class RunPart:
    """Consecutive rows of a run, all of one partition."""

    partition: PartitionKey
    offset: int  # in the run's file
    size: int  # bytes in the file
    memory: int  # bytes of Arrow data
    encoded: EncodedRowGroup | None = None  # None: the rows are a batch of Arrow's


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

    def __init__(self, columns: Sequence[Column], arrangement: Arrangement, options: FileOptions | None = None) -> None:
        """`columns` are those of the rows, in their order. `options` are those of row groups that are encoded at once;
        without them, none is."""
        self._options = options
        self.sort_columns = SortColumns(columns, arrangement.sort)
        self._partitions = PartitionValues(columns, arrangement.partition)

    def write_run(self, sink: Any, batches: Sequence[pa.RecordBatch], first_line: int) -> SortedRun:
        """Write the rows to a file, in their order. Rows that are equal to it stay in the order of the batches."""
        partitions = self._partitions.of(batches)
        order = self._sort(batches, partitions.indices)
        counts = np.bincount(partitions.indices, minlength=len(partitions.values))
        row_size = max(sum(batch.nbytes for batch in batches) // max(len(order), 1), 1)
        rows = GatheredRows(batches)
        parts = []
        for partition in self._find_large(counts, row_size):
            indices = np.flatnonzero(partitions.indices == partition)
            parts.append(self._encode_part(sink, partitions.values[partition], rows.select(indices)))
            order = order[partitions.indices[order] != partition]
            counts[partition] = 0
        first_rows = [self.sort_columns.of(batches[0].slice(0, 0))]
        pieces = _divide([*map(int, counts)], max(PART_SIZE // row_size, 1))
        for packed in divide(pieces, _TAKEN_AT_ONCE // row_size, attrgetter("rows")):
            begin = packed[0].begin
            taken = rows.take(order[begin : packed[-1].end])
            for piece in packed:
                part = taken.slice(piece.begin - begin, piece.rows)
                parts.append(_write_part(sink, partitions.values[piece.partition], part))
            firsts = pa.array([piece.begin - begin for piece in packed])
            first_rows.append(self.sort_columns.of(taken.take(firsts)))
        return SortedRun(first_line, tuple(parts), pa.concat_batches(first_rows))

    def _find_large(self, counts: Indices, row_size: int) -> list[int]:
        """Return the partitions whose rows are encoded at once, given the number of rows of each."""
        if self._options is None or self.sort_columns:
            return []
        return [*map(int, np.flatnonzero(counts * row_size >= LEAST_ENCODED))]

    def _encode_part(self, sink: Any, partition: PartitionKey, batches: Sequence[pa.RecordBatch]) -> RunPart:
        assert self._options
        group = write_row_group(sink, pa.Table.from_batches(batches), self._options)
        return RunPart(partition, group.offset, group.size, sum(batch.nbytes for batch in batches), group)

    def _sort(self, batches: Sequence[pa.RecordBatch], partitions: Indices) -> Indices:
        if not self.sort_columns:
            return np.argsort(partitions, kind="stable")
        order: Indices = self.sort_columns.sort(self.sort_columns.of_all(batches)).to_numpy().astype(np.int64)
        return order[np.argsort(partitions[order], kind="stable")]


def _write_part(sink: Any, partition: PartitionKey, rows: pa.RecordBatch) -> RunPart:
    content = rows.serialize()  # Arrow would copy each of its pieces for a file of Python's
    offset = sink.tell()
    rest = memoryview(content)
    while rest:  # a file without a buffer may take a part, without an error
        rest = rest[sink.write(rest) :]
    return RunPart(partition, offset, content.size, rows.nbytes)


def read_part(file: Any, part: RunPart, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a part that is not encoded. `schema` is that of the rows."""
    content = _read(file, part.offset, part.size)
    return pa.ipc.read_record_batch(pa.ipc.read_message(content), schema)


def read_encoded(file: Any, part: RunPart) -> Iterator[bytearray]:
    """Yield the bytes of an encoded part, some megabytes at a time."""
    end = part.offset + part.size
    for offset in range(part.offset, end, _COPIED_AT_ONCE):
        yield _read(file, offset, min(_COPIED_AT_ONCE, end - offset))


def _read(file: Any, offset: int, size: int) -> bytearray:
    file.seek(offset)
    content = bytearray(size)
    held = 0
    with memoryview(content) as view:
        while held < size:
            read = file.readinto(view[held:])
            if not read:
                raise OSError(f"a sorted run ends after {offset + held} bytes")
            held += read
    return content


@dataclass(frozen=True)
class _Piece:
    """Rows of one part, by their indices in the order."""

    partition: int
    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin


def _divide(counts: Sequence[int], most_rows: int) -> Iterator[_Piece]:
    """Yield the parts of a run whose partitions have these numbers of rows."""
    begin = 0
    for partition, count in enumerate(counts):
        end = begin + count
        for first in range(begin, end, most_rows):
            yield _Piece(partition, first, min(first + most_rows, end))
        begin = end
