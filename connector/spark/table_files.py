"""The data files that one task writes for a table, and for the table of its rejected rows."""

from datetime import UTC, datetime
from typing import Final

from connector.encoding.arrow_schema import arrow_schema
from connector.encoding.data_files import ROW_GROUP_SIZE, DataFileWriter
from connector.encoding.decoder import Decoded
from connector.encoding.invalid_cells import batch_of
from connector.model.state import DataFile
from connector.spark.layout import TableLayout

# Both writers may be open at once: this one must not double the memory that is planned for the other.
_REJECTED_ROW_GROUP_SIZE: Final = ROW_GROUP_SIZE // 4


class TableFiles:
    """What a task makes of consecutive blocks of one binding."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._rows = _writer(layout, ROW_GROUP_SIZE)
        self._rejected: DataFileWriter | None = None

    def write(self, decoded: Decoded) -> None:
        self._rows.write(decoded.batch)
        if decoded.rejected:
            rejected = self._layout.rejected
            assert rejected, "rows are rejected only where there is a table for them"
            self._rejected = self._rejected or _writer(rejected, _REJECTED_ROW_GROUP_SIZE)
            self._rejected.write(batch_of(decoded.rejected, datetime.now(UTC), arrow_schema(rejected.binding)))

    def close(self) -> None:
        """End the open files; further rows go to others."""
        self._rows.close_file()
        if self._rejected:
            self._rejected.close_file()

    def finish(self) -> list[tuple[int, tuple[DataFile, ...]]]:
        """All files by table, complete and durable."""
        written = [(self._layout.binding.index, tuple(self._rows.finish()))]
        if self._rejected and self._layout.rejected:
            written.append((self._layout.rejected.binding.index, tuple(self._rejected.finish())))
        return [(table, files) for table, files in written if files]

    def abort(self) -> None:
        """Delete what was written, as far as possible: nothing refers to it."""
        self._rows.abort()
        if self._rejected:
            self._rejected.abort()


def _writer(layout: TableLayout, row_group_size: int) -> DataFileWriter:
    binding = layout.binding
    return DataFileWriter(
        layout.io, layout.new_location, binding.columns, arrow_schema(binding), layout.options, row_group_size
    )
