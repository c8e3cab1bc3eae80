"""Finds the commits that have last changed some rows: the higher its sequence number, the newer the row.

A file of new rows has the number of its commit in the table's metadata. A compacted file has rows of many commits, and
a number for each row in a column of its own.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from connector.encoding.live_rows.lineage_columns import SEQUENCE_NUMBER
from connector.encoding.parquet.damaged_files import explain_damage
from connector.encoding.parquet.file_columns import column_of, read_footer
from connector.encoding.search.row_search import SearchedFile
from connector.encoding.search.rows_of_keys import RowsOfKeys
from connector.encoding.values.arrays import Numbers, Positions
from connector.encoding.values.column_types import find_columns
from connector.host.signals import map_in_threads
from connector.storage.storage_errors import translate_errors

PENDING: Final = np.iinfo(np.int64).max  # higher than the number of any commit of the table
_ROWS: Final = 1 << 16  # that are decoded at once
_FILES_AT_ONCE: Final = 8


def find_last_changes(io: FileIO, files: Sequence[SearchedFile], rows: RowsOfKeys) -> Numbers:
    """Return the sequence number of the commit that last changed each row; PENDING if its commit is still to come.

    `files` are those of the view. Only the files that have the column are read.
    """
    order = np.argsort(rows.files, kind="stable")
    ends = np.flatnonzero(np.diff(rows.files[order].astype(np.int64))) + 1

    def read(places: Positions) -> Numbers:
        return _read(io, files[int(rows.files[places[0]])], rows.positions[places])

    changes = np.empty(len(rows), np.int64)
    changes[order] = np.concatenate(map_in_threads(read, np.split(order, ends), _FILES_AT_ONCE, "newest"))
    return changes


def _read(io: FileIO, file: SearchedFile, positions: Numbers) -> Numbers:
    if file.lineage is None:
        return np.full(len(positions), PENDING)
    inherited = np.full(len(positions), file.lineage.sequence_number)
    footer = read_footer(io, file.path)
    schema = footer.schema.to_arrow_schema()
    place = find_columns(schema, file.path).get(SEQUENCE_NUMBER)
    if place is None:
        return inherited
    with translate_errors(file.path), io.new_input(file.path).open() as stream, explain_damage(file.path):
        opened = pq.ParquetFile(stream, metadata=footer)
        own = _take(opened, str(schema.field(place).name), *np.unique(positions, return_inverse=True))
    return np.asarray(pc.coalesce(own, pa.array(inherited)).to_numpy())


def _take(file: pq.ParquetFile, name: str, positions: Numbers, wanted: Positions) -> pa.Array:
    """Return the values of a column at the wanted ones of these positions, which are in order."""
    rows = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    begins = np.cumsum([0, *rows])
    found: list[pa.Array] = []
    for group in np.unique(np.searchsorted(begins, positions, side="right") - 1).tolist():
        first = begins[group]
        for batch in file.iter_batches(_ROWS, [group], columns=[name], use_threads=False):
            begin, end = np.searchsorted(positions, (first, first + batch.num_rows))
            found.append(column_of(batch, SEQUENCE_NUMBER).take(pa.array(positions[begin:end] - first)))
            first += batch.num_rows
    return pa.concat_arrays(found).take(pa.array(wanted))
