"""What a Load finds in a table: the rows of its current snapshot, and those of pending commits.

A table may refuse commits for a while. Its Loads must still see every row that the runtime's log has committed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Final
from uuid import UUID

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from connector.encoding.search.key_bounds import KeyValues, find_files, make_bounds_table
from connector.encoding.search.row_search import SearchedFile
from connector.encoding.values.arrays import Positions
from connector.host.errors import RetryableError, UserError
from connector.iceberg.commits.row_deletes import RowDeletes, describe_files
from connector.iceberg.fences import fence
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache, PositionDeletes
from connector.iceberg.metadata.partitions import MissingValues
from connector.iceberg.metadata.row_lineage import can_keep_lineage
from connector.iceberg.metadata.table_properties import is_converted, read_name_mapping
from connector.model.state import DataFile, StagedCommit
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_io import files_of
from connector.storage.storage_errors import translate_errors

UNIT_SIZE: Final = 32 << 20  # bytes of a data file that one task searches at once


@dataclass(frozen=True)
class TableView:
    """The rows of a table and of its pending commits: data files and what is deleted in them."""

    snapshot_id: int | None
    files: tuple[SearchedFile, ...]  # oldest first; ranges of row groups where files are large


class ViewFactory:
    """Makes the views of a session's tables."""

    def __init__(self, manifests: ManifestCache) -> None:
        self._manifests = manifests
        self._deletes: dict[UUID, RowDeletes] = {}  # of tables with pending commits

    def make(
        self,
        table: Table,
        pending: Sequence[StagedCommit],
        unit_size: int = UNIT_SIZE,
        keys: KeyValues | None = None,
    ) -> TableView:
        """Return the view of a table that was just loaded. `pending` are the staged commits that may not be in it yet.
        If keys are given, the view leaves out files whose bounds exclude them all.

        UserError if the table has rows or deletes that cannot be searched; FencedError if another process has taken
        over.
        """
        with translate_errors(table.location()):
            if keys is None:
                listed = searched = self._manifests.list_files(table)
            else:
                listed, may_have = self._manifests.find_files(table, keys)
                searched = [*compress(listed, may_have)]
            check_files(table, listed)
            remaining = _remaining_commits(table, pending)
            files = [
                *_search_live(searched, PositionDeletes(listed), MissingValues(table), unit_size),
                *_search_staged(table, remaining, {file.path for file in listed}, unit_size, keys),
            ]
            deleted = self._find_deleted(table, remaining)
        snapshot, keeps_ids, mapping = table.current_snapshot(), can_keep_lineage(table), read_name_mapping(table)
        found = (
            replace(
                file,
                pending_deletes=deleted.get(file.path, file.pending_deletes),
                mapping=mapping,
                keeps_ids=keeps_ids,
            )
            for file in files
        )
        return TableView(snapshot.snapshot_id if snapshot else None, tuple(found))

    def _find_deleted(self, table: Table, remaining: Sequence[StagedCommit]) -> Mapping[str, Positions]:
        """Return the rows that these commits will delete, by file. Another writer may have moved them by now."""
        uuid = table.metadata.table_uuid
        if not any(commit.located for commit in remaining):
            self._deletes.pop(uuid, None)
            return {}
        deletes = self._deletes.setdefault(uuid, RowDeletes(self._manifests))
        return deletes.find(table, remaining, remaining).positions


def _remaining_commits(table: Table, pending: Sequence[StagedCommit]) -> list[StagedCommit]:
    """Return the commits that the table does not have yet, in the order in which it will get them."""
    return [
        commit
        for commits in fence.group_by_writer(pending)
        for commit in fence.remaining_commits(commits, table.properties)
    ]


def _search_live(
    listed: Iterable[ListedFile], deletes: PositionDeletes, missing: MissingValues, unit_size: int
) -> Iterator[SearchedFile]:
    live = (file for file in listed if file.is_data)
    files = sorted(live, key=lambda file: file.sequence_number)
    for file, searched in zip(files, describe_files(files, deletes, missing), strict=True):
        yield from _split(searched, file.row_groups, unit_size)


def _search_staged(
    table: Table, remaining: Sequence[StagedCommit], live: set[str], unit_size: int, keys: KeyValues | None
) -> Iterator[SearchedFile]:
    waiting: list[DataFile] = []
    for commit in remaining:
        for file in files_of(table.io, commit.files):
            if any(is_converted(table, column.field_id) for column in file.columns):
                raise _explain_late(commit)
            if file.path not in live:
                waiting.append(file)
    if keys is not None and waiting:
        statistics = [
            {each.field_id: (each.lower, each.upper, each.nulls) for each in file.columns} for file in waiting
        ]
        bounds = make_bounds_table(keys.columns, statistics)
        waiting = [*compress(waiting, find_files(bounds, keys))]
    for file in waiting:
        yield from _split(SearchedFile(file.path, file.size), len(file.splits), unit_size)


def _explain_late(commit: StagedCommit) -> RetryableError:
    return RetryableError(
        f"table {commit.path}: {commit.rows} rows were staged before a column was converted to another type, and the "
        "table does not have them yet. Until then, no key can be looked up in them. They stay in the task's state. The "
        "task commits them when it starts again: correct what keeps the table from taking them."
    )


def _split(file: SearchedFile, row_groups: int, unit_size: int) -> Iterator[SearchedFile]:
    """Divide a large file into ranges of row groups of similar size.

    The last range is open: another engine may name fewer places to split than there are row groups.
    """
    units = min(row_groups, -(-file.size // unit_size))
    if units <= 1:
        yield file
        return
    for unit in range(units):
        first, following = (row_groups * bound // units for bound in (unit, unit + 1))
        last = unit == units - 1
        yield replace(file, first_row_group=first, row_groups=None if last else following - first)


def check_files(table: Table, files: Iterable[ListedFile]) -> None:
    """Raise UserError if a file of another writer has rows or deletes that cannot be searched."""
    name = TableIdentifier.of(table)
    for file in files:
        if file.content is DataFileContent.EQUALITY_DELETES:
            raise UserError(
                f"table {name}: another writer has deleted rows by their values ({file.path} has equality deletes). "
                "Standard updates cannot read such deletes. Have the table's files rewritten (in Spark: CALL "
                "system.rewrite_data_files), and let the other writer delete by position."
            )
        if not file.is_readable:
            raise UserError(
                f"table {name}: {file.path} is no Parquet file. Standard updates only read Parquet. Have the table's "
                "files rewritten as Parquet (in Spark: CALL system.rewrite_data_files)."
            )
