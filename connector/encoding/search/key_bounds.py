"""Which data files may have a searched key, by the bounds of the key columns that manifests have.

A bounds table has a row for each file, and three columns for each key column: the lowest and the highest value, both
null if they are unknown, and whether there may be nulls. Manifests may have a prefix of a long text: the lowest one is
rounded down, and the highest one up. So a file has nothing outside its bounds.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType

from connector.encoding.values.arrays import Indices, Mask, Numbers
from connector.encoding.values.column_types import arrow_type_of

# The lowest and the highest value, in Iceberg's form, and the number of nulls; None: unknown.
ColumnBounds: TypeAlias = tuple[bytes | None, bytes | None, int | None]

KeyTypes: TypeAlias = Mapping[int, PrimitiveType]  # by field id

_UNKNOWN: Final[ColumnBounds] = None, None, None
_COMPARED: Final = 1 << 18  # keys: of more, only the lowest and the highest values are compared
_TRIED: Final = 64  # keys within the bounds of one column that are compared with the other columns, too
_NULL: Final = 0  # below all ranks
_ABOVE_ALL: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class KeyValues:
    """The values of searched keys."""

    columns: KeyTypes
    table: pa.Table  # of these columns, with a row for each key


def make_bounds_table(columns: KeyTypes, files: Sequence[Mapping[int, ColumnBounds]]) -> pa.Table:
    """Return the bounds of these files, each of which has some by field id."""
    arrays: dict[str, pa.Array] = {}
    for number, column_type in columns.items():
        lower, upper, nulls = zip(*(file.get(number, _UNKNOWN) for file in files), strict=True) if files else ((),) * 3
        lowest, highest = _read_bounds(column_type, lower), _read_bounds(column_type, upper)
        is_known = pc.less_equal(lowest, highest)
        arrays[f"{number} lowest"] = pc.if_else(is_known, lowest, None)
        arrays[f"{number} highest"] = pc.if_else(is_known, highest, None)
        arrays[f"{number} nulls"] = pa.array([count != 0 for count in nulls], pa.bool_())
    return pa.table(arrays)


def _read_bounds(column_type: PrimitiveType, bounds: Sequence[bytes | None]) -> pa.Array:
    """Return the values, null in place of those that cannot be read: a column may have had another type.

    No bounds count NaN, so those of floats say nothing.
    """
    arrow_type = arrow_type_of(column_type)
    if pa.types.is_floating(arrow_type):
        return pa.nulls(len(bounds), arrow_type)
    values = [None if bound is None else _read_bound(column_type, bound) for bound in bounds]
    try:
        return pa.array(values, arrow_type)
    except (pa.ArrowException, ValueError, OverflowError):  # a decimal has more digits than its column
        if len(bounds) == 1:
            return pa.nulls(1, arrow_type)
        return pa.concat_arrays([_read_bounds(column_type, [bound]) for bound in bounds])


def _read_bound(column_type: PrimitiveType, bound: bytes) -> Any:
    try:
        return from_bytes(column_type, bound)
    except (struct.error, ValueError):
        return None


def find_files(bounds: pa.Table, keys: KeyValues) -> Mask:
    """Return which files may have one of the keys: all values of the key are within the bounds of the file.

    Some of the others are among them, where it would take long to tell. The bounds table has the columns of the keys.
    """
    are_few = keys.table.num_rows <= _COMPARED
    columns = [
        _RankedColumn.of(bounds.columns[3 * place : 3 * place + 3], values if are_few else _find_extremes(values))
        for place, values in enumerate(keys.table.columns)
    ]
    may_have: Mask = np.logical_and.reduce([column.allow_any(are_all=are_few) for column in columns])
    if are_few and len(columns) > 1:
        may_have &= _allow_one_key(columns)
    return may_have


def _find_extremes(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the lowest and the highest value, and a null if there are some."""
    extremes = pa.array(pc.min_max(values).values(), values.type)
    return pa.chunked_array([extremes, pa.nulls(min(values.null_count, 1), values.type)])


@dataclass(frozen=True)
class _RankedColumn:
    """The bounds of one column, and the values that keys have there, as ranks among all of these."""

    lowest: Numbers  # of each file; _NULL: unknown
    highest: Numbers  # of each file; _ABOVE_ALL: unknown
    may_be_null: Mask  # of each file
    keys: Numbers

    @classmethod
    def of(cls, bounds: Sequence[pa.ChunkedArray], keys: pa.ChunkedArray) -> "_RankedColumn":
        """Return the ranks. `bounds` are the three columns of a bounds table."""
        lowest, highest, nulls = bounds
        values = pa.chunked_array([*lowest.chunks, *highest.chunks, *keys.chunks], keys.type).combine_chunks()
        ranks = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64)
        ranks[values.is_null().to_numpy(zero_copy_only=False)] = _NULL
        low, high, of_keys = np.split(ranks, [len(lowest), len(lowest) + len(highest)])
        high[low == _NULL] = _ABOVE_ALL
        return cls(low, high, nulls.to_numpy() | (low == _NULL), of_keys)

    @cached_property
    def order(self) -> Indices:
        """The keys in the order of their values."""
        return np.argsort(self.keys)

    @cached_property
    def range(self) -> tuple[Indices, Indices]:
        """Where the values within the bounds of each file begin and end in this order."""
        values = self.keys[self.order]
        return np.searchsorted(values, self.lowest), np.searchsorted(values, self.highest, side="right")

    def allow_any(self, *, are_all: bool) -> Mask:
        """Return which files may have one of the values, or one between them unless these are all values."""
        begins, ends = self.range
        nulls = np.count_nonzero(self.keys == _NULL)
        has_any: Mask = begins < ends if are_all else (begins < len(self.keys)) & (ends > nulls)
        if nulls:
            has_any |= self.may_be_null
        return has_any

    def allow(self, files: Indices, keys: Indices) -> Mask:
        """Return which of these files may have the key at the same place."""
        ranks = self.keys[keys]
        is_within = (self.lowest[files] <= ranks) & (ranks <= self.highest[files])
        allowed: Mask = is_within | ((ranks == _NULL) & self.may_be_null[files])
        return allowed


def _allow_one_key(columns: Sequence[_RankedColumn]) -> Mask:
    """Return which files may have all values of one key. Those that may have many values of each column may."""
    counts = np.array([np.subtract(*reversed(column.range)) for column in columns])
    for count, column in zip(counts, columns, strict=True):
        if (column.keys == _NULL).any():
            count[column.may_be_null] = _ABOVE_ALL  # their keys are not all in one place
    narrowest = counts.argmin(axis=0)
    may_have: Mask = counts.min(axis=0) > _TRIED
    for place, column in enumerate(columns):
        files = np.flatnonzero((narrowest == place) & ~may_have)
        count = counts[place, files]
        nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        keys = column.order[np.repeat(column.range[0][files], count) + nth]
        files = np.repeat(files, count)
        may_have[files[np.logical_and.reduce([each.allow(files, keys) for each in columns])]] = True
    return may_have
