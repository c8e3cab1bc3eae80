"""A table's files as its object store has them, whether or not a snapshot refers to them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from connector.host.threads import map_in_threads
from connector.iceberg.metadata.references import SessionEndedError

DELETIONS_AT_ONCE: Final = 8

BUCKET_SUFFIX: Final = "--table-s3"  # of the names of such buckets only


def files_under(io: FileIO, directory: str) -> Iterator[str]:
    """The locations of all files there and below."""
    assert isinstance(io, PyArrowFileIO), "the only one that open_catalog asks for"
    scheme, netloc, root = io.parse_location(directory, io.properties)
    selector = FileSelector(root, recursive=True, allow_not_found=True)
    for file in io.fs_by_scheme(scheme, netloc).get_file_info(selector):
        if file.type == FileType.File:
            yield directory + file.path.removeprefix(root)


def delete_all(io: FileIO, locations: Iterable[str], is_interrupted: Callable[[], bool] = lambda: False) -> None:
    """Delete the files; those that are gone already do not matter."""

    def delete(location: str) -> None:
        if is_interrupted():
            raise SessionEndedError
        with suppress(FileNotFoundError):
            io.delete(location)

    map_in_threads(delete, sorted(locations), DELETIONS_AT_ONCE, "delete")


def is_in_table_bucket(location: str) -> bool:
    return urlsplit(location).netloc.endswith(BUCKET_SUFFIX)
