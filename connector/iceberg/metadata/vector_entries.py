"""Deletion vectors in manifests: their entries name the place in a Puffin file, and the data file.

PyIceberg's class of an entry's file has no names for these fields, which are new in version 3.
"""

from typing import Final

from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, FileFormat

from connector.encoding.live_rows.deletion_vectors import DeletionVector, FileId
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
