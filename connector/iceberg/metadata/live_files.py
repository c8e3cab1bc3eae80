"""The data files that a table's rows are in, with the deletes of other engines that apply to them."""

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.delete_file_index import DeleteFileIndex

from connector.encoding.rewriting import SourceFile
from connector.host.errors import UserError
from connector.iceberg.metadata.manifests import manifests_of


@dataclass(frozen=True)
class LiveFile:
    """A data file of the current snapshot."""

    entry: ManifestEntry
    source: SourceFile


def files_with_values(table: Table, column_ids: Collection[int]) -> list[LiveFile]:
    """The files that may hold a value of one of these columns; UserError where one of them cannot be rewritten."""
    data, position_deletes = [], DeleteFileIndex()
    for manifest in manifests_of(table.io, table.current_snapshot()):
        for entry in manifest.fetch_manifest_entry(table.io):
            match entry.data_file.content:
                case DataFileContent.DATA:
                    if any(_may_have_values(entry.data_file, column) for column in column_ids):
                        data.append(entry)
                case DataFileContent.POSITION_DELETES:
                    _check_format(entry.data_file)
                    position_deletes.add_delete_file(entry, entry.data_file.partition)
                case DataFileContent.EQUALITY_DELETES:
                    # They apply to the new files as to the old ones, which have the same sequence number.
                    _check_columns(table, entry.data_file, column_ids)
    return [LiveFile(entry, _source(entry, position_deletes)) for entry in data]


def _may_have_values(file: DataFile, column: int) -> bool:
    nulls = (file.null_value_counts or {}).get(column)
    return nulls is None or nulls < file.record_count


def _source(entry: ManifestEntry, position_deletes: DeleteFileIndex) -> SourceFile:
    file = entry.data_file
    _check_format(file)
    assert entry.sequence_number is not None, "the manifest's reader fills it in"
    deletes = position_deletes.for_data_file(entry.sequence_number, file, file.partition)
    return SourceFile(file.file_path, file.file_size_in_bytes, tuple(sorted(delete.file_path for delete in deletes)))


def _check_format(file: DataFile) -> None:
    if file.file_format != FileFormat.PARQUET:
        raise UserError(
            f"{file.file_path} is no Parquet file: the connector cannot convert its columns. Have the table's files "
            "rewritten as Parquet first (in Spark: CALL system.rewrite_data_files), or increment the binding's "
            "backfill."
        )


def _check_columns(table: Table, equality_delete: DataFile, column_ids: Collection[int]) -> None:
    for column in table.schema().fields:
        if column.field_id in column_ids and column.field_id in (equality_delete.equality_ids or ()):
            raise UserError(
                f"table {'.'.join(table.name())}: another engine has deleted rows by their value of {column.name!r}, a "
                "column that is to be converted. Have the deletions merged into the data files first (in Spark: CALL "
                "system.rewrite_data_files), or increment the binding's backfill."
            )
