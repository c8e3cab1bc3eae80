"""Finds the commits that have last changed some rows: the higher its sequence number, the newer the row.

A file of new rows has the number of its commit in the table's metadata. A compacted file has rows of many commits, and
a number for each row in a column of its own.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from connector.encoding.live_rows.lineage_columns import SEQUENCE_NUMBER
from connector.encoding.parquet.file_columns import FileColumns, open_data_file
from connector.encoding.search.row_search import SearchedFile
from connector.encoding.search.rows_of_keys import RowsOfKeys
from connector.encoding.values.arrays import Numbers, Positions
from connector.host.threads import map_in_threads

PENDING: Final = np.iinfo(np.int64).max  # higher than the number of any commit of the table


def find_last_changes(io: FileIO, files: Sequence[SearchedFile], rows: RowsOfKeys) -> Numbers:
    """Return the sequence number of the commit that last changed each row; PENDING if its commit is still to come.

    `files` are those of the view. Only the files that have the column are read.
    """
    order = np.argsort(rows.files, kind="stable")
    ends = np.flatnonzero(np.diff(rows.files[order].astype(np.int64))) + 1

    def read(indices: Positions) -> Numbers:
        return _read(io, files[int(rows.files[indices[0]])], rows.positions[indices])

    changes = np.empty(len(rows), np.int64)
    changes[order] = np.concatenate(map_in_threads(read, np.split(order, ends), "newest"))
    return changes


def _read(io: FileIO, file: SearchedFile, positions: Numbers) -> Numbers:
    if file.lineage is None:
        return np.full(len(positions), PENDING)
    inherited = np.full(len(positions), file.lineage.sequence_number)
    with open_data_file(io, file.path, file.size) as reader:
        columns = FileColumns(reader, file.mapping)
        if SEQUENCE_NUMBER not in columns.names:
            return inherited
        distinct, wanted = np.unique(positions.astype(np.int64), return_inverse=True)
        groups = columns.find_row_groups(distinct)
        kept = [
            columns.read_values(SEQUENCE_NUMBER, group, distinct[groups == group])
            for group in np.unique(groups).tolist()
        ]
    return np.asarray(pc.coalesce(pa.concat_arrays(kept).take(pa.array(wanted)), pa.array(inherited)).to_numpy())
