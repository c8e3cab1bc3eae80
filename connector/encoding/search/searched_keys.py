"""The keys of a search, indexed by hashes of the values that rows have in the key columns.

The hash index has 20 bytes for each key. The keys table itself may stay on the disk. Rows with the hash of a key are
compared with it, value by value. Loads find rows in data files like this, and Stores find the ids that their rows keep.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connector.encoding.lines.key_digest import hash_keys
from connector.encoding.lines.keys_tables import KEY, part_name, take_keys
from connector.encoding.live_rows.lineage_columns import NO_ROW_ID, ROW_ID_FIELD
from connector.encoding.search.document_keys import Key, document_key, parse_key
from connector.encoding.values.arrays import Indices, Mask, join_arrays
from connector.encoding.values.column_types import column_id
from connector.model.binding import Updates

# Several tables, or several commits to a table, are searched together, unless they have more keys together.
KEYS_AT_ONCE: Final = 1 << 17
_AT_ONCE: Final = 1 << 16  # keys, or rows: what is computed of them stays in the processor's cache
_TRIED_AT_ONCE: Final = 1 << 12  # keys that are compared with bounds: the first ones tell, if keys are random
_FILTER: Final = 3  # bits: the filter has so many more than a number of keys has, so it lets one row of eight pass
_COMPARED: Final = 1 << 18  # keys: to look into a row group costs less than to compare more of them with its bounds


@dataclass(frozen=True)
class Bounds:
    """Which values one column may have, in a row group or in the keys."""

    extremes: pa.Array | None  # the lowest and the highest value; None: unknown
    has_nulls: bool

    @classmethod
    def of_values(cls, values: pa.ChunkedArray) -> "Bounds":
        """Return the bounds of these values."""
        return cls(pa.array(pc.min_max(values).values(), values.type), values.null_count > 0)

    @classmethod
    def of_statistics(cls, statistics: pq.Statistics | None, arrow_type: pa.DataType) -> "Bounds":
        """Return the bounds of a column of this type. `statistics` are those of its column chunk."""
        has_nulls = statistics is None or not statistics.has_null_count or statistics.null_count > 0
        return cls(_extremes(statistics, arrow_type), has_nulls)

    def allow(self, values: pa.ChunkedArray) -> Mask:
        """Return which of these values the row group may have."""
        if self.extremes is None:
            return np.ones(len(values), np.bool_)
        lowest, highest = self.extremes
        is_between = pc.and_(pc.greater_equal(values, lowest), pc.less_equal(values, highest))
        may: Mask = is_between.fill_null(self.has_nulls).to_numpy()
        return may

    def overlap(self, other: "Bounds") -> bool:
        """Return whether a value may be within both bounds."""
        if self.extremes is None or other.extremes is None or (self.has_nulls and other.has_nulls):
            return True
        (lowest, highest), (least, greatest) = self.extremes, other.extremes
        is_apart = pc.or_(pc.greater(lowest, greatest), pc.less(highest, least))
        return is_apart.as_py() is False


class SearchedKeys:
    """The keys of a keys table. Several keys may have the same values in the key columns."""

    def __init__(self, table: pa.Table, updates: Updates, column_names: Sequence[str]) -> None:
        """`column_names` are those of the key columns, with which data files are compared."""
        self.updates = updates
        self.column_names = column_names
        self._texts = table.select([KEY])
        self._values = table.select([*map(part_name, updates.parts)])
        self.types: list[pa.DataType] = self._values.schema.types
        self.column_ids = [part.column_id for part in updates.parts]
        hashes = np.concatenate([np.empty(0, np.uint64), *map(hash_keys, self._slices())])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._indices = order.astype(np.int32)  # in the keys table, by hash
        self._share_hashes = bool((self._hashes[1:] == self._hashes[:-1]).any())  # keys with equal values do
        bits = len(order).bit_length() + _FILTER
        self._shift = np.uint64(64 - bits)
        self._filter = np.zeros(1 << bits, np.bool_)  # by the highest bits of a hash: whether a key has them
        self._filter[hashes >> self._shift] = True

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def size(self) -> int:
        """The bytes of the index."""
        return self._hashes.nbytes + self._indices.nbytes + self._filter.nbytes

    def find(self, columns: Sequence[pa.Array]) -> tuple[Indices, Indices]:
        """Return the rows that have the values of some key, in their order, and the indices of these keys in the table.
        A row occurs for each key that it has. `columns` are the key columns."""
        parts = [
            (begin, self._find([column.slice(begin, _AT_ONCE) for column in columns]))
            for begin in range(0, len(columns[0]), _AT_ONCE)
        ]
        rows = [found + begin for begin, (found, _) in parts]
        return join_arrays(rows), join_arrays([indices for _, (_, indices) in parts])

    def need_documents(self, indices: Indices) -> Mask:
        """Return which keys, by their indices, a row may lack that has their values in the key columns. Its document
        decides: the column may not tell keys apart, or the row may have null because it is older than the column."""
        if not self.updates.is_exact:
            return np.ones(len(indices), np.bool_)
        if not any(bounds.has_nulls for bounds in self._bounds):
            return np.zeros(len(indices), np.bool_)
        parts = take_keys(self._values, indices).columns
        has_null: Mask = np.logical_or.reduce([part.is_null().to_numpy() for part in parts])
        return has_null

    def match_documents(self, indices: Indices, documents: Sequence[Key]) -> Mask:
        """Return which keys, by their indices, are equal to the keys of these documents."""
        texts = take_keys(self._texts, indices)[KEY].to_pylist()
        pairs = zip(texts, documents, strict=True)
        return np.fromiter((parse_key(text) == document for text, document in pairs), np.bool_, len(indices))

    def may_be_within(self, bounds: Sequence[Bounds]) -> bool:
        """Return whether a row group with these bounds of the key columns may have one of the keys."""
        if not len(self) or not all(map(Bounds.overlap, bounds, self._bounds)):
            return False
        columns = list(zip(bounds, self._values.columns, strict=True))
        return len(self) > _COMPARED or any(
            np.logical_and.reduce([bound.allow(column.slice(begin, _TRIED_AT_ONCE)) for bound, column in columns]).any()
            for begin in range(0, len(self), _TRIED_AT_ONCE)
        )

    @cached_property
    def _bounds(self) -> list[Bounds]:
        return [*map(Bounds.of_values, self._values.columns)]

    def _slices(self) -> Iterator[list[pa.Array]]:
        for begin in range(0, self._values.num_rows, _AT_ONCE):
            yield [*map(_comparable, self._values.slice(begin, _AT_ONCE).columns)]

    def _find(self, columns: Sequence[pa.Array]) -> tuple[Indices, Indices]:
        values = [*map(_comparable, columns)]
        hashes = hash_keys(values)
        rows = np.flatnonzero(self._filter[hashes >> self._shift])
        nearest = np.minimum(np.searchsorted(self._hashes, hashes[rows]), max(len(self) - 1, 0))
        occurs = self._hashes[nearest] == hashes[rows]
        rows, begins = rows[occurs], nearest[occurs]
        ends = np.searchsorted(self._hashes, hashes[rows], side="right") if self._share_hashes else begins + 1
        counts = ends - begins
        rows = np.repeat(rows, counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        indices: Indices = self._indices[np.repeat(begins, counts) + nth].astype(np.int64)
        is_equal = np.ones(len(rows), np.bool_)
        for column, key_values in zip(values, take_keys(self._values, indices).columns, strict=True):
            is_equal &= _are_equal(column.take(pa.array(rows)), _comparable(key_values))
        return rows[is_equal], indices[is_equal]


class RowIdsOfKeys:
    """The row ids of all loaded keys of one binding and one transaction. The Stores of these keys get them.

    A table with the keys and the ids goes from the driver to the tasks. Rows without an id there inherit new ones from
    the table's metadata, like all new rows.
    """

    def __init__(self, table: pa.Table, updates: Updates) -> None:
        """`table` is a keys table with a column of ids, which may be NO_ROW_ID."""
        self._ids = table[ROW_ID_FIELD.name].to_numpy()
        self._keys = SearchedKeys(table, updates, ())  # no data file is searched for them
        self.size: int = table.nbytes + self._keys.size  # in memory

    def add_to(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return decoded rows with a column of ids, which is null for new rows."""
        updates = self._keys.updates
        indexes = {column_id(field): index for index, field in enumerate(batch.schema)}
        columns = [
            batch.column(indexes[part.column_id]).cast(arrow_type)
            for part, arrow_type in zip(updates.parts, self._keys.types, strict=True)
        ]
        rows, keys = self._keys.find(columns)
        if not updates.is_exact:
            documents = batch.column(indexes[updates.document_id]).take(pa.array(rows)).to_pylist()
            is_equal = self._keys.match_documents(keys, [document_key(each, updates.parts) for each in documents])
            rows, keys = rows[is_equal], keys[is_equal]
        ids = np.full(batch.num_rows, NO_ROW_ID, np.int64)
        ids[rows] = self._ids[keys]
        return batch.append_column(ROW_ID_FIELD, pa.array(ids, mask=ids == NO_ROW_ID))


def _extremes(statistics: pq.Statistics | None, arrow_type: pa.DataType) -> pa.Array | None:
    # NaN is in no statistics.
    if statistics is None or not statistics.has_min_max or pa.types.is_floating(arrow_type):
        return None
    try:
        return pa.array([statistics.min, statistics.max]).cast(arrow_type)
    except (pa.ArrowException, ValueError, OverflowError):  # Python cannot represent them
        return None


def _comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return values of which two are equal if the keys are. Arrow takes 0.0 and -0.0 for different values when it
    hashes them, and two NaN when it compares them."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not pa.types.is_floating(array.type):
        return array
    numbers = pc.if_else(pc.is_nan(array), float("nan"), pc.add(array.cast(pa.float64()), 0.0))
    return numbers.view(pa.int64())


def _are_equal(values: pa.Array, others: pa.Array) -> Mask:
    both_null = pc.and_(values.is_null(), others.is_null())
    equal: Mask = pc.or_(pc.equal(values, others).fill_null(False), both_null).to_numpy(zero_copy_only=False)
    return equal
