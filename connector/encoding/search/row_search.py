"""Finds the rows of keys in data files: by the key columns, and by the documents where columns cannot tell."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.schema import make_compatible_name

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.deletion_vectors import FileId
from connector.encoding.live_rows.lineage_columns import NO_ROW_ID, ROW_ID
from connector.encoding.live_rows.source_rows import RowLineage, cast_values
from connector.encoding.parquet.file_columns import FileColumns, open_data_file
from connector.encoding.search.document_keys import Key, MalformedDocumentError, document_key, find_malformed
from connector.encoding.search.searched_keys import Bounds, SearchedKeys
from connector.encoding.values.arrays import NO_ROWS, Indices, Mask, Numbers, Positions, join_arrays
from connector.encoding.values.column_types import column_id
from connector.encoding.values.name_mapping import NO_MAPPING, NameMapping
from connector.host.errors import BACKFILL, LostColumnError, UserError
from connector.host.groups import divide
from connector.storage.storage_errors import translate_errors

_KEY_COLUMNS: Final = 32 << 20  # bytes of key columns that are opened at once
_ROWS: Final = 1 << 16  # whose key columns are decoded at once


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
    pending_deletes: Positions = field(default_factory=lambda: NO_ROWS, compare=False)
    lineage: RowLineage | None = None  # None: the file waits for its commit
    missing_values: tuple[tuple[int, Any], ...] = ()  # of columns that the file may lack, by field id; else null
    mapping: NameMapping = field(default=NO_MAPPING, hash=False)  # of the table: the same for all files, and large
    keeps_ids: bool = False  # whether the next versions of its rows get their ids, so that a search returns these


@dataclass(frozen=True)
class FoundRows:
    """Rows of keys in one data file. A row occurs for each key that it has, and a key for each row that has it."""

    keys: Indices  # in the keys table
    positions: Positions  # within the file, in order
    documents: pa.StringArray | None
    row_ids: Numbers | None = None  # None: the rows have none, or do not keep them


def search(io: FileIO, file: SearchedFile, keys: SearchedKeys, *, with_documents: bool) -> Iterator[FoundRows]:
    """Yield the rows of these keys that are not deleted, in the file's order.

    The memory that this takes does not depend on the file's size, but on the size of its row groups.
    LostColumnError or UserError if the file has another column with the name of a key column.
    """
    return _read(_find(io, file, keys), with_documents=with_documents)


def begin_search(io: FileIO, file: SearchedFile, keys: SearchedKeys) -> Iterator[FoundRows]:
    """Find rows like `search`, and return what yields them with their documents.

    A small file has been read then. So the rest does not wait for the store. It takes the memory: documents may be a
    hundred times as large as in the file.
    """
    found = _find(io, file, keys)
    return _read(chain([*islice(found, 1)], found), with_documents=True)


def _find(io: FileIO, file: SearchedFile, keys: SearchedKeys) -> Iterator[tuple["_FileSearch", "_Candidates"]]:
    """Yield the candidates of some row groups after the other."""
    with open_data_file(io, file.path, file.size) as reader:
        columns = FileColumns(reader, file.mapping)
        _check_key_columns(columns, keys, file.path)
        # Another engine may have named more places to split the file than it has row groups.
        in_range = range(columns.row_groups)[file.first_row_group :][: file.row_groups]
        groups = [group for group in in_range if _may_have_keys(columns, group, keys)]
        opened = _FileSearch(file, columns, keys)
        for packed in divide(groups, _KEY_COLUMNS, partial(columns.size_of, keys.column_ids)):
            found = opened.find(packed)
            if len(found.positions):
                found = found.without(find_deleted_rows(io, file.path, file.position_deletes, file.pending_deletes))
            if len(found.positions):
                yield opened, found


def _read(found: Iterable[tuple["_FileSearch", "_Candidates"]], *, with_documents: bool) -> Iterator[FoundRows]:
    """Yield the rows of the keys among candidates."""
    for opened, candidates in found:
        if with_documents or opened.keys.need_documents(candidates.keys).any():
            with translate_errors(opened.file.path):
                for read in opened.read_documents(candidates, with_documents=with_documents):
                    yield opened.add_row_ids(read) if opened.file.keeps_ids and with_documents else read
        else:
            yield FoundRows(candidates.keys, candidates.positions, None)


def _check_key_columns(columns: FileColumns, keys: SearchedKeys, path: str) -> None:
    """Raise LostColumnError if the file has values of a key in a column that the table has no more, UserError if it may
    have them in the key's column, but the table's name mapping says otherwise."""
    present = {name: number for number, name in columns.names.items()}
    for number, name in zip(keys.column_ids, keys.column_names, strict=True):
        found = None if number in columns.names else present.get(make_compatible_name(name))
        if found is not None and not columns.has_own_ids:
            raise UserError(
                f"{path}: the table's name mapping (schema.name-mapping.default) gives the name {name!r} to the column "
                f"with id {found}, and the column of this name, which is part of the key, has id {number}. So rows "
                "cannot be found by their keys. If the file has the key in this column, give the name to id "
                f"{number} in the mapping."
            )
        if found is not None:
            raise LostColumnError(
                f"{path}: another engine has dropped column {name!r}, which is part of the key, and has added a new "
                "one of this name. Older rows have no values in it and cannot be found by their keys any more. "
                f"{BACKFILL.capitalize()}."
            )


def _may_have_keys(columns: FileColumns, group: int, keys: SearchedKeys) -> bool:
    """Return whether a row group may have one of the keys, by its statistics of the key columns."""
    types = zip(keys.column_ids, keys.types, strict=True)
    return keys.may_be_within(
        [Bounds.of_statistics(columns.statistics_of(number, group), arrow_type) for number, arrow_type in types]
    )


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

    def slice(self, chosen: slice | Mask) -> "_Candidates":
        return _Candidates(self.positions[chosen], self.keys[chosen])


@dataclass(frozen=True)
class _FileSearch:
    """A data file that is being searched."""

    file: SearchedFile
    columns: FileColumns
    keys: SearchedKeys

    def find(self, groups: Sequence[int]) -> _Candidates:
        """Return the rows of these row groups that have the values of some key."""
        positions = self.columns.positions_in(groups)
        found: list[_Candidates] = []
        for batch in self.columns.read_batches(self.keys.column_ids, groups, _ROWS):
            rows, keys = self.keys.find(self._key_columns(batch))
            found.append(_Candidates(positions[rows], keys))
            positions = positions[batch.num_rows :]
        return _Candidates(join_arrays([each.positions for each in found]), join_arrays([each.keys for each in found]))

    def read_documents(self, found: _Candidates, *, with_documents: bool) -> Iterator[FoundRows]:
        """Yield the candidates whose documents have the keys, and these documents if they are wanted."""
        document_id = self.keys.updates.document_id
        groups = self.columns.find_row_groups(found.positions)
        for group in np.unique(groups).tolist():
            candidates = found.slice(groups == group)
            positions, rows = np.unique(candidates.positions, return_inverse=True)
            if document_id not in self.columns.names:
                raise self._lacks_document(positions[0])
            for begin, end, documents in self.columns.read_texts(document_id, group, positions):
                for index in find_malformed(documents):
                    raise self._lacks_document(positions[begin + index])
                part = slice(*np.searchsorted(rows, (begin, end)))
                if len(positions) < len(rows):  # some rows have several keys
                    documents = documents.take(pa.array(rows[part] - begin))
                read = self._choose(candidates.slice(part), documents)
                if len(read.keys):
                    yield read if with_documents else replace(read, documents=None)

    def add_row_ids(self, found: FoundRows) -> FoundRows:
        """Return rows of one row group with their ids.

        A file without lineage waits for its commit: new rows have no ids yet, but updated rows have theirs.
        """
        first = self.file.lineage.first_row_id if self.file.lineage else None
        inherited = np.full(len(found.positions), NO_ROW_ID) if first is None else found.positions + first
        if ROW_ID not in self.columns.names:
            return replace(found, row_ids=None if first is None else inherited)
        [group] = self.columns.find_row_groups(found.positions[:1]).tolist()
        kept = self.columns.read_values(ROW_ID, group, found.positions)
        return replace(found, row_ids=pc.coalesce(kept, pa.array(inherited)).to_numpy())

    def _key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        arrays = {column_id(field): batch.column(index) for index, field in enumerate(batch.schema)}
        missing = dict(self.file.missing_values)
        return [
            cast_values(arrays[number], pa.field(self.columns.names[number], arrow_type), self.file.path)
            if number in arrays
            else pa.repeat(pa.scalar(missing.get(number), arrow_type), batch.num_rows)
            for number, arrow_type in zip(self.keys.column_ids, self.keys.types, strict=True)
        ]

    def _choose(self, found: _Candidates, documents: pa.StringArray) -> FoundRows:
        """Return the rows whose documents have the keys."""
        is_doubtful = self.keys.need_documents(found.keys)
        if not is_doubtful.any():
            return FoundRows(found.keys, found.positions, documents)
        texts = documents.filter(pa.array(is_doubtful)).to_pylist()
        pairs = zip(texts, found.positions[is_doubtful].tolist(), strict=True)
        is_equal = ~is_doubtful
        is_equal[is_doubtful] = self.keys.match_documents(
            found.keys[is_doubtful], [self._document_key(*pair) for pair in pairs]
        )
        return FoundRows(found.keys[is_equal], found.positions[is_equal], documents.filter(pa.array(is_equal)))

    def _document_key(self, document: str, position: int) -> Key:
        try:
            return document_key(document, self.keys.updates.parts)
        except MalformedDocumentError as error:
            raise self._lacks_document(position) from error

    def _lacks_document(self, position: int) -> UserError:
        return UserError(
            f"{self.file.path}: row {position} has no JSON object as its document, which the connector always writes. "
            f"Another program has changed the table. Restore the column of documents, or {BACKFILL}."
        )
