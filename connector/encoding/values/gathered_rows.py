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
        batches = np.searchsorted(self._begins[1:], indices, side="right")
        batches = batches.astype(np.min_scalar_type(len(self._batches)))  # 8 or 16 bits are sorted in one pass
        order = np.argsort(batches, kind="stable")
        present, starts = np.unique(batches[order], return_index=True)
        by_batch = np.split(indices[order], starts)[1:]
        pieces = [_take(self._batches[n], rows - self._begins[n]) for n, rows in zip(present, by_batch, strict=True)]
        restored = np.empty_like(order)
        restored[order] = np.arange(len(order))
        return _take(pa.concat_batches(pieces), restored) if pieces else self._batches[0].slice(0, 0)

    def select(self, indices: Indices) -> list[pa.RecordBatch]:
        """Return the rows at these indices, which ascend. Rows that follow each other are not copied."""
        by_batch = np.split(indices, np.searchsorted(indices, self._begins[1:-1]))
        pieces = zip(self._batches, by_batch, self._begins[:-1], strict=True)
        return [_take(batch, rows - begin) for batch, rows, begin in pieces if len(rows)]


def _take(batch: pa.RecordBatch, indices: Indices) -> pa.RecordBatch:
    """Return the rows at these indices, without a copy if they follow each other."""
    if (np.diff(indices) == 1).all():
        return batch.slice(int(indices[0]), len(indices))
    return batch.take(pa.array(indices))
