"""Finds the rows that staged commits delete, in the table as an attempt finds it.

A staged commit names these rows by file and position, and by key. Until it is committed, another writer may have moved
them to other files. Then their keys find them again, in the files that were added since. A commit that deletes at the
old positions would delete nothing, and leave two rows for a key.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import PrimitiveType

from connector.encoding.live_rows.position_deletes import group_by_file, join_positions
from connector.encoding.search.located_rows import Located, read_located
from connector.encoding.search.row_search import SearchedFile, search
from connector.encoding.search.searched_keys import Keys
from connector.encoding.values.arrays import Positions, join_arrays
from connector.host.errors import UserError
from connector.iceberg.commits import fence
from connector.iceberg.commits.file_names import FileOrigin
from connector.iceberg.commits.late_files import find_newest_column
from connector.iceberg.metadata.listed_files import ListedFile, ManifestReader, PositionDeletes
from connector.iceberg.metadata.partitions import MissingValues, Partition, PartitionReader
from connector.iceberg.metadata.references import file_name
from connector.model.binding import Updates
from connector.model.state import LocatedRows, StagedCommit, WriterId
from connector.storage.file_io import files_of

_NONE: Final = -1  # lower than every sequence number


@dataclass(frozen=True)
class DeletedRows:
    """Rows that a commit deletes, and the live files of the table at that time."""

    positions: Mapping[str, Positions]  # by data file; in order, each once
    partitions: Mapping[str, Partition]  # of these data files
    live: Mapping[str, ListedFile]  # data files, by path
    deletes: PositionDeletes


class RowDeletes:
    """The rows that one writer's pending commits delete. What one attempt has read is used by the next ones."""

    def __init__(self, manifests: ManifestReader) -> None:
        self._manifests = manifests
        self._located: dict[str, Located] = {}
        self._found: dict[tuple[str, Updates, str], Positions] = {}

    def find(self, table: Table, staged: Sequence[StagedCommit], fitting: Sequence[StagedCommit]) -> DeletedRows | None:
        """Return the rows to delete in the commit of `staged`, None if they delete nothing.

        `fitting` are the same commits with the files that the table gets. UserError if rows cannot be found any more.
        """
        if not any(commit.located for commit in staged):
            return None
        files = _DataFiles(table, self._manifests.list_files(table))
        found: dict[str, list[Positions]] = {}
        for before, commit in zip(staged, fitting, strict=True):
            if before.located:
                for path, positions in self._find_rows(table, before.writer, before.located, files):
                    if path in files.partitions and len(positions):
                        found.setdefault(path, []).append(positions)
            # A commit deletes rows of earlier commits, never its own: its files only count for those that follow.
            files.add(commit, is_rewritten=commit is not before)
        merged = {path: join_positions(rows) for path, rows in found.items()}
        return DeletedRows(merged, files.partitions, files.live, files.deletes)

    def _find_rows(
        self, table: Table, writer: WriterId, located: LocatedRows, files: "_DataFiles"
    ) -> Iterator[tuple[str, Positions]]:
        """Yield the located rows of one commit: at their old places, and where they may have been moved since."""
        rows = self._read(table.io, located)
        at_old_places = list(group_by_file(rows.rows))
        missing = {path for path, _ in at_old_places} - files.partitions.keys()
        since = self._find_sequence_number(table, located.snapshot_id, missing)
        yield from at_old_places
        yield from self._search(table, located.location, rows, [*files.find_newer(since, writer), *files.rewritten])

    def _read(self, io: FileIO, located: LocatedRows) -> Located:
        if located.location not in self._located:
            self._located[located.location] = read_located(io, located.location)
        return self._located[located.location]

    def _find_sequence_number(self, table: Table, snapshot_id: int | None, missing: Collection[str]) -> int:
        """Return the number above which a file is new: it was added after the snapshot in which the rows were found.

        All files are new if the snapshot has not led to the current one, or has expired. So they are if the rows were
        found in files that it did not list, and that are missing now: `fence reset` has skipped the commit that would
        have added them. Then the rows that this commit would have deleted are still there.
        """
        ancestors = ancestors_of(table.current_snapshot(), table.metadata)
        snapshot = next((each for each in ancestors if each.snapshot_id == snapshot_id), None)
        if snapshot is None or (missing and not self._manifests.list_paths(table, snapshot).issuperset(missing)):
            return _NONE
        return snapshot.sequence_number or 0

    def _search(
        self, table: Table, location: str, rows: Located, files: Sequence[SearchedFile]
    ) -> Iterator[tuple[str, Positions]]:
        """Yield the rows of the located keys in files that may have them now. Each file is searched once."""
        if not files:
            return
        updates = _follow_conversions(table, rows.updates)
        keys: Keys | None = None
        for file in files:
            key = location, updates, file.path
            if key not in self._found:
                keys = keys or Keys(replace(rows, updates=updates).keys(_column_types(table)), updates)
                found = [each.positions for each in search(table.io, file, keys, with_documents=False)]
                self._found[key] = join_arrays(found)
            yield file.path, self._found[key]


class _DataFiles:
    """The data files in which a staged commit may find rows: those of the table, and those of the commits before it."""

    def __init__(self, table: Table, listed: Sequence[ListedFile]) -> None:
        """`listed` are the live files of the table."""
        self._table = table
        self.live = {file.path: file for file in listed if file.content is DataFileContent.DATA}
        self.deletes = PositionDeletes(listed)
        self.partitions = {path: file.partition for path, file in self.live.items()}
        self.rewritten: list[SearchedFile] = []  # staged files whose rows were located in other ones
        self._missing = MissingValues(table)

    def add(self, commit: StagedCommit, *, is_rewritten: bool) -> None:
        """Add the files of a commit."""
        files = files_of(self._table.io, commit.files)
        if files:
            reader = PartitionReader(self._table, commit.spec_id)
            self.partitions.update((file.path, reader.read(file)) for file in files)
        if is_rewritten:
            self.rewritten += [SearchedFile(file.path, file.size) for file in files]

    def find_newer(self, since: int, writer: WriterId) -> Iterator[SearchedFile]:
        """Find the live files above a sequence number that may have rows of the writer's keys."""
        newer = [
            file
            for file in self.live.values()
            if file.file_sequence_number > since and not _is_of_other_keys(file, writer)
        ]
        applied = self.deletes.find_all(newer)
        for file in newer:
            found = tuple(delete.id for delete in applied[file.path])
            missing = self._missing.find(file.partition)
            yield SearchedFile(file.path, file.size, position_deletes=found, missing_values=missing)


def _is_of_other_keys(file: ListedFile, writer: WriterId) -> bool:
    """Whether a shard of the same task has added the file, for a key range that does not overlap the writer's.

    Rewritten files have rows of all shards. They keep the sequence number of the rows in them, which is lower. So is
    that of a file whose snapshot has later transactions, too: it is searched for nothing.
    """
    origin = FileOrigin.of(file_name(file.path))
    return (
        origin is not None
        and origin.writer_hash == fence.writer_hash(writer)
        and not writer.overlaps(origin.key_range)
        and file.sequence_number == file.file_sequence_number
    )


def _follow_conversions(table: Table, updates: Updates) -> Updates:
    """Return where the key is now. A converted column may have the same value for different keys."""
    columns = _column_types(table)
    parts = []
    for part in updates.parts:
        newest = find_newest_column(table, part.column_id)
        if newest not in columns:
            raise _explain_lost_key(table, part.column_id)
        parts.append(replace(part, column_id=newest, is_exact=part.is_exact and newest == part.column_id))
    return replace(updates, parts=tuple(parts), document_id=find_newest_column(table, updates.document_id))


def _column_types(table: Table) -> dict[int, PrimitiveType]:
    fields = table.schema().fields
    return {field.field_id: field.field_type for field in fields if isinstance(field.field_type, PrimitiveType)}


def _explain_lost_key(table: Table, column_id: int) -> UserError:
    names = {column.field_id: column.name for schema in table.metadata.schemas for column in schema.fields}
    name = names.get(column_id, str(column_id))
    return UserError(
        f"table {'.'.join(table.name())}: another engine has dropped the key column {name!r} and rewritten "
        "data files. So the rows that a staged commit replaces cannot be found. The staged rows were not "
        "added, and stay in the task's state. Roll the table back to a snapshot with the column, or backfill the "
        "binding, which replaces all rows."
    )
