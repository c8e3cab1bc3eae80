"""The data files that a task writes for one table, and for the table of its rejected rows."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

import pyarrow as pa

from connector.encoding.lines.decoder import Decoded
from connector.encoding.lines.invalid_cells import make_batch
from connector.encoding.parquet.data_files import ROW_GROUP_SIZE, DataFileWriter, RowGroup
from connector.encoding.parquet.gathered_rows import GatheredRowGroup
from connector.encoding.values.column_types import arrow_schema
from connector.model.state import DataFile
from connector.spark.blocks.table_layout import TableLayout

# Both writers may be open at once: this one must not double the memory that is planned for the other.
_REJECTED_ROW_GROUP_SIZE: Final = ROW_GROUP_SIZE // 4


class RowWriter(Protocol):
    """Writes the rows of one table."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""

    def close_file(self) -> None:
        """Make the rows durable. Further rows go to another file."""

    def finish(self) -> list[DataFile]:
        """Return all data files, complete and durable."""

    def abort(self) -> None:
        """Delete all files, as far as possible. Nothing refers to them."""


class TableFiles:
    """The data files that a task writes from consecutive blocks of one binding, those of its rejected rows included."""

    runs: Final = ()  # rows go to data files at once

    def __init__(self, layout: TableLayout, open_writer: Callable[[TableLayout, int], RowWriter] | None = None) -> None:
        """`open_writer` opens the writer of a table with row groups of this size, in bytes."""
        self._layout = layout
        self._open_writer = open_writer or open_file_writer
        self._rows = self._open_writer(layout, ROW_GROUP_SIZE)
        self._rejected: RowWriter | None = None

    def begin_block(self, first_line: int) -> None:
        """Do nothing: blocks follow each other in the same files."""

    def write(self, decoded: Decoded) -> None:
        """Write the rows of one batch, and its rejected rows."""
        self._rows.write(decoded.batch)
        if decoded.rejected:
            rejected = self._layout.rejected
            assert rejected, "rows are rejected only where there is a table for them"
            self._rejected = self._rejected or self._open_writer(rejected, _REJECTED_ROW_GROUP_SIZE)
            self._rejected.write(make_batch(decoded.rejected, datetime.now(UTC), arrow_schema(rejected.binding)))

    def close(self) -> None:
        """End the open files. Further rows go to new files."""
        self._rows.close_file()
        if self._rejected:
            self._rejected.close_file()

    def finish(self) -> list[tuple[int, tuple[DataFile, ...]]]:
        """Return all files by table, complete and durable."""
        written = [(self._layout.binding.index, tuple(self._rows.finish()))]
        if self._rejected and self._layout.rejected:
            written.append((self._layout.rejected.binding.index, tuple(self._rejected.finish())))
        return [(table, files) for table, files in written if files]

    def abort(self) -> None:
        """Delete the files, as far as possible. Nothing refers to them."""
        self._rows.abort()
        if self._rejected:
            self._rejected.abort()


def open_file_writer(
    layout: TableLayout, row_group_size: int, gather: Callable[[int], RowGroup | GatheredRowGroup] = RowGroup
) -> DataFileWriter:
    """Return a writer of the table's data files, with row groups of this size in bytes."""
    return DataFileWriter(layout.new_files, gather(row_group_size))
