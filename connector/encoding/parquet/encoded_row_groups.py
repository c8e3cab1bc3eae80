"""Row groups that are encoded before their data file is known. They become part of it as they are: bytes are copied."""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.parquet.statistics import find_nan, worth_a_dictionary

_BEGIN: Final = 4  # bytes before the first row group of a Parquet file
_END: Final = 8  # bytes behind the metadata


@dataclass(frozen=True)
class EncodedRowGroup:
    """A row group of Parquet. Its column chunks follow each other."""

    offset: int  # where they begin
    size: int  # bytes
    metadata: bytes  # of a Parquet file with this row group only, in Thrift
    with_nan: frozenset[int]  # the indexes of columns with a NaN


def write_row_group(sink: Any, rows: pa.Table, options: FileOptions) -> EncodedRowGroup:
    """Write rows to the end of a file, as one row group."""
    begin = sink.tell()
    with pq.ParquetWriter(sink, rows.schema, **options.of_writer(worth_a_dictionary(rows))) as writer:
        writer.write_table(rows, row_group_size=rows.num_rows)
    metadata = writer.writer.metadata
    group = metadata.row_group(0)
    size = sum(group.column(index).total_compressed_size for index in range(group.num_columns))
    return EncodedRowGroup(begin + _BEGIN, size, _serialize(metadata), frozenset(find_nan(rows)))


def _serialize(metadata: pq.FileMetaData) -> bytes:
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    return bytes(memoryview(sink.getvalue())[_BEGIN:-_END])
