"""Where a search has found the rows of keys, in small arrays, and which of a key's rows is the newest."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from connector.encoding.values.arrays import Mask, Numbers

_AT_ONCE: Final = 1 << 16  # rows


@dataclass(frozen=True)
class RowsOfKeys:
    """Rows of keys, and their ids: arrays of one length."""

    files: Numbers  # indices in the view
    keys: Numbers  # indices in the keys table
    positions: Numbers  # within the file
    row_ids: Numbers | None  # None: no row has one

    @classmethod
    def join(cls, parts: Sequence["RowsOfKeys"]) -> "RowsOfKeys":
        """Return the rows of all parts, in their order, as the smallest numbers that hold them. A search returns a row
        for each of a million keys."""
        parts = [part for part in parts if len(part)]
        ids = [part.row_ids for part in parts if part.row_ids is not None]
        assert len(ids) in (0, len(parts)), "a view says whether its rows keep their ids"
        return cls(
            _join([part.files for part in parts]),
            _join([part.keys for part in parts]),
            _join([part.positions for part in parts]),
            _join(ids) if ids else None,
        )

    @classmethod
    def of_table(cls, table: pa.Table) -> "RowsOfKeys":
        """Return the rows of a table that `to_table` has made."""
        arrays = {name: table[name].to_numpy() for name in table.column_names}
        return cls(arrays["files"], arrays["keys"], arrays["positions"], arrays.get("row_ids"))

    def to_table(self) -> pa.Table:
        """Return the rows as a table, to be written to a file."""
        columns = {"files": self.files, "keys": self.keys, "positions": self.positions}
        return pa.table(columns if self.row_ids is None else {**columns, "row_ids": self.row_ids})

    def __len__(self) -> int:
        return len(self.keys)

    def slices(self) -> Iterator["RowsOfKeys"]:
        """Yield some of the rows after the others."""
        for begin in range(0, len(self), _AT_ONCE):
            yield self.take(slice(begin, begin + _AT_ONCE))

    def take(self, chosen: slice | Mask) -> "RowsOfKeys":
        """Return some of the rows, in their order."""
        ids = None if self.row_ids is None else self.row_ids[chosen]
        return RowsOfKeys(self.files[chosen], self.keys[chosen], self.positions[chosen], ids)


def choose_newest(
    parts: Sequence[RowsOfKeys], key_count: int, find_changes: Callable[[RowsOfKeys], Numbers]
) -> list[Mask]:
    """Return which rows of each part are the newest of their keys. The keys table has `key_count` keys.

    `find_changes` returns the number of the commit that last changed each row. Of one commit, the row in the last file
    of the view is the newest, and the last one in the file.

    A key has several rows if another writer has added some, or if the table had them before its binding updated rows.
    """
    counts = np.bincount(np.concatenate([part.keys for part in parts]), minlength=key_count)
    doubtful = [counts[part.keys] > 1 for part in parts]
    newest = [~mask for mask in doubtful]
    if any(mask.any() for mask in doubtful):
        rows = RowsOfKeys.join([part.take(mask) for part, mask in zip(parts, doubtful, strict=True)])
        ends = np.cumsum([mask.sum() for mask in doubtful])
        decided = np.split(_find_newest(rows, find_changes(rows)), ends[:-1])
        for newest_mask, doubtful_mask, decided_mask in zip(newest, doubtful, decided, strict=True):
            newest_mask[doubtful_mask] = decided_mask
    return newest


def _find_newest(rows: RowsOfKeys, changes: Numbers) -> Mask:
    order = np.lexsort((rows.positions, rows.files, changes, rows.keys))  # of each key, the newest comes last
    keys = rows.keys[order]
    newest_mask = np.zeros(len(keys), np.bool_)
    newest_mask[order[np.append(keys[1:] != keys[:-1], True)]] = True
    return newest_mask


def _join(arrays: Sequence[Numbers]) -> Numbers:
    joined = np.concatenate([np.empty(0, np.int64), *arrays]).astype(np.int64)
    if not len(joined):
        return joined
    return joined.astype(np.result_type(np.min_scalar_type(joined.min()), np.min_scalar_type(joined.max())))
