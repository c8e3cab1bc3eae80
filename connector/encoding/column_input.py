"""A column's values before they are converted, and which of them the column cannot hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from connector.encoding.texts import Positions, UnfitError, validity


class ColumnInput(Protocol):
    """A column's values, in the plain or the packed form."""

    def array(self) -> tuple[pa.Array, Positions]:
        """The column, and the rows whose values were clamped; UnfitError if some values cannot be held."""
        ...

    def without(self, rows: Positions) -> "ColumnInput":
        """The same values, with null in these rows."""
        ...


@dataclass(frozen=True)
class FittedColumn:
    """A column, with null wherever a value is unfit."""

    array: pa.Array
    clamped: Positions
    unfit: Mapping[int, str]  # rows and reasons


def fit(cells: ColumnInput, *, is_required: bool) -> FittedColumn:
    """The column, and what is unfit. Nearly always all values fit, which costs one conversion."""
    unfit: dict[int, str] = {}
    while isinstance(found := _array(cells), UnfitError):
        rows = found.rows.tolist()
        assert unfit.keys().isdisjoint(rows), "a null fits"
        unfit |= dict.fromkeys(rows, found.reason)
        cells = cells.without(found.rows)
    array, clamped = found
    if is_required and array.null_count > len(unfit):
        missing = set(np.flatnonzero(~validity(array)).tolist()) - unfit.keys()
        unfit |= dict.fromkeys(missing, "is null or missing, and the column is required")
    return FittedColumn(array, clamped, unfit)


def _array(cells: ColumnInput) -> tuple[pa.Array, Positions] | UnfitError:
    try:
        return cells.array()
    except UnfitError as error:
        return error
