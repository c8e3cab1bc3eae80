"""Rows in several batches, taken in another order.

To join the batches first would take as much memory again as they have. This takes what is taken, three times.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Places: TypeAlias = npt.NDArray[np.int64]


class GatheredRows:
    """The rows of batches of one schema, by their places as if the batches were joined."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = list(batches)
        self._ends = np.cumsum([batch.num_rows for batch in batches])

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._ends[-1])

    def take(self, places: Places) -> pa.RecordBatch:
        """Return the rows at these places, in the order of the places."""
        batch_of_row = np.searchsorted(self._ends, places, side="right")
        by_batch = np.argsort(batch_of_row, kind="stable")
        counts = np.bincount(batch_of_row, minlength=len(self._batches))
        pieces = []
        begin = 0
        for batch, end, count in zip(self._batches, self._ends, counts, strict=True):
            if count:
                within = places[by_batch[begin : begin + count]] - (end - batch.num_rows)
                pieces.append(_take(batch, within))
                begin += count
        order = np.empty(len(places), np.int64)
        order[by_batch] = np.arange(len(places))
        return _take(pa.concat_batches(pieces), order) if pieces else self._batches[0].slice(0, 0)


def _take(batch: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """Return the rows at these places, without a copy if they follow each other."""
    if (np.diff(places) == 1).all():
        return batch.slice(int(places[0]), len(places))
    return batch.take(pa.array(places))
