"""The live files that a conversion of columns rewrites, with the deletes that apply to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from connector.encoding.live_rows.source_rows import SourceFile
from connector.host.errors import UserError
from connector.iceberg.metadata.listed_files import ListedFile, PositionDeletes, check_stores
from connector.iceberg.metadata.manifests import manifests_of, read_entries


@dataclass(frozen=True)
class LiveFile:
    """A data file of the current snapshot, with the position deletes that apply to it."""

    listed: ListedFile
    source: SourceFile
    file_scoped: Sequence[ListedFile]  # delete files of this data file alone; they go when it goes


@dataclass(frozen=True)
class LiveFiles:
    """Data files of the current snapshot, and all of its equality deletes."""

    files: Sequence[LiveFile]
    equality_deletes: Sequence[ManifestDataFile]


def find_live_files(table: Table, is_wanted: Callable[[ManifestDataFile], bool], remedy: str) -> LiveFiles:
    """Return the data files that are wanted. UserError if one of them cannot be rewritten; `remedy` says what helps."""
    data, position_deletes, equality_deletes = [], [], []
    for manifest in manifests_of(table, table.current_snapshot()):
        for entry in read_entries(table.io, manifest):
            listed = ListedFile.of(manifest, entry)
            check_stores(table, [listed])
            match listed.content:
                case DataFileContent.DATA if is_wanted(entry.data_file):
                    data.append(listed)
                case DataFileContent.POSITION_DELETES:
                    _check_format(listed, remedy)
                    position_deletes.append(listed)
                case DataFileContent.EQUALITY_DELETES:
                    equality_deletes.append(entry.data_file)
    deletes = PositionDeletes(position_deletes)
    applied = deletes.find_all(data)
    for file in data:
        _check_format(file, remedy)
    files = [
        LiveFile(file, file.as_source(applied[file.path]), deletes.file_scoped.get(file.path, ())) for file in data
    ]
    return LiveFiles(files, equality_deletes)


def _check_format(file: ListedFile, remedy: str) -> None:
    if not file.is_readable:
        raise UserError(
            f"{file.path} is no Parquet file: the connector cannot rewrite it. Have the table's files "
            f"rewritten as Parquet first (in Spark: CALL system.rewrite_data_files), or {remedy}."
        )
