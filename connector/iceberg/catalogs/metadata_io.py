"""How the files of tables' metadata are reached: over connections that stay open, a small file written in one request.

PyIceberg makes its FileIO anew whenever a table is loaded, and connections with it; and to write a file of a few kilobytes
it has an upload begun, its one part sent, and the upload completed.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pyarrow.fs import FileSystem, S3FileSystem

from connector.iceberg.files.file_io import StoreFileIO

FILE_IOS: Final = 32  # where a catalog hands out keys for each table, each has its own


def metadata_io(properties: Mapping[str, str]) -> StoreFileIO:
    """The same one for the same properties, which say where the files are and with which keys they are reached."""
    return _opened(tuple(sorted(properties.items())))


@lru_cache(FILE_IOS)
def _opened(properties: tuple[tuple[str, str], ...]) -> StoreFileIO:
    return _MetadataIO(dict(properties))


class _MetadataIO(StoreFileIO):
    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        # By what it is pickled as: PyIceberg has no setting for this option.
        _, (options,) = super()._initialize_s3_fs(netloc).__reduce__()
        return S3FileSystem(**{**options, "allow_delayed_open": True})
