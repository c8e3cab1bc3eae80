"""Deletion vectors in manifests: their entries name the place in a Puffin file, and the data file.

PyIceberg's class of an entry's file has no names for these fields, which are new in version 3.
"""

from typing import Final

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
)

from connector.encoding.live_rows.deletion_vectors import DeletionVector, FileId, WrittenVector
from connector.iceberg.metadata.partitions import Partition
from connector.iceberg.metadata.row_lineage import NEWEST_VERSION

_NAMES: Final = [field.name for field in DATA_FILE_TYPE[NEWEST_VERSION].fields]
_DATA_PATH, _OFFSET, _SIZE = map(_NAMES.index, ("referenced_data_file", "content_offset", "content_size_in_bytes"))


def find_vector(file: DataFile) -> DeletionVector | None:
    """Return the deletion vector that an entry names, None if it names a whole file."""
    if file.file_format is not FileFormat.PUFFIN:
        return None
    return DeletionVector(file.file_path, file[_OFFSET], file[_SIZE], file[_DATA_PATH])


def find_id(file: DataFile) -> FileId:
    """Return what tells the file of an entry from other files of the table."""
    return find_vector(file) or file.file_path


def make_vector_entry(written: WrittenVector, partition: Partition) -> ManifestEntry:
    """Return an ADDED entry. It inherits its sequence numbers from the manifest list. `partition` is that of the data
    file."""
    file = DataFile.from_args(
        NEWEST_VERSION,
        content=DataFileContent.POSITION_DELETES,
        file_path=written.path,
        file_format=FileFormat.PUFFIN,
        partition=partition.record,
        record_count=written.rows,
        file_size_in_bytes=written.file_size,
        referenced_data_file=written.vector.data_path,
        content_offset=written.vector.offset,
        content_size_in_bytes=written.size,
    )
    file.spec_id = partition.spec_id
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=None,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )
