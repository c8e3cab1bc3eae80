"""The Spark job of Loads: tasks search files for keys, and write the documents as finished lines of the answer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from connector.encoding.lines.keys_tables import read_table, write_table
from connector.encoding.live_rows.lineage_columns import NO_ROW_ID
from connector.encoding.search.row_search import FoundRows, SearchedFile, begin_search
from connector.encoding.search.rows_of_keys import RowsOfKeys
from connector.encoding.search.searched_keys import SearchedKeys
from connector.host.errors import RetryableError
from connector.host.groups import divide
from connector.host.tempdirs import advise
from connector.host.threads import map_in_threads
from connector.model.binding import Binding
from connector.model.properties import Properties
from connector.spark.blocks.stored_keys import open_keys
from connector.spark.blocks.transaction_files import TemporaryFile
from connector.storage.file_io import open_file_io

if TYPE_CHECKING:
    from connector.spark.jvm.spark_session import Spark

GROUP_SIZE: Final = 64 << 20  # bytes of the files of a group
# Credentials may expire before the last file of a large table is searched. Each job gets fresh ones.
LARGEST_JOB: Final = 16 << 30  # bytes of files
SEARCHED_AT_ONCE: Final = 2 << 20  # bytes of small files, which are in memory
FILES_AT_ONCE: Final = 16  # each waits for the store most of the time
COPIED_AT_ONCE: Final = 1 << 20  # bytes
MOST_RETURNED: Final = 1 << 12  # rows of a group that go through the JVM
RESULTS: Final = "the results of a search"

_END: Final = pa.scalar(b"}}\n", pa.large_binary())
_NOTHING: Final = pa.scalar(b"", pa.large_binary())
_NEWLINE: Final = b"\n"


@dataclass(frozen=True)
class SearchGroup:
    """Files of one table whose documents go to one file. They have their places in the view of the table."""

    binding: Binding
    keys_file: TemporaryFile  # the keys of the binding's Loads
    files: tuple[tuple[int, SearchedFile], ...]
    documents: TemporaryFile  # where the lines are written
    rows: TemporaryFile  # where the found rows are written, if they are many

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for _, file in self.files)


# What a task returns for one group: the rows of keys in its files, in the order of their lines; or the file that has
# these rows, if they are many, because the JVM would keep the memory for them.
FoundInGroup: TypeAlias = RowsOfKeys | TemporaryFile


def search_in_jobs(
    spark: "Spark", groups: Sequence[SearchGroup], find_access: Callable[[int], Properties]
) -> list[FoundInGroup]:
    """Search the groups by one Spark job, or by several if they are large. `find_access` returns the storage settings
    of a table that are valid now, by its binding's index."""
    found: list[FoundInGroup] = []
    for job in divide(groups, LARGEST_JOB, attrgetter("size")):
        access = {index: find_access(index) for index in {group.binding.index for group in job}}
        # Only the function goes to the tasks through a connection. Spark writes the groups to a file on its way.
        found += spark.map_shares(partial(search_groups, access), job).result()
    return found


def search_groups(access: Mapping[int, Properties], groups: Iterable[SearchGroup]) -> Iterator[FoundInGroup]:
    """Search the groups. `access` has the storage settings of each table, by its binding's index."""
    files = [_File(group, index, file) for group in groups for index, file in group.files]
    for group, found in groupby(_search_files(access, files), lambda each: each[0].group):
        yield _write_group(group, found, open_file_io(access[group.binding.index]))


@dataclass(frozen=True)
class _File:
    """A file of a group."""

    group: SearchGroup
    index: int  # in the view
    searched: SearchedFile

    @property
    def size(self) -> int:
        return self.searched.size


def _search_files(
    access: Mapping[int, Properties], files: Sequence[_File]
) -> Iterator[tuple[_File, Iterable[FoundRows]]]:
    """Yield the found rows of each file, in order. Small files are searched some at the same time, also if they are of
    several tables, and their documents are read one after the other. The index of a table's keys is dropped with its
    last file."""
    keys: dict[TemporaryFile, SearchedKeys] = {}
    for packed in divide(files, SEARCHED_AT_ONCE, attrgetter("size")):
        groups = {file.group.keys_file: file.group for file in packed}
        keys = {keys_file: keys[keys_file] for keys_file in groups if keys_file in keys}
        new = [keys_file for keys_file in groups if keys_file not in keys]
        indexed = map_in_threads(partial(_index_keys, access), [groups[keys_file] for keys_file in new], "keys")
        keys.update(zip(new, indexed, strict=True))
        del indexed
        begun = map_in_threads(partial(_begin_search, access, keys), packed, "search", FILES_AT_ONCE)
        yield from zip(packed, begun, strict=True)


def _index_keys(access: Mapping[int, Properties], group: SearchGroup) -> SearchedKeys:
    assert group.binding.updates, "only bindings that update rows are searched"
    names = [column.name for column in group.binding.keys]
    return SearchedKeys(open_keys(group.keys_file, access[group.binding.index]), group.binding.updates, names)


def _begin_search(
    access: Mapping[int, Properties], keys: Mapping[TemporaryFile, SearchedKeys], file: _File
) -> Iterator[FoundRows]:
    io = open_file_io(access[file.group.binding.index])
    return begin_search(io, file.searched, keys[file.group.keys_file])


def _write_group(group: SearchGroup, found: Iterable[tuple[_File, Iterable[FoundRows]]], io: FileIO) -> FoundInGroup:
    """Write the found documents of a group, and return the rows."""
    described: list[RowsOfKeys] = []
    try:
        with _Lines(group.documents, io, group.binding.index) as lines:
            for file, file_rows in found:
                for rows in file_rows:
                    lines.write(rows.documents)
                    described.append(_describe(file.index, file.searched, rows))
        return _return_rows(RowsOfKeys.join(described), group, io)
    except OSError as error:
        raise RetryableError(
            f"the documents that were found for Loads could not be written to the disk ({error.strerror}). Nothing "
            f"of this transaction has become visible. {advise(error)}"
        ) from error


def _return_rows(rows: RowsOfKeys, group: SearchGroup, io: FileIO) -> FoundInGroup:
    if len(rows) <= MOST_RETURNED:
        return rows
    table = rows.to_table()
    with group.rows.create(io) as stream:
        write_table(stream, table.schema, [table])
    return group.rows


def fetch_rows(found: FoundInGroup, io: FileIO) -> RowsOfKeys:
    """Return the rows that a task has found. Those that are written are read and removed."""
    if isinstance(found, RowsOfKeys):
        return found
    with found.open(io) as stream:
        rows = RowsOfKeys.of_table(read_table(stream.read()))
    found.remove(io, RESULTS)
    return rows


def divide_files(files: Sequence[SearchedFile]) -> Iterator[tuple[tuple[int, SearchedFile], ...]]:
    """Split the files into groups of similar size, each for one call."""
    return map(tuple, divide(enumerate(files), GROUP_SIZE, lambda each: each[1].size))


def _describe(index: int, file: SearchedFile, rows: FoundRows) -> RowsOfKeys:
    ids = rows.row_ids
    if ids is None and file.keeps_ids:
        ids = np.full(len(rows.keys), NO_ROW_ID)
    return RowsOfKeys(np.full(len(rows.keys), index), rows.keys, rows.positions, ids)


class _Lines:
    """Writes lines of `loaded`. The file is made with the first of them."""

    def __init__(self, file: TemporaryFile, io: FileIO, binding: int) -> None:
        self._file, self._io = file, io
        self._begin = pa.scalar(b'{"loaded":{"binding":%d,"doc":' % binding, pa.large_binary())
        self._stream: Any = None
        self._opened = ExitStack()

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def write(self, documents: pa.Array) -> None:
        """Write one line for each document, a JSON object."""
        if self._stream is None:
            self._stream = self._opened.enter_context(self._file.create(self._io))
        if _NEWLINE in documents.buffers()[-1].to_pybytes():
            # In JSON it is only white space. Another program may have written it.
            documents = pc.replace_substring(documents, "\n", " ")
        texts = documents.cast(pa.large_binary())
        lines = pc.binary_join_element_wise(self._begin, texts, _END, _NOTHING, null_handling="emit_null")
        assert not lines.null_count, "a search returns documents that are JSON objects"
        _, offsets, data = lines.buffers()
        bounds = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
        with self._file.translate_errors():
            self._stream.write(memoryview(data)[int(bounds[0]) : int(bounds[-1])])


def read_documents(file: TemporaryFile, io: FileIO) -> Iterator[bytes]:
    """Yield the text of all lines, a part after the other, and remove it."""
    with file.open(io) as stream:
        while part := stream.read(COPIED_AT_ONCE):
            yield part
    file.remove(io, RESULTS)


def read_lines(file: TemporaryFile, io: FileIO) -> Iterator[bytes]:
    """Yield line by line, with their newlines, and remove the text."""
    rest = b""
    for part in read_documents(file, io):
        *lines, rest = (rest + part).split(_NEWLINE)
        yield from (line + _NEWLINE for line in lines)
