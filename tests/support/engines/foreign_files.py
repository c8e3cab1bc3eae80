"""Data files that another engine lists in a table. They need not exist."""

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record


def list_data_file(table: Table, path: str, file_format: FileFormat = FileFormat.PARQUET) -> None:
    """Commit a data file of one row, of the unpartitioned spec."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=file_format,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
