"""FileIOs whose connections stay open.

PyIceberg makes a new one whenever a table is loaded or its files are written, and connecting to a store again takes
longer than writing a small file.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pyiceberg.io import FileIO, load_file_io

FILE_IOS: Final = 32  # more than one, for catalogs that hand out keys for each table


def file_io(properties: Mapping[str, str]) -> FileIO:
    """The same FileIO for the same properties, which say where files are and which keys open them."""
    return _opened(tuple(sorted(properties.items())))


@lru_cache(FILE_IOS)
def _opened(properties: tuple[tuple[str, str], ...]) -> FileIO:
    return load_file_io(dict(properties))
