"""How the files of tables' metadata are reached: over connections that stay open.

PyIceberg makes its FileIO anew whenever a table is loaded, and connections with it.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from connector.iceberg.files.file_io import StoreFileIO

FILE_IOS: Final = 32  # where a catalog hands out keys for each table, each has its own


def metadata_io(properties: Mapping[str, str]) -> StoreFileIO:
    """The same one for the same properties, which say where the files are and with which keys they are reached."""
    return _opened(tuple(sorted(properties.items())))


@lru_cache(FILE_IOS)
def _opened(properties: tuple[tuple[str, str], ...]) -> StoreFileIO:
    return StoreFileIO(dict(properties))
