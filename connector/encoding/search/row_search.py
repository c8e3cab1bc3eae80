"""Finds the rows of keys in data files: by the key columns, and by the documents where columns cannot tell."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache, cached
from pyiceberg.io import FileIO

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.deletion_vectors import FileId
from connector.encoding.live_rows.lineage_columns import NO_ROW_ID, ROW_ID
from connector.encoding.live_rows.position_deletes import Positions
from connector.encoding.live_rows.source_rows import RowLineage, cast_values
from connector.encoding.parquet import data_pages
from connector.encoding.parquet.damaged_files import explain_damage, read_batches
from connector.encoding.search.document_keys import Key, MalformedDocumentError, document_key, find_malformed
from connector.encoding.search.searched_keys import Bounds, Indices, Keys
from connector.encoding.values.column_types import column_id, find_columns
from connector.host.errors import UserError
from connector.storage.storage_errors import translate_errors

_KEY_COLUMNS: Final = 32 << 20  # bytes of key columns that are opened at once
_ROWS: Final = 1 << 16  # whose key columns are decoded at once
_DOCUMENTS: Final = 1 << 20  # bytes of documents that are decoded at once: more would leave the processor's cache
_MOST_DOCUMENTS: Final = 1 << 16  # rows
_FOOTERS: Final = 32 << 20  # bytes of footers that a process remembers


@dataclass(frozen=True)
class SearchedFile:
    """A data file, or a range of its row groups, and which of its rows are deleted."""

    path: str  # exactly as the table's manifest, or the connector state, has it
    size: int  # bytes
    first_row_group: int = 0
    row_groups: int | None = None  # None: all that follow
    position_deletes: tuple[FileId, ...] = ()  # the table's delete files that may apply
    # Positions that pending commits delete. A search does not read their located rows: a commit may land in the
    # meantime, and then these objects are deleted.
    pending_deletes: Positions = field(default_factory=lambda: np.empty(0, np.int64), compare=False)
    lineage: RowLineage | None = None  # None: the file waits for its commit
    missing_values: tuple[tuple[int, Any], ...] = ()  # of columns that the file may lack, by field id; else null
    keeps_ids: bool = False  # whether the next versions of its rows get their ids, so that a search returns these


@dataclass(frozen=True)
class FoundRows:
    """Rows of keys in one data file. A row occurs for each key that it has, and a key for each row that has it."""

    keys: Indices  # in the keys table
    positions: Positions  # within the file, in order
    documents: pa.StringArray | None
    row_ids: npt.NDArray[np.int64] | None = None  # None: the rows have none, or do not keep them


def search(io: FileIO, file: SearchedFile, keys: Keys, *, with_documents: bool) -> Iterator[FoundRows]:
    """Yield the rows of these keys that are not deleted, in the file's order.

    The memory that this takes does not depend on the file's size, but on the size of its row groups.
    """
    footer = read_footer(io, file.path)
    last = footer.num_row_groups if file.row_groups is None else file.first_row_group + file.row_groups
    source = _Source(file, footer, keys)
    groups = [group for group in range(file.first_row_group, last) if keys.may_be_within(source.bounds(group))]
    if not groups:
        return
    with translate_errors(file.path), io.new_input(file.path).open() as stream:
        for some in source.divide(groups):
            found = source.find(stream, some)
            if len(found.positions):
                found = found.without(find_deleted_rows(io, file.path, file.position_deletes, file.pending_deletes))
            if with_documents or not keys.updates.is_exact:
                for read in source.read_documents(stream, found, with_documents=with_documents):
                    yield source.add_row_ids(stream, read, file.lineage) if file.keeps_ids and with_documents else read
            elif len(found.positions):
                yield FoundRows(found.keys, found.positions, None)


@cached(
    LRUCache(_FOOTERS, getsizeof=lambda footer: footer.serialized_size),
    key=lambda _, path: path,
    lock=Lock(),
)
def read_footer(io: FileIO, path: str) -> pq.FileMetaData:
    """Return the footer of a Parquet file. A process remembers some of them.

    Raises UnreadableFileError if the file is damaged.
    """
    with translate_errors(path), io.new_input(path).open() as stream, explain_damage(path):
        return pq.read_metadata(stream)


@dataclass(frozen=True)
class _Candidates:
    """Rows that have the values of some key in the key columns. A row occurs for each such key."""

    positions: Positions  # in order
    keys: Indices

    def without(self, deleted: Positions) -> "_Candidates":
        if not len(deleted):
            return self
        nearest = np.minimum(np.searchsorted(deleted, self.positions), len(deleted) - 1)
        lives = deleted[nearest] != self.positions
        return self.slice(lives)

    def slice(self, some: slice | npt.NDArray[np.bool_]) -> "_Candidates":
        return _Candidates(self.positions[some], self.keys[some])


class _Source:
    """A data file, and the places of the columns that a search reads."""

    def __init__(self, file: SearchedFile, footer: pq.FileMetaData, keys: Keys) -> None:
        self._path, self._footer, self._keys = file.path, footer, keys
        schema = footer.schema.to_arrow_schema()
        places = find_columns(schema, file.path)
        self._names = {number: str(schema.field(place).name) for number, place in places.items()}
        self._missing_values = dict(file.missing_values)
        self._key_ids = [part.column_id for part in keys.updates.parts]
        rows = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        self._begins = np.cumsum([0, *rows])  # of the row groups

    def bounds(self, group: int) -> list[Bounds]:
        """Return what is known of the key columns in a row group."""
        return [self._bounds(group, *each) for each in zip(self._key_ids, self._keys.types, strict=True)]

    def divide(self, groups: Sequence[int]) -> Iterator[list[int]]:
        """Divide row groups into parts whose key columns are read at once."""
        some: list[int] = []
        size = 0
        for group in groups:
            own = sum(chunk.total_uncompressed_size for chunk in self._chunks(group, self._key_ids))
            if some and size + own > _KEY_COLUMNS:
                yield some
                some, size = [], 0
            some.append(group)
            size += own
        if some:
            yield some

    def find(self, stream: Any, groups: Sequence[int]) -> _Candidates:
        """Return the rows of these row groups that have the values of some key."""
        positions = np.concatenate([np.arange(*self._begins[group : group + 2]) for group in groups])
        found: list[_Candidates] = []
        names = self._columns(self._key_ids)
        batches = self._open(stream).iter_batches(_ROWS, groups, columns=names, use_threads=False)
        for batch in read_batches(self._path, batches):
            rows, keys = self._keys.find(self._key_columns(batch))
            found.append(_Candidates(positions[rows], keys))
            positions = positions[batch.num_rows :]
        return _Candidates(_join([each.positions for each in found]), _join([each.keys for each in found]))

    def _key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        arrays = {column_id(field): batch.column(index) for index, field in enumerate(batch.schema)}
        return [
            cast_values(arrays[number], pa.field(self._names[number], arrow_type), self._path)
            if number in arrays
            else self._repeat(number, batch.num_rows, arrow_type)
            for number, arrow_type in zip(self._key_ids, self._keys.types, strict=True)
        ]

    def _repeat(self, number: int, rows: int, arrow_type: pa.DataType) -> pa.Array:
        """Return the values of a column that the file lacks."""
        return pa.repeat(pa.scalar(self._missing_values.get(number), arrow_type), rows)

    def read_documents(self, stream: Any, found: _Candidates, *, with_documents: bool) -> Iterator[FoundRows]:
        """Yield the candidates whose documents have the keys, and these documents if they are wanted."""
        groups = np.searchsorted(self._begins, found.positions, side="right") - 1
        for group in np.unique(groups).tolist():
            own = groups == group
            of_group = _Candidates(found.positions[own], found.keys[own])
            positions, rows = np.unique(of_group.positions, return_inverse=True)
            for begin, end, documents in self._documents(stream, group, positions):
                self._check_documents(documents, positions[begin:end])
                some = slice(*np.searchsorted(rows, (begin, end)))
                read = self._choose(of_group.slice(some), documents.take(pa.array(rows[some] - begin)))
                if len(read.keys):
                    yield read if with_documents else replace(read, documents=None)

    def add_row_ids(self, stream: Any, found: FoundRows, lineage: RowLineage | None) -> FoundRows:
        """Return rows of one row group with their ids.

        A file without lineage waits for its commit: new rows have no ids yet, but updated rows have theirs.
        """
        first = lineage.first_row_id if lineage else None
        inherited = np.full(len(found.positions), NO_ROW_ID) if first is None else found.positions + first
        if ROW_ID not in self._names:
            return replace(found, row_ids=None if first is None else inherited)
        group = int(np.searchsorted(self._begins, found.positions[0], side="right")) - 1
        with explain_damage(self._path):
            table = self._open(stream).read_row_group(group, columns=self._columns([ROW_ID]), use_threads=False)
        own = column_of(table, ROW_ID).take(pa.array(found.positions - self._begins[group]))
        return replace(found, row_ids=pc.coalesce(own, pa.array(inherited)).to_numpy())

    def _check_documents(self, documents: pa.StringArray, positions: Positions) -> None:
        for index in find_malformed(documents):
            raise self._lacks_document(positions[index])

    def _choose(self, found: _Candidates, documents: pa.StringArray) -> FoundRows:
        """Return the rows whose documents have the keys."""
        if self._keys.updates.is_exact:
            return FoundRows(found.keys, found.positions, documents)
        pairs = zip(documents.to_pylist(), found.positions.tolist(), strict=True)
        are_equal = self._keys.match_documents(found.keys, [self._document_key(*pair) for pair in pairs])
        return FoundRows(found.keys[are_equal], found.positions[are_equal], documents.filter(pa.array(are_equal)))

    def _document_key(self, document: str, position: int) -> Key:
        try:
            return document_key(document, self._keys.updates.parts)
        except MalformedDocumentError as error:
            raise self._lacks_document(position) from error

    def _documents(self, stream: Any, group: int, positions: Positions) -> Iterator[tuple[int, int, pa.StringArray]]:
        """Yield the documents of these rows of a row group, some at a time: from the first to before the second.

        Documents that are decoded one after the other are gathered: each part costs the same, however few it has.
        """
        document_id = self._keys.updates.document_id
        if document_id not in self._names:
            raise self._lacks_document(positions[0])
        rows, indices = self._footer.row_group(group).num_rows, positions - self._begins[group]
        if (few := self._read_few(stream, group, document_id, indices)) is not None:
            yield 0, len(positions), few
            return
        size = sum(chunk.total_uncompressed_size for chunk in self._chunks(group, [document_id]))
        at_once = max(1, min(_MOST_DOCUMENTS, _DOCUMENTS * rows // max(size, 1)))
        # What is read stays in memory until the file is closed, so each row group has its own.
        batches = self._open(stream).iter_batches(
            at_once, [group], columns=self._columns([document_id]), use_threads=False
        )
        wanted: list[int] = indices.tolist()
        gathered: list[pa.Array] = []
        begin = end = decoded = 0
        for batch in read_batches(self._path, batches):
            own, end = end, bisect_left(wanted, decoded + batch.num_rows, end)
            if own < end:
                texts = column_of(batch, document_id).cast(pa.string())
                gathered.append(texts.take(pa.array(indices[own:end] - decoded)))
            if gathered and (end - begin >= at_once or end == len(wanted)):
                yield begin, end, pa.concat_arrays(gathered)
                gathered, begin = [], end
            if end == len(wanted):
                return
            decoded += batch.num_rows

    def _read_few(self, stream: Any, group: int, document_id: int, rows: Positions) -> pa.StringArray | None:
        """Return the documents of a few rows of a row group. None if there are many, or if Arrow has to read them."""
        indices = [
            index
            for index, chunk in enumerate(self._all_chunks(group))
            if chunk.path_in_schema == self._names[document_id]
        ]
        if len(indices) != 1:
            return None
        chunk = self._footer.row_group(group).column(indices[0])
        if not data_pages.are_few(rows, chunk):
            return None
        return data_pages.read_texts(stream, chunk, self._footer.schema.column(indices[0]), rows)

    def _open(self, stream: Any) -> pq.ParquetFile:
        return pq.ParquetFile(stream, metadata=self._footer, pre_buffer=True, coerce_int96_timestamp_unit="us")

    def _columns(self, ids: Sequence[int]) -> list[str]:
        return list(dict.fromkeys(self._names[number] for number in ids if number in self._names))

    def _chunks(self, group: int, ids: Sequence[int]) -> list[pq.ColumnChunkMetaData]:
        columns = self._columns(ids)
        return [chunk for chunk in self._all_chunks(group) if chunk.path_in_schema in columns]

    def _all_chunks(self, group: int) -> list[pq.ColumnChunkMetaData]:
        row_group = self._footer.row_group(group)
        return [row_group.column(index) for index in range(row_group.num_columns)]

    def _bounds(self, group: int, number: int, arrow_type: pa.DataType) -> Bounds:
        if number not in self._names:
            return Bounds(None, has_nulls=True)
        chunks = self._chunks(group, [number])
        # Names are only for people, and two columns may have one.
        statistics = chunks[0].statistics if len(chunks) == 1 else None
        return Bounds.of_statistics(statistics, arrow_type)

    def _lacks_document(self, position: int) -> UserError:
        return UserError(
            f"{self._path}: row {position} has no JSON object as its document, which the connector always writes. "
            "Another program has changed the table. Restore the column of documents, or backfill the binding, which "
            "replaces all rows."
        )


def _join(arrays: Sequence[Indices]) -> Indices:
    return np.concatenate([np.empty(0, np.int64), *arrays])


def column_of(rows: pa.RecordBatch | pa.Table, number: int) -> pa.Array | pa.ChunkedArray:
    """Return the column with this field id, which was read by its name. Several columns may have the name."""
    if rows.num_columns == 1:
        return rows.column(0)
    [index] = [index for index, field in enumerate(rows.schema) if column_id(field) == number]
    return rows.column(index)
