"""Deleted rows: the positions of a data file's rows that delete files and pending commits delete."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock
from typing import Final

from cachetools import LRUCache
from pyiceberg.io import FileIO

from connector.encoding.live_rows.deletion_vectors import DeletionVector, FileId, read_deletion_vector
from connector.encoding.live_rows.position_deletes import group_by_file, join_positions, read_position_deletes
from connector.encoding.values.arrays import NO_ROWS, Positions

_READ: Final = 32 << 20  # bytes in each process
_WRITTEN: Final = 4 << 20  # bytes: what the newest commits have written, which the next ones may replace
_NAMED: Final = 8 << 20  # bytes: the data files of which the delete files delete rows
_LITTLE: Final = 64 << 10  # bytes
_ENTRY_SIZE: Final = 750  # bytes of memory that an entry of a cache takes, about: its key, its mapping
_PATH_SIZE: Final = 400  # bytes of memory that the path of a data file takes with its place, about


def _size_of(rows: Mapping[str, Positions]) -> int:
    return _ENTRY_SIZE + sum(_PATH_SIZE + positions.nbytes for positions in rows.values())


class _Reading:
    """The reading of a delete file by one of the threads that need it. All that wait have its rows, or its error. If a
    signal ends the thread, the next one reads."""

    def __init__(self) -> None:
        self._turn = Lock()
        self._outcome = Future[Mapping[str, Positions]]()

    def finish(self, io: FileIO, delete_file: FileId) -> Mapping[str, Positions]:
        with self._turn:
            if not self._outcome.done():
                try:
                    self._outcome.set_result(read_deleted_rows(io, delete_file))
                except Exception as error:  # noqa: BLE001 - `result` raises it
                    self._outcome.set_exception(error)
        return self._outcome.result()


_written: Final = LRUCache[FileId, Mapping[str, Positions]](_WRITTEN, getsizeof=_size_of)
_lock: Final = Lock()
_read: Final = LRUCache[FileId, Mapping[str, Positions]](_READ, getsizeof=_size_of)
_named: Final = LRUCache[str, Collection[str]](_NAMED, getsizeof=lambda named: _PATH_SIZE * (1 + len(named)))
_being_read: Final[dict[FileId, _Reading]] = {}


def _deleted_by(io: FileIO, delete_file: FileId) -> Mapping[str, Positions]:
    """Return what a delete file deletes. Files never change, and the searches of many data files need the same ones. A
    file that several threads need is read by one of them. If this fails, all of them have failed."""
    with _lock:
        if delete_file in _read:
            return _read[delete_file]
        reading = _being_read.setdefault(delete_file, _Reading())
    try:
        rows = reading.finish(io, delete_file)
        with _lock, suppress(ValueError):  # it is too large to be kept
            _read[delete_file] = rows
        return rows
    finally:
        with _lock:
            if _being_read.get(delete_file) is reading:
                del _being_read[delete_file]


def find_deleted_rows(
    io: FileIO, path: str, delete_files: tuple[FileId, ...] = (), pending: Positions = NO_ROWS
) -> Positions:
    """Return the positions of a data file's deleted rows, in order and without duplicates.

    `pending` are the positions in this file that pending commits delete.
    """
    return join_positions([pending, *(_deleted_by(io, each).get(path, NO_ROWS) for each in delete_files)])


def list_data_files(io: FileIO, delete_file: str) -> Collection[str]:
    """Return the paths of the data files of which a position delete file deletes rows. They stay in memory longer than
    the positions, of which there may be many more."""
    with _lock:
        if delete_file in _named:
            return _named[delete_file]
    named = frozenset(_deleted_by(io, delete_file))
    with _lock, suppress(ValueError):
        _named[delete_file] = named
    return named


def read_deleted_rows(io: FileIO, delete_file: FileId) -> Mapping[str, Positions]:
    """Return the positions of the rows that a delete file deletes, by the paths of their data files.

    The result is not cached, because a commit replaces the file. If this process wrote the file lately, its rows are
    still in memory.
    """
    with _lock:
        written = _written.get(delete_file)
    if written is not None:
        return written
    if isinstance(delete_file, DeletionVector):
        return {delete_file.data_path: read_deletion_vector(io, delete_file)}
    return dict(group_by_file(read_position_deletes(io, delete_file)))


def remember_deleted_rows(delete_file: FileId, rows: Mapping[str, Positions]) -> None:
    """Keep in memory what a new delete file deletes, if it is little: the next commit may replace the file."""
    if _size_of(rows) <= _LITTLE:
        with _lock:
            _written[delete_file] = rows
