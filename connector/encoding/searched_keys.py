"""The keys of a search, indexed by the values that rows have in the key columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.encoding.document_keys import Key, parse_key
from connector.encoding.key_tables import KEY, part_name
from connector.model.binding import Updates

Places: TypeAlias = npt.NDArray[np.int64]

_NO_CODE: Final = -1


@dataclass(frozen=True)
class Bounds:
    """What a row group's statistics say of one column."""

    extremes: pa.Array | None  # the lowest and the highest value; None: unknown
    has_nulls: bool


@dataclass(frozen=True)
class _Part:
    """The different values of one part of the keys, and which of them occur together with those of the parts before.

    Values have codes: their places among the different values. Combinations of codes have ids without gaps, so that
    the next part can be combined with them: a product of all codes would not fit into 64 bits.
    """

    values: pa.Array
    combinations: Places  # id of the parts before * number of values + code, in order

    def find(self, values: pa.Array, ids: Places) -> tuple[Places, Places]:
        """Return the rows whose combination occurs in the keys, and their ids."""
        codes = pc.index_in(_without_sign_of_zero(values), value_set=self.values).fill_null(_NO_CODE).to_numpy()
        rows = np.flatnonzero(codes != _NO_CODE)
        combinations = ids[rows] * len(self.values) + codes[rows]
        found = np.minimum(np.searchsorted(self.combinations, combinations), len(self.combinations) - 1)
        occurs = self.combinations[found] == combinations
        return rows[occurs], found[occurs]

    def are_within(self, bounds: Bounds) -> npt.NDArray[np.bool_]:
        """Return which values, by their codes, a row group with these bounds may have."""
        if bounds.extremes is None:
            return np.ones(len(self.values), np.bool_)
        lowest, highest = bounds.extremes
        is_between = pc.and_(pc.greater_equal(self.values, lowest), pc.less_equal(self.values, highest))
        may: npt.NDArray[np.bool_] = is_between.fill_null(bounds.has_nulls).to_numpy(zero_copy_only=False)
        return may


class Keys:
    """The keys of a keys table. Rows have the same values if they have the same id; several keys may have one id."""

    def __init__(self, table: pa.Table, updates: Updates) -> None:
        self.updates = updates
        self._texts = table[KEY]
        self._parsed: dict[int, Key] = {}
        self.types: list[pa.DataType] = [table.field(part_name(part)).type for part in updates.parts]
        self._parts: list[_Part] = []
        self._codes: list[Places] = []  # of each part, by key
        ids: Places = np.zeros(table.num_rows, np.int64)
        for part in updates.parts:
            encoded = _without_sign_of_zero(table[part_name(part)].combine_chunks()).dictionary_encode("encode")
            codes = encoded.indices.to_numpy().astype(np.int64)
            combinations, ids = np.unique(ids * len(encoded.dictionary) + codes, return_inverse=True)
            self._parts.append(_Part(encoded.dictionary, combinations))
            self._codes.append(codes)
        self._places: Places = np.argsort(ids, kind="stable")  # in the keys table, by id
        self._ends: Places = np.cumsum(np.bincount(ids)) if len(ids) else np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._places)

    def find(self, columns: Sequence[pa.Array]) -> tuple[Places, Places]:
        """Return the rows that have the values of some key, and their ids. `columns` are the key columns."""
        rows: Places = np.arange(len(columns[0]))
        ids: Places = np.zeros(len(rows), np.int64)
        for number, (part, column) in enumerate(zip(self._parts, columns, strict=True)):
            found, ids = part.find(column.take(pa.array(rows)) if number else column, ids)
            rows = rows[found]
        return rows, ids

    def keys_of(self, ids: Places) -> tuple[Places, Places]:
        """Return all keys of these ids: places in `ids`, and places in the keys table."""
        begins = np.append(0, self._ends[:-1])[ids]
        counts = self._ends[ids] - begins
        rows = np.repeat(np.arange(len(ids)), counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, self._places[begins[rows] + nth]

    def keys_of_documents(self, ids: Places, documents: Sequence[Key]) -> tuple[Places, Places]:
        """Return the same as `keys_of`, but only the keys that are equal to those of the rows' documents."""
        rows, places = self.keys_of(ids)
        pairs = zip(rows.tolist(), places.tolist(), strict=True)
        is_equal = np.array([self._key(place) == documents[row] for row, place in pairs], np.bool_)
        return rows[is_equal], places[is_equal]

    def may_be_within(self, bounds: Sequence[Bounds]) -> bool:
        """Return whether a row group with these bounds of the key columns may have one of the keys."""
        may: npt.NDArray[np.bool_] = np.ones(len(self), np.bool_)
        for part, codes, bound in zip(self._parts, self._codes, bounds, strict=True):
            may &= part.are_within(bound)[codes]
        return bool(may.any())

    def _key(self, place: int) -> Key:
        if place not in self._parsed:
            self._parsed[place] = parse_key(self._texts[place].as_py())
        return self._parsed[place]


def _without_sign_of_zero(values: pa.Array) -> pa.Array:
    """Arrow takes -0.0 and 0.0 for different values, but keys with them are equal."""
    return pc.add(values, 0.0) if pa.types.is_floating(values.type) else values
