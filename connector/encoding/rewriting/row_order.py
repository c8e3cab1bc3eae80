"""The order of a compaction's rows: an object that says of each new row from which source and position it comes.

Only compactions that sort rows have one. It is a Parquet file with the columns `source` (the source's index in its
group) and `position` (the row's position in the source), with a row for each row of the new files, in their order.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from connector.encoding.values.arrays import Positions
from connector.storage.file_io import create_file
from connector.storage.storage_errors import translate_errors

SUFFIX: Final = "-order.parquet"

_BITS: Final = 40  # of a position
_ROW_GROUP: Final = 1 << 17  # rows: one and a half megabytes
# The columns that say where a row comes from.
ORIGIN: Final = (pa.field("source", pa.int32(), nullable=False), pa.field("position", pa.int64(), nullable=False))
_SCHEMA: Final = pa.schema(ORIGIN)


def join_place(sources: int | Positions, positions: Positions) -> Positions:
    """Return one number for each row: of the source's index and the row's position."""
    return (sources << _BITS) + positions


class RowOrderWriter:
    """Writes the order while rows are merged. It holds one row group."""

    def __init__(self, io: FileIO, location: str) -> None:
        self.location = location
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        with translate_errors(location):
            self._stream = create_file(io, location)
        self._writer = pq.ParquetWriter(
            self._stream,
            _SCHEMA,
            compression="zstd",
            use_dictionary=["source"],
            column_encoding={"position": "DELTA_BINARY_PACKED"},
            write_statistics=False,
            store_schema=False,
        )

    def write(self, sources: pa.Array, positions: pa.Array) -> None:
        """Add the rows that come next in the new files."""
        self._batches.append(pa.RecordBatch.from_arrays([sources, positions], schema=_SCHEMA))
        self._rows += len(sources)
        if self._rows >= _ROW_GROUP:
            self._write_row_group()

    def finish(self) -> str:
        """Return the location of the object, which is durable."""
        with translate_errors(self.location):
            self._write_row_group()
            self._writer.close()
            self._stream.close()
        return self.location

    def abort(self) -> None:
        """End writing. What may be left of the object is to be deleted."""
        with translate_errors(self.location):
            self._writer.close()
            self._stream.abort()

    def _write_row_group(self) -> None:
        if self._batches:
            with translate_errors(self.location):
                self._writer.write_table(pa.Table.from_batches(self._batches))
            self._batches, self._rows = [], 0


def read_row_order(io: FileIO, location: str) -> Iterator[Positions]:
    """Yield the source and the position of each new row, as one number (`join_place`), some rows at a time."""
    with translate_errors(location), io.new_input(location).open(seekable=True) as stream:
        file = pq.ParquetFile(stream)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            yield join_place(rows["source"].to_numpy().astype(np.int64), rows["position"].to_numpy())
