"""Moved rows: where the rows of a compaction's sources are in its new files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from pyiceberg.io import FileIO

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.rewriting.file_groups import CompactedGroup
from connector.encoding.rewriting.row_order import join_place, read_row_order
from connector.encoding.values.arrays import NO_ROWS, Indices, Mask, Positions

_DELETED: Final = -1


@dataclass(frozen=True)
class MovedRows:
    """Where rows are now: arrays of one length, in the order in which the rows were asked for."""

    files: Indices  # indices of the group's new files; -1: no new file has the row, because it was deleted before
    positions: Positions  # within the file; -1 likewise

    @property
    def are_kept(self) -> Mask:
        """For each row, whether a new file has it."""
        kept: Mask = self.files != _DELETED
        return kept


def find_moved(io: FileIO, compacted: CompactedGroup, rows: Mapping[str, Positions]) -> dict[str, MovedRows]:
    """Return where rows of the sources are now, by the source's path.

    `rows` are positions in sources, by path. Paths must be those of the group's sources, exactly as it has them. Rows
    that the compaction has left out, because a position delete of the source deletes them, have the index -1.
    """
    sources = {source.path: index for index, source in enumerate(compacted.group.sources)}
    assert sources.keys() >= rows.keys(), "only rows of the group's sources have moved"
    if not rows:
        return {}
    by_source = {sources[path]: positions for path, positions in rows.items()}
    find = _find_by_counts if compacted.order is None else _find_in_order
    found = find(io, compacted, by_source)
    ends = np.cumsum([file.rows for file in compacted.files], dtype=np.int64)
    return {path: _split(found[sources[path]], ends) for path in rows}


def _split(indices: Indices, ends: Indices) -> MovedRows:
    """Return the file and the position of rows, whose indices count the rows of all new files."""
    files = np.searchsorted(ends, indices, side="right")
    begins = np.concatenate([[0], ends])[files]
    is_deleted = indices == _DELETED
    return MovedRows(np.where(is_deleted, _DELETED, files), np.where(is_deleted, _DELETED, indices - begins))


def _find_by_counts(io: FileIO, compacted: CompactedGroup, rows: Mapping[int, Positions]) -> dict[int, Indices]:
    begins = np.cumsum([0, *compacted.kept], dtype=np.int64)
    found = {}
    for index, positions in rows.items():
        source = compacted.group.sources[index]
        deleted = find_deleted_rows(io, source.path, source.position_deletes)
        before = np.searchsorted(deleted, positions)
        is_deleted = np.searchsorted(deleted, positions, side="right") > before
        found[index] = np.where(is_deleted, _DELETED, begins[index] + positions - before)
    return found


def _find_in_order(io: FileIO, compacted: CompactedGroup, rows: Mapping[int, Positions]) -> dict[int, Indices]:
    assert compacted.order is not None
    wanted = np.concatenate([join_place(index, positions) for index, positions in rows.items()])
    distinct, asked = np.unique(wanted, return_inverse=True)
    indices = np.full(len(distinct), _DELETED, np.int64)
    begin = 0
    for joined in read_row_order(io, compacted.order):
        nearest = np.searchsorted(distinct, joined)
        nearest[nearest == len(distinct)] = 0
        hits = np.flatnonzero(distinct[nearest] == joined) if len(distinct) else NO_ROWS
        indices[nearest[hits]] = begin + hits
        begin += len(joined)
    by_source = np.split(indices[asked], np.cumsum([len(positions) for positions in rows.values()])[:-1])
    return dict(zip(rows, by_source, strict=True))
