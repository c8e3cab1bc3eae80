"""The data files of a table's rows, with the deletes of other engines that apply to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.delete_file_index import DeleteFileIndex

from connector.encoding.rewriting import SourceFile
from connector.host.errors import UserError
from connector.iceberg.metadata.manifests import manifests_of


@dataclass(frozen=True)
class LiveFile:
    """A data file of the current snapshot, with the position deletes that apply to it."""

    entry: ManifestEntry
    source: SourceFile


@dataclass(frozen=True)
class LiveFiles:
    """Data files of the current snapshot, and all of its equality deletes."""

    files: Sequence[LiveFile]
    equality_deletes: Sequence[DataFile]


def find_live_files(table: Table, is_wanted: Callable[[DataFile], bool]) -> LiveFiles:
    """Return the data files that are wanted. UserError if one of them cannot be rewritten."""
    data, position_deletes, equality_deletes = [], DeleteFileIndex(), []
    for manifest in manifests_of(table.io, table.current_snapshot()):
        for entry in manifest.fetch_manifest_entry(table.io):
            match entry.data_file.content:
                case DataFileContent.DATA:
                    if is_wanted(entry.data_file):
                        data.append(entry)
                case DataFileContent.POSITION_DELETES:
                    _check_format(entry.data_file)
                    position_deletes.add_delete_file(entry, entry.data_file.partition)
                case DataFileContent.EQUALITY_DELETES:
                    equality_deletes.append(entry.data_file)
    return LiveFiles([LiveFile(entry, _source(entry, position_deletes)) for entry in data], equality_deletes)


def _source(entry: ManifestEntry, position_deletes: DeleteFileIndex) -> SourceFile:
    file = entry.data_file
    _check_format(file)
    assert entry.sequence_number is not None, "the manifest's reader fills it in"
    deletes = position_deletes.for_data_file(entry.sequence_number, file, file.partition)
    return SourceFile(file.file_path, file.file_size_in_bytes, tuple(sorted(delete.file_path for delete in deletes)))


def _check_format(file: DataFile) -> None:
    if file.file_format != FileFormat.PARQUET:
        raise UserError(
            f"{file.file_path} is no Parquet file: the connector cannot rewrite it. Have the table's files "
            "rewritten as Parquet first (in Spark: CALL system.rewrite_data_files), or increment the binding's "
            "backfill."
        )
