"""Text to values: a whole column in one call, and one by one only those that Arrow cannot read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from connector.encoding.texts import UnfitError

_FASTER_BY_VALUE: Final = 16  # texts, or fewer


@dataclass(frozen=True)
class Parser:
    """`by_value` reads whatever `at_once` reads, with the same result, and more; ValueError means that a text is
    unfit."""

    arrow_type: pa.DataType
    by_value: Callable[[str], object]
    reason: str
    at_once: Callable[[pa.StringArray], pa.Array] | None = None  # default: Arrow's cast. Raises ArrowInvalid

    def parse(self, texts: pa.StringArray) -> pa.Array:
        unfit: list[int] = []
        array = pa.concat_arrays(self._parts(texts, 0, unfit))
        if unfit:
            raise UnfitError(np.array(unfit), self.reason)
        return array

    def _parts(self, texts: pa.StringArray, first_row: int, unfit: list[int]) -> Iterator[pa.Array]:
        """Halves the texts again and again around those that Arrow cannot read."""
        try:
            yield self.at_once(texts) if self.at_once else texts.cast(self.arrow_type)
        except pa.ArrowInvalid:
            if len(texts) <= _FASTER_BY_VALUE:
                yield pa.array(self._values(texts, first_row, unfit), self.arrow_type)
                return
            half = len(texts) // 2
            yield from self._parts(texts[:half], first_row, unfit)
            yield from self._parts(texts[half:], first_row + half, unfit)

    def _values(self, texts: pa.StringArray, first_row: int, unfit: list[int]) -> Iterator[object]:
        for row, text in enumerate(texts.to_pylist(), first_row):
            try:
                yield None if text is None else self.by_value(text)
            except ValueError:
                unfit.append(row)
                yield None
