"""Finds the rows that staged commits delete, in the table as an attempt finds it.

A staged commit names these rows by file and position, and by key. Until it is committed, another writer may have moved
them to other files. Then their keys find them again, in the files that were added since. A commit that deletes at the
old positions would delete nothing, and leave two rows for a key.

A key that was not there may be there now: another writer has added a row, or has rolled the table back. So the keys of
the staged rows are searched, too, in files with rows that the Loads cannot have seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from posixpath import basename
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import PrimitiveType

from connector.encoding.live_rows.position_deletes import group_by_file, join_positions
from connector.encoding.search.located_rows import LocatedRows, read_located
from connector.encoding.search.row_search import SearchedFile, search
from connector.encoding.search.searched_keys import KEYS_AT_ONCE, SearchedKeys
from connector.encoding.search.staged_keys import ReadKeys, read_staged_keys
from connector.encoding.values.arrays import Positions, join_arrays
from connector.host.errors import BACKFILL, UnfitCommitError
from connector.host.groups import divide
from connector.iceberg.fences import fence
from connector.iceberg.fences.file_names import FileOrigin
from connector.iceberg.fences.passed_values import is_reset_since
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache, PositionDeletes
from connector.iceberg.metadata.partitions import MissingValues, Partition, PartitionReader
from connector.iceberg.metadata.table_properties import find_newest_column, read_name_mapping
from connector.model.binding import KeyPart, Updates
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_io import files_of

_NONE: Final = -1  # lower than every sequence number


@dataclass(frozen=True)
class DeletesOfCommit:
    """Rows that a commit deletes, and the live files of the table at that time."""

    positions: Mapping[str, Positions]  # by data file; in order, each once
    partitions: Mapping[str, Partition]  # of these data files
    live: Mapping[str, ListedFile]  # data files, by path
    deletes: PositionDeletes


@dataclass(frozen=True, eq=False)
class _KeySearch:
    """The search for keys of one commit, in files that may have rows of them now."""

    name: str  # tells its keys from those of other searches
    updates: Updates  # where the keys are now
    count: int  # of the keys, or of rows that have them
    read_keys: ReadKeys
    files: Sequence[SearchedFile]

    @property
    def id(self) -> tuple[str, Updates]:
        """The keys, and where they are now."""
        return self.name, self.updates


class RowDeletes:
    """The rows that one writer's pending commits delete. What one attempt has read is used by the next ones."""

    def __init__(self, manifests: ManifestCache) -> None:
        self._manifests = manifests
        self._located: dict[str, LocatedRows] = {}
        # By keys and their places; then by data file, as it was searched: a rollback may bring back rows that were
        # deleted in it.
        self._found: dict[tuple[str, Updates], dict[SearchedFile, Positions]] = {}

    def find(self, table: Table, staged: Sequence[StagedCommit], fitting: Sequence[StagedCommit]) -> DeletesOfCommit:
        """Return the rows to delete in the commit of `staged`, of which some had Loads.

        `fitting` are the same commits with the files that the table gets. UnfitCommitError if rows cannot be found any
        more.
        """
        files = _DataFiles(table, self._manifests)
        pending = fence.group_by_writer(staged)
        reset_writers = {first.writer for first, *_ in pending if is_reset_since(first, table.properties)}
        deleted: dict[str, list[Positions]] = {}
        key_searches: list[_KeySearch] = []
        for commit, fitted in zip(staged, fitting, strict=True):
            if commit.located:
                located = self._read(table.io, commit.located.location) if commit.located.location else None
                for path, positions in _find_at_old_positions(located, files):
                    deleted.setdefault(path, []).append(positions)
                # The Loads left out rows that a skipped commit was to delete.
                is_reset = commit.writer in reset_writers
                above = _NONE if is_reset else files.find_sequence_number(commit.located.snapshot_id)
                key_searches += _plan_searches(table, files, above, commit, fitted, located)
            # A commit deletes rows of earlier commits, never its own: its files only count for those that follow.
            files.add(fitted, is_rewritten=fitted is not commit)
        for path, positions in self._search(table, key_searches):
            deleted.setdefault(path, []).append(positions)
        merged = {path: join_positions(rows) for path, rows in deleted.items()}
        return DeletesOfCommit(
            {path: positions for path, positions in merged.items() if len(positions)},
            files.partitions,
            files.live,
            files.deletes,
        )

    def _read(self, io: FileIO, location: str) -> LocatedRows:
        if location not in self._located:
            self._located[location] = read_located(io, location)
        return self._located[location]

    def _search(self, table: Table, key_searches: Sequence[_KeySearch]) -> Iterator[tuple[str, Positions]]:
        """Yield the rows of the searched keys."""
        for sharing, files in self._plan_batches(key_searches):
            self._search_files(table, sharing, files)
        for key_search in key_searches:
            found = self._found[key_search.id]
            yield from ((file.path, found[file]) for file in key_search.files)

    def _plan_batches(
        self, key_searches: Sequence[_KeySearch]
    ) -> list[tuple[Sequence[_KeySearch], Sequence[SearchedFile]]]:
        """Return searches for keys in the same columns, and the files in which earlier attempts have not searched them.
        A file that several commits have to search is searched once for all, unless they have too many keys."""
        by_file: dict[tuple[SearchedFile, Updates], list[_KeySearch]] = {}
        for key_search in key_searches:
            searched = self._found.setdefault(key_search.id, {})
            for file in key_search.files:
                if file not in searched:
                    by_file.setdefault((file, key_search.updates), []).append(key_search)
        files_by_searches: dict[tuple[_KeySearch, ...], list[SearchedFile]] = {}
        for (file, _), sharing in by_file.items():
            files_by_searches.setdefault(tuple(sharing), []).append(file)
        return [
            (packed, files)
            for sharing, files in files_by_searches.items()
            for packed in divide(sharing, KEYS_AT_ONCE, attrgetter("count"))
        ]

    def _search_files(self, table: Table, sharing: Sequence[_KeySearch], files: Sequence[SearchedFile]) -> None:
        types, updates = _column_types(table), sharing[0].updates
        keys_tables = [key_search.read_keys(types) for key_search in sharing]
        begins = np.cumsum([0, *map(len, keys_tables[:-1])])
        names = [table.schema().find_field(part.column_id).name for part in updates.parts]
        keys = SearchedKeys(pa.concat_tables(keys_tables).combine_chunks(), updates, names)
        for file in files:
            rows = [*search(table.io, file, keys, with_documents=False)]
            positions = join_arrays([each.positions for each in rows])
            owners = np.searchsorted(begins, join_arrays([each.keys for each in rows]), side="right") - 1
            order = np.argsort(owners, kind="stable")
            by_owner = np.split(positions[order], np.searchsorted(owners[order], np.arange(1, len(begins))))
            for key_search, owned in zip(sharing, by_owner, strict=True):
                self._found[key_search.id][file] = owned


class _DataFiles:
    """The data files in which a staged commit may find rows: those of the table, and those of the commits before it."""

    def __init__(self, table: Table, manifests: ManifestCache) -> None:
        self._table, self._manifests = table, manifests
        listed = manifests.list_files(table)
        self.live = {file.path: file for file in listed if file.is_data}
        self.deletes = PositionDeletes(listed)
        self.partitions = {path: file.partition for path, file in self.live.items()}
        self._rewritten: list[SearchedFile] = []  # staged files whose rows were located in other ones
        self._missing, self._mapping = MissingValues(table), read_name_mapping(table)
        # Commits that have waited together have found their rows in the same few snapshots.
        self._numbers: dict[int | None, int] = {}  # by the ids of these snapshots
        self._newer: dict[tuple[int, WriterId], list[SearchedFile]] = {}

    def add(self, commit: StagedCommit, *, is_rewritten: bool) -> None:
        """Add the files of a commit."""
        files = files_of(self._table.io, commit.files)
        if files:
            reader = PartitionReader(self._table, commit.spec_id)
            self.partitions.update((file.path, reader.read(file)) for file in files)
        if is_rewritten:
            self._rewritten += [SearchedFile(file.path, file.size) for file in files]

    def find_newer(self, above: int, writer: WriterId) -> list[SearchedFile]:
        """Find the files with a higher sequence number that may have rows of the writer's keys."""
        if (above, writer) not in self._newer:
            newer = [
                file
                for file in self.live.values()
                if file.file_sequence_number > above and not _is_of_other_keys(file, writer)
            ]
            found = describe_files(newer, self.deletes, self._missing)
            self._newer[above, writer] = [replace(file, mapping=self._mapping) for file in found]
        return [*self._newer[above, writer], *self._rewritten]

    def find_newer_rows(self, above: int, writer: WriterId) -> list[SearchedFile]:
        """Find those of these files whose rows have a higher one, too. The others have only been rewritten."""
        newer = [file for file in self.find_newer(above, writer) if file.path in self.live]
        return [file for file in newer if self.live[file.path].sequence_number > above]

    def find_sequence_number(self, snapshot_id: int | None) -> int:
        """Return the number above which a file is new: it was added after the snapshot that the Loads have searched.

        All files are new if the snapshot has not led to the current one, or has expired. So they are if it is of format
        version 1 and no longer the current one: files of that version have no numbers.
        """
        if snapshot_id not in self._numbers:
            current = self._table.current_snapshot()
            ancestors = ancestors_of(current, self._table.metadata)
            searched = next((each for each in ancestors if each.snapshot_id == snapshot_id), None)
            number = (searched and searched.sequence_number) or 0
            self._numbers[snapshot_id] = number if number or (searched and searched == current) else _NONE
        return self._numbers[snapshot_id]


def describe_files(
    files: Sequence[ListedFile], deletes: PositionDeletes, missing: MissingValues
) -> Iterator[SearchedFile]:
    """Yield what a search needs to know of each of these data files of a table, besides what they have in common."""
    applied = deletes.find_all(files)
    for file in files:
        found = tuple(delete.id for delete in applied[file.path])
        values = missing.find(file.partition)
        yield SearchedFile(file.path, file.size, position_deletes=found, lineage=file.lineage, missing_values=values)


def _find_at_old_positions(located: LocatedRows | None, files: _DataFiles) -> Iterator[tuple[str, Positions]]:
    """Yield the rows that are where the Loads have found them."""
    if located:
        for path, positions in group_by_file(located.rows):
            if path in files.partitions:
                yield path, positions


def _plan_searches(
    table: Table, files: _DataFiles, above: int, commit: StagedCommit, fitted: StagedCommit, located: LocatedRows | None
) -> Iterator[_KeySearch]:
    """Plan the searches for the rows of one commit, in files with a higher sequence number."""
    if located and (newer := files.find_newer(above, commit.writer)):
        # Another engine may have moved rows that the Loads have found.
        updates = _follow_conversions(table, located.updates)
        moved = replace(located, updates=updates)
        yield _KeySearch(f"{commit.next} located", updates, len(located.rows), moved.keys, newer)
    if commit.updates and (newer := files.find_newer_rows(above, commit.writer)):
        # The Loads have not seen these rows, which may have the keys of the new ones.
        updates = _follow_conversions(table, commit.updates)
        read_keys = partial(read_staged_keys, table.io, files_of(table.io, fitted.files), updates)
        yield _KeySearch(f"{commit.next} stored", updates, commit.rows, read_keys, newer)


def _is_of_other_keys(file: ListedFile, writer: WriterId) -> bool:
    """Whether a shard of the same task has added the file, for a key range that does not overlap the writer's.

    Rewritten files have rows of all shards. They keep the sequence number of the rows in them, which is lower. So is
    that of a file whose snapshot has later transactions, too: it is searched for nothing.
    """
    origin = FileOrigin.of(basename(file.path))
    return (
        origin is not None
        and origin.writer_hash == fence.writer_hash(writer)
        and not writer.overlaps(origin.key_range)
        and file.sequence_number == file.file_sequence_number
    )


def _follow_conversions(table: Table, updates: Updates) -> Updates:
    """Return where the key is now. A converted column may have the same value for different keys."""
    columns = _column_types(table)
    parts: list[KeyPart] = []
    for part in updates.parts:
        newest = find_newest_column(table, part.column_id)
        if newest not in columns:
            raise _explain_lost_key(table, part.column_id)
        is_exact = part.is_exact and newest == part.column_id
        parts.append(msgspec.structs.replace(part, column_id=newest, is_exact=is_exact))
    return msgspec.structs.replace(
        updates, parts=tuple(parts), document_id=find_newest_column(table, updates.document_id)
    )


def _column_types(table: Table) -> dict[int, PrimitiveType]:
    fields = table.schema().fields
    return {field.field_id: field.field_type for field in fields if isinstance(field.field_type, PrimitiveType)}


def _explain_lost_key(table: Table, column_id: int) -> UnfitCommitError:
    names = {column.field_id: column.name for schema in table.metadata.schemas for column in schema.fields}
    name = names.get(column_id, str(column_id))
    return UnfitCommitError(
        f"table {TableIdentifier.of(table)}: another engine has dropped the key column {name!r} and rewritten "
        "data files. So the rows that a staged commit replaces cannot be found. The staged rows were not "
        f"added, and stay in the task's state. {BACKFILL.capitalize()}."
    )
