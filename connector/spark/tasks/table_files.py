"""What a task writes for one table, and for the table of its rejected rows."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from connector.encoding.lines.decoder import Decoded
from connector.encoding.lines.invalid_cells import make_batch
from connector.encoding.parquet.data_files import ROW_GROUP_SIZE, DataFileWriter, RowGroup
from connector.encoding.values.column_types import arrow_schema
from connector.model.state import DataFile
from connector.spark.blocks.block_transfer import StoredRun
from connector.spark.blocks.table_layout import TableLayout
from connector.spark.blocks.temporary_files import TemporaryFile

if TYPE_CHECKING:
    from connector.spark.tasks.run_writer import RunWriter

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
    """What a task writes from consecutive blocks of one binding, its rejected rows included.

    Rows go to data files, or to sorted runs if their table has partitions or a sort order.
    """

    def __init__(self, layout: TableLayout, block: TemporaryFile) -> None:
        """Runs go where the block is: to the same disk, or to the object store."""
        self._layout, self._block = layout, block
        self._first_line = 0
        self._run_writers: dict[int, RunWriter] = {}  # by table: its binding's index
        self._rows = self._open_writer(layout, ROW_GROUP_SIZE)
        self._rejected: RowWriter | None = None

    def begin_block(self, first_line: int) -> None:
        """Expect the rows of a block that begins with this line of the input."""
        self._first_line = first_line
        for writer in self._run_writers.values():
            writer.begin_block(first_line)

    def write(self, decoded: Decoded) -> None:
        """Write the rows of one batch, and its rejected rows."""
        self._rows.write(decoded.batch)
        if decoded.rejected:
            rejected = self._layout.rejected
            assert rejected, "rows are rejected only where there is a table for them"
            self._rejected = self._rejected or self._open_writer(rejected, _REJECTED_ROW_GROUP_SIZE)
            self._rejected.write(make_batch(decoded.rejected, datetime.now(UTC), arrow_schema(rejected.binding)))

    def close(self) -> None:
        """Make the rows durable. Further rows go to new files."""
        self._rows.close_file()
        if self._rejected:
            self._rejected.close_file()

    def finish(self) -> list[tuple[int, tuple[DataFile, ...]]]:
        """Return all data files by table, complete and durable. The other rows are in `runs`."""
        written = [(self._layout.binding.index, tuple(self._rows.finish()))]
        if self._rejected and self._layout.rejected:
            written.append((self._layout.rejected.binding.index, tuple(self._rejected.finish())))
        return [(table, files) for table, files in written if files]

    @property
    def runs(self) -> list[tuple[int, tuple[StoredRun, ...]]]:
        """The sorted runs by table, when all is finished."""
        return [(table, tuple(writer.runs)) for table, writer in self._run_writers.items() if writer.runs]

    def abort(self) -> None:
        """Delete files and runs, as far as possible. Nothing refers to them."""
        self._rows.abort()
        if self._rejected:
            self._rejected.abort()

    def _open_writer(self, layout: TableLayout, row_group_size: int) -> RowWriter:
        if layout.arrangement.is_plain:
            return DataFileWriter(layout.new_files, RowGroup(row_group_size))
        from connector.spark.tasks.run_writer import RunWriter  # only for arranged tables

        writer = RunWriter(layout, row_group_size, lambda: self._block.new_run(layout.new_run_location))
        writer.begin_block(self._first_line)
        self._run_writers[layout.binding.index] = writer
        return writer
