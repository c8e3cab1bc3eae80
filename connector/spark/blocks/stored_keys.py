"""Tables of keys on their way from the driver to tasks: on the disk that they share, or in the object store.

The tasks of a search get the keys of Loads. Those that write the next versions of the found rows get the keys of these
rows with their ids, in tables of format version 3.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Final

import pyarrow as pa
from cachetools import LRUCache, cached

from connector.encoding.lines.keys_tables import read_table, write_table
from connector.encoding.search.searched_keys import RowIdsOfKeys
from connector.host.tempdirs import translate_disk_errors
from connector.model.binding import Updates
from connector.model.properties import Properties
from connector.spark.blocks.transaction_files import LocalFile, TableLayout, TemporaryFile
from connector.storage.file_io import open_file_io

_OF_TABLE: Final = 4 << 10  # bytes that a table takes beside its values: there may be many with a few keys
_REMEMBERED: Final = 32 << 20  # bytes of row ids that each process keeps at most


class GatheredKeys:
    """The keys of the Loads of one binding. While they are gathered, they can be moved to a file."""

    def __init__(self, path: Path) -> None:
        """`path` is that of the file. It is made when keys are moved to it."""
        self.count = 0
        self.size = 0  # bytes in memory, about
        self._path = path
        self._tables: list[pa.Table] = []
        self._file: pa.RecordBatchFileWriter | None = None

    def add(self, keys: pa.Table) -> None:
        """Receive a part of the keys table."""
        self.count += keys.num_rows
        self._tables.append(keys)
        self.size += keys.nbytes + _OF_TABLE

    def move_to_disk(self) -> None:
        """Write the keys that are in memory to the file."""
        keys = self._take()
        with _on_disk():
            self._file = self._file or pa.ipc.new_file(str(self._path), keys.schema)
            self._file.write_table(keys)

    def store(self, file: TemporaryFile, layout: TableLayout) -> pa.Table:
        """Write the keys table for tasks, and return it. Most of a large one stays on the disk."""
        if self._file is None:
            keys = self._take()
            store_keys(file, keys.schema, [keys], layout)
            return keys
        if self._tables:
            self.move_to_disk()
        with _on_disk():
            self._file.close()
        keys = read_table(str(self._path))
        if isinstance(file, LocalFile):
            self._path.rename(file.path)
        else:
            store_keys(file, keys.schema, [keys], layout)
            self._path.unlink()  # it stays on the disk as long as it is mapped
        return keys

    def _take(self) -> pa.Table:
        keys = pa.concat_tables(self._tables).combine_chunks()
        self._tables, self.size = [], 0
        return keys


def store_keys(file: TemporaryFile, schema: pa.Schema, parts: Iterable[pa.Table], layout: TableLayout) -> None:
    """Write a table of keys for tasks, one part after the other."""
    if isinstance(file, LocalFile):
        with _on_disk():
            write_table(str(file.path), schema, parts)
    else:
        with file.create(layout.io) as stream:
            write_table(stream, schema, parts)


def _on_disk() -> AbstractContextManager[None]:
    return translate_disk_errors("file for the keys of Loads")


def open_keys(file: TemporaryFile, access: Properties) -> pa.Table:
    """Return a table of keys that the driver has written."""
    if isinstance(file, LocalFile):
        with _on_disk():
            return read_table(str(file.path))
    with file.open(open_file_io(access)) as stream:
        return read_table(stream.read())


def open_row_ids(layout: TableLayout) -> RowIdsOfKeys:
    """Return the ids of the rows that a transaction replaces. Those that are small stay in memory for other blocks."""
    assert layout.row_ids, "the layout says whether rows keep their ids"
    assert layout.binding.updates, "only bindings that update rows replace some"
    return _open_row_ids(layout.row_ids, layout.binding.updates, layout.access.value)


# A worker encodes several blocks of a binding, and those of other bindings between them. What is larger than the whole
# cache is not kept here.
@cached(LRUCache(_REMEMBERED, getsizeof=attrgetter("size")), key=lambda file, *_: file, lock=Lock())
def _open_row_ids(file: TemporaryFile, updates: Updates, access: Properties) -> RowIdsOfKeys:
    return RowIdsOfKeys(open_keys(file, access), updates)
