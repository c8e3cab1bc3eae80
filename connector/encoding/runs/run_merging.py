"""Merges sorted runs: reads the rows of one partition from many runs, in their order, in bounded memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from connector.encoding.runs.partition_values import PartitionKey
from connector.encoding.runs.sort_columns import SortColumns
from connector.encoding.runs.sorted_runs import RunPart
from connector.encoding.values.arrays import Indices
from connector.encoding.values.gathered_rows import GatheredRows

_HELD: Final = 24 << 20  # bytes of Arrow data that are sorted together
_COPIED_AT_ONCE: Final = 4 << 20  # bytes of Arrow data


@dataclass(frozen=True)
class MergeRange:
    """Rows of one partition that become files, one file after the other."""

    partition: PartitionKey
    parts: tuple[tuple[int, RunPart], ...]  # with the index of the part's run; in the order of their first rows
    first_rows: pa.RecordBatch  # the sort columns of each part's first row
    # The sort columns of one row. Rows up to `after` are of an earlier range, rows after `until` are of a later one.
    after: pa.RecordBatch | None
    until: pa.RecordBatch | None

    @property
    def memory(self) -> int:
        """Bytes of Arrow data."""
        return sum(part.memory for _, part in self.parts)

    @property
    def has_encoded(self) -> bool:
        """Whether some of the parts are encoded."""
        return any(part.encoded for _, part in self.parts)


ReadPart: TypeAlias = Callable[[int, RunPart], pa.RecordBatch]


def merge(merged: MergeRange, sort_columns: SortColumns, read: ReadPart) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range in their order. `read` reads a part of the run with this index.

    Parts are read in the order of their first rows. So all rows are known that come before the first row of the next
    part. The memory that this takes is some megabytes, or twice the parts of different runs that overlap.
    """
    if not sort_columns:
        yield from (read(run, part) for run, part in merged.parts)
        return
    held: list[pa.RecordBatch] = []
    size, enough = 0, _HELD
    for number, (run, part) in enumerate(merged.parts, start=1):
        held.append(read(run, part))
        size += part.memory
        is_last = number == len(merged.parts)
        if size < enough and not is_last:
            continue
        until = merged.until if is_last else merged.first_rows.slice(number, 1)
        known, rest = _cut(sort_columns.of_all(held), sort_columns, merged.after, until)
        rows = GatheredRows(held)
        at_once = max(_COPIED_AT_ONCE * len(rows) // max(size, 1), 1)
        for first in range(0, len(known), at_once):
            yield rows.take(known[first : first + at_once])
        held = [rows.take(rest)]
        size = held[0].nbytes
        enough = max(_HELD, 2 * size)  # or each part that follows would sort again what is held
        del rows


def _cut(
    rows: pa.RecordBatch, sort_columns: SortColumns, after: pa.RecordBatch | None, until: pa.RecordBatch | None
) -> tuple[Indices, Indices]:
    """Return the indices of the rows after `after` and up to `until`, and those of the rows after both, in order.

    `rows` has the sort columns only."""
    bounds = [bound for bound in (after, until) if bound is not None]
    keys = pa.concat_batches([rows, *bounds])
    # A bound comes behind the rows that are equal to it.
    order: Indices = sort_columns.sort(keys).to_numpy().astype(np.int64)
    begin = _find(order, rows.num_rows) + 1 if after is not None else 0
    end = _find(order, keys.num_rows - 1) if until is not None else len(order)
    return order[begin : max(begin, end)], order[max(begin, end + 1) :]


def _find(order: Indices, index: int) -> int:
    return int(np.flatnonzero(order == index)[0])
