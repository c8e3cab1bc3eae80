"""Loads without Spark and without Parquet: the shipped loads, views and row deletes, in files that hold rows' names."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from cachetools import LRUCache
from pyiceberg.io import FileIO
from pyiceberg.types import PrimitiveType

from connector.encoding.lines.keys_tables import keys_of_texts
from connector.encoding.live_rows.deleted_rows import find_deleted_rows, read_deleted_rows
from connector.encoding.search.last_changes import PENDING
from connector.encoding.search.row_search import FoundRows, SearchedFile
from connector.encoding.search.rows_of_keys import RowsOfKeys
from connector.encoding.search.searched_keys import SearchedKeys
from connector.host.refresh import Lease, Refreshed
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits import delete_files, delete_merging, row_deletes
from connector.iceberg.session_views import SessionViews
from connector.model.binding import Updates
from connector.model.properties import Properties
from connector.model.state import DataFile
from connector.session import loads, replaced_rows
from connector.session.transaction_jobs import TransactionJobs
from connector.spark.blocks import stored_keys, transaction_files
from connector.spark.jobs import search_job
from connector.storage.storage_errors import translate_errors
from simulation.actors import Actor
from simulation.updates import key_of
from support import private_connector

ACCESS: Final = Refreshed[Properties]("nothing", lambda: Lease(Properties()))


def search(io: FileIO, file: SearchedFile, keys: SearchedKeys, *, with_documents: bool) -> Iterator[FoundRows]:
    """Stands for the search in Parquet."""
    with translate_errors(file.path), io.new_input(file.path).open() as stream:
        names = stream.read().decode().split()
    rows, places = keys.find([pa.array([key_of(name) for name in names], pa.int64())])
    if not len(rows):
        return
    lives = ~np.isin(rows, find_deleted_rows(io, file.path, file.position_deletes, file.pending_deletes))
    positions, places = rows[lives], places[lives]
    documents = pa.array([f'"{names[position]}"' for position in positions], pa.string()) if with_documents else None
    yield FoundRows(places, positions, documents)


def read_staged_keys(
    io: FileIO, files: Sequence[DataFile], updates: Updates, column_types: Mapping[int, PrimitiveType]
) -> pa.Table:
    """Stands for the keys in Parquet."""
    names = [name for file in files for name in io.new_input(file.path).open().read().decode().split()]
    types = [column_types[part.column_id] for part in updates.parts]
    return keys_of_texts(pa.array([f"[{key_of(name)}]" for name in names], pa.string()), updates.parts, types)


def find_last_changes(_: FileIO, files: Sequence[SearchedFile], rows: RowsOfKeys) -> npt.NDArray[np.int64]:
    """Stands for the numbers that compacted files have for their rows: all have that of the file."""
    numbers = [file.lineage.sequence_number if file.lineage else PENDING for file in files]
    return np.array(numbers, np.int64)[rows.files]


class SearchWithoutSpark:
    """Stands for Spark: each call runs here and now, as on a cluster whose tasks reach the object store only."""

    is_local: Final = False
    cores: Final = 1

    @staticmethod
    def map_shares(call: Callable[[Iterable[Any]], Iterable[Any]], things: Sequence[Any]) -> "Future[list[Any]]":
        done: Future[list[Any]] = Future()
        done.set_result([*call(things)])
        return done


class _NoDirectory:
    """Stands for a directory on the local disk, in which nothing is kept."""

    def __truediv__(self, _: str) -> "_NoDirectory":
        return self

    def mkdir(self) -> None:
        pass


def loading_jobs(tables: Sequence[BoundTable], views: SessionViews) -> TransactionJobs:
    """The jobs of a session, of which only those of Loads can be started."""
    directories = SimpleNamespace(files=_NoDirectory())
    limits = SimpleNamespace(spool=1, disk=2)
    session_spark: Any = SimpleNamespace(spark=SearchWithoutSpark(), directories=directories, limits=limits)
    no_claims: Any = None
    return TransactionJobs(session_spark, no_claims, tables, [ACCESS] * len(tables), lambda: views)


def search_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(search_job, "begin_search", partial(search, with_documents=True))
    for searching in (row_deletes, replaced_rows):
        patch.setattr(searching, "search", search)
    patch.setattr(row_deletes, "read_staged_keys", read_staged_keys)
    for opening in (search_job, stored_keys, transaction_files):
        patch.setattr(opening, "open_file_io", lambda _: Actor.present and Actor.present.store)
    patch.setattr(loads, "find_last_changes", find_last_changes)
    patch.setattr(loads, "shutil", SimpleNamespace(rmtree=lambda _directory, **_: None))
    # Another run of the same schedule has the same names, and must read the same objects.
    patch.setattr(*private_connector.READ_DELETED_POSITIONS, read_deleted_rows)
    patch.setattr(*private_connector.REMEMBERED_DATA_FILES, LRUCache[str, Collection[str]](0))
    patch.setattr(delete_files, "remember_deleted_rows", lambda *_: None)
    patch.setattr(*private_connector.MOST_BYTES_REMEMBERED, -1)
    # A schedule makes few of them.
    patch.setattr(delete_merging, "MAX_PARTITION_SCOPED", 2)
    patch.setattr(delete_files, "FILE_SCOPED_UP_TO", 1)
    for module in (delete_files, delete_merging):
        patch.setattr(module, "MERGED_FILES", 2)
    patch.setattr(delete_files, "MOST_VECTOR_FILES", 1)
