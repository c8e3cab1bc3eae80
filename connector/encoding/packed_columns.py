"""Packed elements to columns: numbers straight from the buffer, values of another kind than the column's by their
text."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import BooleanType, DoubleType, LongType, PrimitiveType

from connector.encoding.packed import DOUBLE, FALSE, LARGEST, NULL, TRUE, ZERO, Elements
from connector.encoding.texts import NO_ROWS, Positions, Texts, double_texts
from connector.encoding.value_rules import rule

_INTEGERS: Final = frozenset(range(ZERO - LARGEST, ZERO + LARGEST + 1))
_NUMBERS: Final = _INTEGERS | {NULL, DOUBLE}
_SIGN: Final = np.uint64(2**63)


@dataclass(frozen=True)
class PackedCells:
    """A column's values as elements of packed tuples."""

    elements: Elements
    column_type: PrimitiveType

    def array(self) -> tuple[pa.Array, Positions]:
        own_codes, read = _OWN_CODES.get(self.column_type, (frozenset(), _never))
        array = read(self.elements) if self.elements.present <= own_codes else None
        if array is not None:
            return array, NO_ROWS
        return rule(self.column_type)(_number_texts(self.elements) or self.elements.texts())

    def without(self, rows: Positions) -> "PackedCells":
        return replace(self, elements=self.elements.without(rows))


def _number_texts(elements: Elements) -> Texts | None:
    """What `Elements.texts` gives, but at once; None unless all are numbers of at most 64 bits."""
    doubles = elements.codes == DOUBLE
    if not elements.present <= _NUMBERS:
        return None
    longs = _longs(elements.without(np.flatnonzero(doubles)) if DOUBLE in elements.present else elements)
    if longs is None:
        return None
    array = longs.cast(pa.string())
    if DOUBLE in elements.present:
        mask = pa.array(doubles)
        array = pc.replace_with_mask(array, mask, double_texts(_doubles(elements).filter(mask)))
    return Texts(array, np.zeros(len(array), np.bool_))


def _never(_: Elements) -> pa.Array | None:
    return None


def _booleans(elements: Elements) -> pa.Array:
    return _array(elements.codes == TRUE, elements)


def _longs(elements: Elements) -> pa.Array | None:
    magnitudes, negative = elements.integers()
    if (magnitudes >= _SIGN + negative).any():
        return None
    return _array(np.where(negative, ~magnitudes + np.uint64(1), magnitudes).view(np.int64), elements)


def _doubles(elements: Elements) -> pa.Array:
    words = elements.words()
    numbers = np.where(words & _SIGN, words ^ _SIGN, ~words).view(np.float64)
    if not elements.present <= {NULL, DOUBLE}:
        magnitudes, negative = elements.integers()
        integers = magnitudes.astype(np.float64)
        numbers = np.where(elements.codes == DOUBLE, numbers, np.where(negative, -integers, integers))
    return _array(numbers, elements)


def _array(values: npt.NDArray[np.generic], elements: Elements) -> pa.Array:
    return pa.array(values, mask=elements.codes == NULL if NULL in elements.present else None)


_Reader: TypeAlias = Callable[[Elements], pa.Array | None]
# By column type, the codes whose elements are read straight from the buffer, and the reader.
_OWN_CODES: Final[dict[PrimitiveType, tuple[frozenset[int], _Reader]]] = {
    BooleanType(): (frozenset({NULL, FALSE, TRUE}), _booleans),
    LongType(): (_INTEGERS | {NULL}, _longs),
    DoubleType(): (_NUMBERS, _doubles),
}
