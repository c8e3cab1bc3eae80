"""The kinds of NumPy arrays that go with Arrow's columns."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Indices: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]  # whether each row has a property
Numbers: TypeAlias = npt.NDArray[np.integer[Any]]  # integers of any size
Positions: TypeAlias = npt.NDArray[np.int64]  # of rows, within a file or a column
Words: TypeAlias = npt.NDArray[np.uint64]

NO_ROWS: Final[Positions] = np.empty(0, np.int64)


def join_arrays(arrays: Sequence[Indices]) -> Indices:
    """Return one array with all of these, in their order. There may be none."""
    return np.concatenate([NO_ROWS, *arrays])
