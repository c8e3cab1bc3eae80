"""Merges sorted runs: plans which rows of which runs become files together, and reads these rows in their order, in
bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from connector.encoding.runs.partition_values import PartitionKey
from connector.encoding.runs.sort_columns import SortColumns
from connector.encoding.runs.sorted_runs import RunPart, SortedRun
from connector.encoding.values.arrays import Indices
from connector.encoding.values.gathered_rows import GatheredRows
from connector.host.groups import divide

# A partition is only split between tasks if each of them gets so many bytes of Arrow data.
LEAST_SPLIT: Final = 128 << 20
_UNITS_PER_TASK: Final = 4  # so that a long last one holds up little
_LEAST_UNIT: Final = 8 << 20  # bytes of Arrow data
_HELD: Final = 24 << 20  # bytes of Arrow data that are sorted together
_COPIED_AT_ONCE: Final = 4 << 20  # bytes of Arrow data

ReadPart: TypeAlias = Callable[[int, RunPart], pa.RecordBatch]


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


def plan_merge(
    runs: Sequence[SortedRun], sort_columns: SortColumns, tasks: int, least_split: int = LEAST_SPLIT
) -> list[MergeRange]:
    """Return the ranges of rows that become files, in order. `tasks` is how many tasks merge at the same time."""
    parts: dict[PartitionKey, list[tuple[int, int]]] = {}  # indices of runs, and of parts in them
    for run in sorted(range(len(runs)), key=lambda index: runs[index].first_line):
        for part in range(len(runs[run].parts)):
            parts.setdefault(runs[run].parts[part].partition, []).append((run, part))
    return [
        merged
        for partition in sorted(parts, key=_order_of_partitions)
        for merged in _plan_partition(partition, _Parts(runs, parts[partition]), sort_columns, tasks, least_split)
    ]


def group_ranges(ranges: Sequence[MergeRange], tasks: int) -> Iterator[tuple[MergeRange, ...]]:
    """Split the ranges into groups of similar size, each for one call."""
    size = max(sum(merged.memory for merged in ranges) // (tasks * _UNITS_PER_TASK), _LEAST_UNIT)
    return map(tuple, divide(ranges, size, attrgetter("memory")))


class _Parts:
    """The parts of one partition in all runs, in the order in which their rows came."""

    def __init__(self, runs: Sequence[SortedRun], indices: Sequence[tuple[int, int]]) -> None:
        """`indices` are those of runs, and of parts in them."""
        self.parts: list[tuple[int, RunPart]] = [(run, runs[run].parts[part]) for run, part in indices]
        self.first_rows = pa.concat_batches([runs[run].first_rows.slice(part, 1) for run, part in indices])
        self.runs = np.array([run for run, _ in indices])
        self.memory = np.array([part.memory for _, part in self.parts])

    def range(
        self,
        partition: PartitionKey,
        indices: Indices,
        after: pa.RecordBatch | None = None,
        until: pa.RecordBatch | None = None,
    ) -> MergeRange:
        parts = tuple(self.parts[index] for index in indices)
        first_rows = self.first_rows.take(pa.array(indices)) if self.first_rows.num_columns else self.first_rows
        return MergeRange(partition, parts, first_rows, after, until)


def _plan_partition(
    partition: PartitionKey, parts: _Parts, sort_columns: SortColumns, tasks: int, least_split: int
) -> Iterator[MergeRange]:
    pieces = min(max(int(parts.memory.sum()) // least_split, 1), tasks)
    if not sort_columns:
        for indices in _split(parts.memory, pieces):
            yield parts.range(partition, indices)
        return
    ranks = sort_columns.rank(parts.first_rows)
    order = np.argsort(ranks, kind="stable")
    following = _following_ranks(parts.runs, ranks)
    # A range ends with the rows that are equal to the first row of some part.
    bounds = [int(order[indices[-1]]) for indices in _split(parts.memory[order], pieces)[:-1]]
    ends = list({ranks[bound]: bound for bound in bounds}.values())
    for after, until in zip([None, *ends], [*ends, None], strict=True):
        has_rows = np.ones(len(ranks), np.bool_)
        if after is not None:
            has_rows &= following > ranks[after]
        if until is not None:
            has_rows &= ranks <= ranks[until]
        yield parts.range(partition, order[has_rows[order]], _row(parts, after), _row(parts, until))


def _split(sizes: Indices, pieces: int) -> list[Indices]:
    """Split indices into consecutive pieces of similar size. None of them is empty."""
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(ends, [ends[-1] * piece // pieces for piece in range(1, pieces)]) + 1
    return [piece for piece in np.split(np.arange(len(sizes)), cuts) if len(piece)]


def _following_ranks(runs: Indices, ranks: Indices) -> Indices:
    """Return the rank of the row that follows each part in its run: no row of the part comes after it."""
    following = np.append(ranks[1:], 0)
    following[np.append(runs[1:] != runs[:-1], True)] = np.iinfo(np.int64).max
    return following


def _row(parts: _Parts, index: int | None) -> pa.RecordBatch | None:
    return None if index is None else parts.first_rows.take(pa.array([index]))


def _order_of_partitions(partition: PartitionKey) -> tuple[tuple[bool, bytes], ...]:
    return tuple((value is not None, value or b"") for value in partition)


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
