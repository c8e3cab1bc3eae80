"""FileIOs whose connections stay open.

PyIceberg makes one anew whenever a table is loaded or its files are written, and to connect to a store again takes longer
than to write a small file.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pyiceberg.io import FileIO, load_file_io

FILE_IOS: Final = 32  # where a catalog hands out keys for each table, each has its own


def file_io(properties: Mapping[str, str]) -> FileIO:
    """The same one for the same properties, which say where files are and with which keys they are reached."""
    return _opened(tuple(sorted(properties.items())))


@lru_cache(FILE_IOS)
def _opened(properties: tuple[tuple[str, str], ...]) -> FileIO:
    return load_file_io(dict(properties))
