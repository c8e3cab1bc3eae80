"""Rows in several batches, kept as they are: until they are a row group, or to be taken in another order."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from connector.encoding.values.arrays import Indices


class GatheredRowGroup:
    """The rows of a row group while they are gathered, in batches that have their memory for themselves."""

    def __init__(self, capacity: int) -> None:
        """`capacity` is in bytes."""
        self._capacity = capacity
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch if there is room for it. Return whether there was."""
        if self._size + batch.nbytes > self._capacity:
            return False
        self._batches.append(batch)
        self._size += batch.nbytes
        return True

    def take(self) -> list[pa.RecordBatch]:
        """Remove and return all batches."""
        batches, self._batches, self._size = self._batches, [], 0
        return batches


class GatheredRows:
    """The rows of batches of one schema, by their indices as if the batches were joined.

    To join the batches first would take as much memory again as they have. This takes what is taken, three times.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = list(batches)
        self._ends = np.cumsum([batch.num_rows for batch in batches])

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._ends[-1])

    def take(self, indices: Indices) -> pa.RecordBatch:
        """Return the rows at these indices, in the order of the indices."""
        batch_of_row = np.searchsorted(self._ends, indices, side="right")
        by_batch = np.argsort(batch_of_row, kind="stable")
        counts = np.bincount(batch_of_row, minlength=len(self._batches))
        pieces = []
        begin = 0
        for batch, end, count in zip(self._batches, self._ends, counts, strict=True):
            if count:
                within = indices[by_batch[begin : begin + count]] - (end - batch.num_rows)
                pieces.append(_take(batch, within))
                begin += count
        order = np.empty(len(indices), np.int64)
        order[by_batch] = np.arange(len(indices))
        return _take(pa.concat_batches(pieces), order) if pieces else self._batches[0].slice(0, 0)

    def select(self, indices: Indices) -> list[pa.RecordBatch]:
        """Return the rows at these indices, which ascend. Rows that follow each other are not copied."""
        cuts = np.searchsorted(indices, self._ends)
        pieces = []
        begin = 0
        for batch, end, cut in zip(self._batches, self._ends, cuts, strict=True):
            if begin < cut:
                pieces.append(_take(batch, indices[begin:cut] - (end - batch.num_rows)))
            begin = cut
        return pieces


def _take(batch: pa.RecordBatch, indices: Indices) -> pa.RecordBatch:
    """Return the rows at these indices, without a copy if they follow each other."""
    if (np.diff(indices) == 1).all():
        return batch.slice(int(indices[0]), len(indices))
    return batch.take(pa.array(indices))
