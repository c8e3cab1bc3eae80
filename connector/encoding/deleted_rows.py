"""Deleted rows: the positions of a data file's rows that delete files and pending commits delete."""

from dataclasses import dataclass
from threading import Lock
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache, cached
from pyiceberg.io import FileIO

from connector.encoding.position_deletes import read_position_deletes

RowPositions: TypeAlias = npt.NDArray[np.int64]

_REMEMBERED: Final = 32 << 20  # bytes in each process
_PATH_SIZE: Final = 256  # bytes of memory that the path of a data file takes with its place, about
_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True)
class _PositionsByFile:
    positions: RowPositions  # of one data file after the other, in order
    slices: dict[str, slice]

    @classmethod
    def of(cls, rows: pa.Table) -> "_PositionsByFile":
        if not rows.num_rows:
            return cls(_NONE, {})
        paths = rows["file_path"].unify_dictionaries().combine_chunks()
        places, positions = paths.indices.to_numpy(), rows["pos"].to_numpy()
        ends = np.cumsum(np.bincount(places, minlength=len(paths.dictionary)))
        slices = map(slice, np.append(0, ends[:-1]).tolist(), ends.tolist())
        by_path = dict(zip(paths.dictionary.to_pylist(), slices, strict=True))
        return cls(positions[np.lexsort((positions, places))], by_path)

    def find(self, path: str) -> RowPositions:
        return self.positions[self.slices[path]] if path in self.slices else _NONE


def _size_of(rows: _PositionsByFile) -> int:
    return rows.positions.nbytes + _PATH_SIZE * len(rows.slices)


def _location_of(_: FileIO, location: str) -> str:
    return location


# Files never change, and the searches of many data files need the same delete files.
@cached(LRUCache(_REMEMBERED, getsizeof=_size_of), key=_location_of, lock=Lock())
def _deleted_by(io: FileIO, delete_file: str) -> _PositionsByFile:
    return _PositionsByFile.of(read_position_deletes(io, delete_file))


def find_deleted_rows(
    io: FileIO, path: str, delete_files: tuple[str, ...] = (), pending: RowPositions = _NONE
) -> RowPositions:
    """Return the positions of a data file's deleted rows, in order and without duplicates.

    `pending` are the positions in this file that pending commits delete.
    """
    return np.unique(np.concatenate([pending, *(_deleted_by(io, each).find(path) for each in delete_files)]))
