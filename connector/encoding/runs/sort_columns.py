"""The columns by which rows are sorted, in a form in which Arrow's own order is the order of the table."""

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.encoding.values.arrays import Indices
from connector.encoding.values.transformed_columns import TransformedColumn, comparable, find_transformed
from connector.model.binding import Column, SortField


class SortColumns:
    """Makes the sort columns of a binding's rows, and sorts by them.

    Arrow has one place for the nulls of all columns. So a column that may have nulls has another one before it, which
    says for each row whether its value is null.
    """

    def __init__(self, columns: Sequence[Column], fields: Sequence[SortField]) -> None:
        """`columns` are those of the rows, in their order."""
        found = ((find_transformed(columns, field.source_id, field.transform), field) for field in fields)
        # Values that are all null do not change the order.
        self._fields = [(values, field) for values, field in found if values]
        names = map(str, count())
        self._directions = [
            (next(names), direction) for values, field in self._fields for direction in _directions(values, field)
        ]

    def __bool__(self) -> bool:
        """Whether there is an order."""
        return bool(self._fields)

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the sort columns of these rows."""
        arrays = [array for values, field in self._fields for array in _arrays(values, field, rows)]
        return pa.RecordBatch.from_arrays(arrays, [name for name, _ in self._directions])

    def of_all(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the sort columns of the rows of all these batches."""
        return pa.concat_batches([self.of(batch) for batch in batches])

    def sort(self, keys: pa.RecordBatch) -> pa.Array:
        """Return the indices of rows in their order, given their sort columns. Equal rows keep their order."""
        return pc.sort_indices(keys, sort_keys=self._directions)

    def rank(self, keys: pa.RecordBatch) -> Indices:
        """Return the rank of each row, given their sort columns. Equal rows have the same rank."""
        order = self.sort(keys)
        ordered = keys.take(order)
        is_new = np.zeros(keys.num_rows, np.bool_)
        for column in ordered.columns:
            is_new[1:] |= pc.not_equal(column[1:], column[:-1]).fill_null(False).to_numpy(zero_copy_only=False)
        ranks = np.empty(keys.num_rows, np.int64)
        ranks[order.to_numpy()] = np.cumsum(is_new)
        return ranks


def _directions(values: TransformedColumn, field: SortField) -> Iterator[str]:
    if values.may_be_null:
        yield "ascending"
    yield "descending" if field.is_descending else "ascending"


def _arrays(values: TransformedColumn, field: SortField, rows: pa.RecordBatch) -> Iterator[pa.Array]:
    array = values.of(rows)
    if values.may_be_null:
        yield array.is_valid() if field.nulls_first else array.is_null()
    yield comparable(array)
