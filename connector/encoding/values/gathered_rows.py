"""The rows of several batches, which are taken in another order."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from connector.encoding.values.arrays import Indices, Numbers


class GatheredRows:
    """The rows of batches of one schema, by their indices as if the batches were joined.

    To join the batches first would take as much memory again as they have. This takes what is taken, three times.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = list(batches)
        self._begins = np.cumsum([0, *(batch.num_rows for batch in batches)])  # and the end of the last batch

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._begins[-1])

    def take(self, indices: Numbers) -> pa.RecordBatch:
        """Return the rows at these indices, in the order of the indices. Batches without such a row cost nothing."""
        numbers = np.searchsorted(self._begins[1:], indices, side="right")
        numbers = numbers.astype(np.min_scalar_type(len(self._batches)))  # those of 8 or 16 bits are sorted in one pass
        by_batch = np.argsort(numbers, kind="stable")
        present, starts = np.unique(numbers[by_batch], return_index=True)
        of_batches = np.split(indices[by_batch], starts)[1:]
        pieces = [_take(self._batches[n], own - self._begins[n]) for n, own in zip(present, of_batches, strict=True)]
        order = np.empty_like(by_batch)
        order[by_batch] = np.arange(len(by_batch))
        return _take(pa.concat_batches(pieces), order) if pieces else self._batches[0].slice(0, 0)

    def select(self, indices: Indices) -> list[pa.RecordBatch]:
        """Return the rows at these indices, which ascend. Rows that follow each other are not copied."""
        of_batches = np.split(indices, np.searchsorted(indices, self._begins[1:-1]))
        pieces = zip(self._batches, of_batches, self._begins[:-1], strict=True)
        return [_take(batch, own - begin) for batch, own, begin in pieces if len(own)]


def _take(batch: pa.RecordBatch, indices: Indices) -> pa.RecordBatch:
    """Return the rows at these indices, without a copy if they follow each other."""
    if (np.diff(indices) == 1).all():
        return batch.slice(int(indices[0]), len(indices))
    return batch.take(pa.array(indices))
