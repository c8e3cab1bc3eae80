"""Located rows: the rows of earlier versions that a commit deletes, with their keys, as a staged object.

The object has keys, not only positions. Another engine may move a row to another file before the commit, and then only
its key finds it again. A later process may have no binding for the table any more. So the object also says which
columns and which places in documents have the key.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache
from pyiceberg.io import FileIO
from pyiceberg.types import PrimitiveType

from connector.encoding.lines.keys_tables import KEY, keys_of_texts, take_keys
from connector.encoding.parquet.data_files import open_new_file
from connector.encoding.search.rows_of_keys import RowsOfKeys
from connector.host.errors import BACKFILL, UnfitCommitError
from connector.model.binding import Updates
from connector.storage.file_io import WriteFile, write_small_file
from connector.storage.storage_errors import translate_errors

SUFFIX: Final = "-located.parquet"  # of the objects' names; no manifest lists them
_REMEMBERED: Final = 8 << 20  # bytes in each process
_LITTLE: Final = 64 << 10  # bytes
_UPDATES: Final = b"updates"  # in the metadata of the schema
_PLACES: Final = ("file_path", "pos")
_SCHEMA: Final = pa.schema(
    [
        pa.field("file_path", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("pos", pa.int64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
    ]
)

# Small objects that this process has written. Objects never change, and the next commit needs them.
_remembered: Final = LRUCache[str, bytes](_REMEMBERED, getsizeof=len)
_lock: Final = Lock()


@dataclass(frozen=True)
class LocatedRows:
    """Rows with their files and their positions, and how rows are found by their keys."""

    rows: pa.Table  # file_path (a dictionary of strings), pos
    updates: Updates
    read_texts: Callable[[], pa.ChunkedArray]  # the keys of the rows, JSON arrays: only a few commits need them

    def keys(self, column_types: Mapping[int, PrimitiveType]) -> pa.Table:
        """Return the different keys as a keys table, for key columns of these types. Raises KeyError if a key column
        has no type."""
        types = [column_types[part.column_id] for part in self.updates.parts]
        return keys_of_texts(self.read_texts().unique(), self.updates.parts, types)


def describe_rows(paths: Sequence[str], keys: pa.Table, found: Sequence[RowsOfKeys]) -> Iterator[pa.Table]:
    """Yield all found rows, those of a key with several among them: one version of a document is to stay. `paths` are
    those of all files that were searched."""
    # A table has many files, of which few may have rows: the object names only these.
    with_rows = np.unique(np.concatenate([rows.files for rows in found])).tolist()
    indexes = {path: index for index, path in enumerate(dict.fromkeys(paths[place] for place in with_rows))}
    path_of_file = np.zeros(len(paths), np.int32)
    path_of_file[with_rows] = [indexes[paths[place]] for place in with_rows]
    names, texts = pa.array([*indexes], pa.string()), keys.select([KEY])
    for rows in (part for each in found for part in each.slices()):
        indices = pa.array(path_of_file[rows.files], pa.int32())
        yield pa.table(
            {
                "file_path": pa.DictionaryArray.from_arrays(indices, names),
                "pos": pa.array(rows.positions, pa.int64()),
                "key": take_keys(texts, rows.keys)[KEY],
            }
        )


def write_located(
    io: FileIO,
    location: str,
    parts: Iterable[pa.Table],
    updates: Updates,
    write_file: WriteFile = write_small_file,
) -> None:
    """Write located rows, some after the others: `file_path`, `pos` and `key`. They are durable when this returns,
    unless `write_file` writes small files later."""

    def remember(io: FileIO, location: str, content: bytes) -> None:
        if len(content) <= _LITTLE:
            with _lock:
                _remembered[location] = content
        write_file(io, location, content)

    schema = _SCHEMA.with_metadata({_UPDATES: msgspec.json.encode(updates)})
    with translate_errors(location), open_new_file(io, location, remember) as stream:
        writer = pq.ParquetWriter(
            stream,
            schema,
            compression="zstd",
            use_dictionary=["file_path"],
            column_encoding={"pos": "DELTA_BINARY_PACKED"},
        )
        with writer:
            for rows in parts:
                writer.write_table(rows.select(schema.names).cast(schema))


def read_located(io: FileIO, location: str) -> LocatedRows:
    """Return located rows. What this process has written lately is not read again, if it is small. Raises
    UnfitCommitError if the object was changed."""
    with _lock:
        remembered = _remembered.get(location)
    content = _read_object(io, location) if remembered is None else remembered
    rows = _read(location, content, *_PLACES)
    try:
        updates = msgspec.json.decode((rows.schema.metadata or {}).get(_UPDATES, b""), type=Updates)
    except msgspec.DecodeError as error:
        raise _explain_damage(location, error) from error
    return LocatedRows(rows, updates, lambda: _read(location, content, "key")["key"])


def _read_object(io: FileIO, location: str) -> bytes:
    with translate_errors(location), io.new_input(location).open() as stream:
        return stream.read()


def _read(location: str, content: bytes, *names: str) -> pa.Table:
    """Return some columns of an object."""
    schema = pa.schema([_SCHEMA.field(name) for name in names])
    try:
        rows = pq.read_table(pa.BufferReader(content), columns=[*names], read_dictionary=["file_path"])
        return rows.select(names).cast(schema.with_metadata(rows.schema.metadata))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _explain_damage(location, error) from error


def _explain_damage(location: str, error: Exception) -> UnfitCommitError:
    return UnfitCommitError(
        f"{location}: this object of located rows was changed or is damaged ({error}). A staged commit has to "
        f"delete these rows, and stays in the task's state: restore the object, or {BACKFILL}."
    )
