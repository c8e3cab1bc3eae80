"""Rows and row groups of other files to data files of the target size, in the order in which they come."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from connector.encoding.parquet.assembled_files import AssembledFile, ColumnChunk
from connector.encoding.parquet.data_files import ROW_GROUP_SIZE, FileWriter, GatheredRowGroup, NewFiles
from connector.encoding.parquet.encoded_row_groups import EncodedRowGroup


@dataclass(frozen=True)
class CopiedRowGroup:
    """A row group of another file, of which some columns are copied without decoding."""

    rows: pa.Table  # with all columns; those that are copied have any values
    chunks: Mapping[int, ColumnChunk]  # by the column's index
    size: int  # bytes, uncompressed


class AssembledWriter(FileWriter[AssembledFile]):
    """Writes rows and copied row groups of one schema to files of the target size."""

    def __init__(self, files: NewFiles) -> None:
        super().__init__(files)
        self._gathered = GatheredRowGroup(ROW_GROUP_SIZE)
        self._copied: list[CopiedRowGroup] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        self._write_copied()
        for batches in self._gathered.fill(batch):
            self._encode(batches)

    def copy(self, group: CopiedRowGroup) -> None:
        """Add the rows of a row group. Consecutive ones become one, if the same columns are copied."""
        self._write_rows()
        size = sum(each.size for each in self._copied) + group.size
        if self._copied and (size > ROW_GROUP_SIZE or self._copied[0].chunks.keys() != group.chunks.keys()):
            self._write_copied()
        self._copied.append(group)

    def append(self, group: EncodedRowGroup, content: Iterable[bytearray]) -> None:
        """Add the rows of an encoded row group, given its bytes."""
        self._write_gathered()
        self._get_open_file().append(group, content)
        self._end_if_full()

    def _write_gathered(self) -> None:
        self._write_rows()
        self._write_copied()

    def _write_rows(self) -> None:
        if batches := self._gathered.take():
            self._encode(batches)

    def _encode(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._write_row_group(pa.Table.from_batches(batches, self._files.schema), {})

    def _write_copied(self) -> None:
        if not self._copied:
            return
        groups, self._copied = self._copied, []
        rows = pa.concat_tables([group.rows for group in groups])
        self._write_row_group(rows, {index: [group.chunks[index] for group in groups] for index in groups[0].chunks})

    def _write_row_group(self, rows: pa.Table, copied: Mapping[int, Sequence[ColumnChunk]]) -> None:
        self._get_open_file().write(rows, copied)
        self._end_if_full()

    def _get_open_file(self) -> AssembledFile:
        return self._get_file(lambda: AssembledFile(self._files))
