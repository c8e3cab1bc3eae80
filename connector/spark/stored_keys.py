"""Tables of keys on their way from the driver to tasks: on the disk that they share, or in the object store.

The tasks of a search get the keys of Loads. Those that write the next versions of the found rows get the keys of these
rows with their ids, in tables of format version 3.
"""

from dataclasses import replace
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from cachetools import LRUCache, cached

from connector.encoding.decoder import Decoded
from connector.encoding.key_tables import read_keys, write_keys
from connector.encoding.row_ids_of_keys import RowIdsOfKeys
from connector.host.tempdirs import translate_disk_errors
from connector.model.binding import Updates
from connector.model.properties import Properties
from connector.spark.block_transfer import Source, SpooledFile
from connector.spark.table_files import StoredKeys, TableLayout
from connector.storage.file_io import open_file_io
from connector.storage.storage_errors import translate_errors

_REMEMBERED: Final = 32 << 20  # bytes of row ids in each process


def store_keys(source: Source, keys: pa.Table, layout: TableLayout) -> None:
    """Write a table of keys for tasks."""
    if isinstance(source, SpooledFile):
        with translate_disk_errors("file for the keys of Loads"):
            write_keys(str(source.path), keys)
    else:
        with translate_errors(source.location), layout.io.new_output(source.location).create() as stream:
            write_keys(stream, keys)


def open_keys(source: StoredKeys, access: Properties) -> pa.Table:
    """Return a table of keys that the driver has written."""
    if isinstance(source, SpooledFile):
        return read_keys(str(source.path))
    with source.open(open_file_io(access)) as stream:
        return read_keys(stream.read())


def keep_row_ids(decoded: Decoded, layout: TableLayout) -> Decoded:
    """Return decoded rows with the ids of the rows that they replace."""
    assert layout.row_ids, "the layout says whether rows keep their ids"
    assert layout.binding.updates, "only bindings that update rows replace some"
    kept = _open_row_ids(layout.row_ids, layout.binding.updates, layout.access.value)
    return replace(decoded, batch=kept.add_to(decoded.batch))


def _size_of(row_ids: RowIdsOfKeys) -> int:
    return min(row_ids.size, _REMEMBERED)  # those that are larger are remembered alone


def _key_of(source: StoredKeys, *_: Any) -> StoredKeys:
    return source


# A worker encodes several blocks of a binding, and those of other bindings between them.
@cached(LRUCache(_REMEMBERED, getsizeof=_size_of), key=_key_of, lock=Lock())
def _open_row_ids(source: StoredKeys, updates: Updates, access: Properties) -> RowIdsOfKeys:
    return RowIdsOfKeys(open_keys(source, access), updates)
