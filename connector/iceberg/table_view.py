"""What a Load finds in a table: the rows of its current snapshot, and those of pending commits.

A table may refuse commits for a while. Its Loads must still see every row that the runtime's log has committed.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table

from connector.encoding.search.key_bounds import KeyValues, find_files, make_bounds_table
from connector.encoding.search.row_search import SearchedFile
from connector.encoding.values.arrays import Positions
from connector.host.errors import BACKFILL, ConnectorError, LostColumnError, RetryableError, UserError
from connector.iceberg.catalog_messages import explain_dropped_table, explain_unknown_type
from connector.iceberg.commits import commit_errors, fence
from connector.iceberg.commits.retry_commits import RETRY_FOR, retry
from connector.iceberg.commits.row_deletes import RowDeletes
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache, PositionDeletes
from connector.iceberg.metadata.partitions import MissingValues
from connector.iceberg.metadata.row_lineage import can_keep_lineage
from connector.iceberg.metadata.table_properties import (
    find_generation,
    find_newest_column,
    is_converted,
    read_name_mapping,
    restrict_to_generation,
)
from connector.model.binding import Column
from connector.model.state import DataFile, StagedCommit, TableId, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_io import files_of
from connector.storage.storage_errors import translate_errors

log = logging.getLogger(__name__)

UNIT_SIZE: Final = 32 << 20  # bytes of a data file that one task searches at once
_NOTHING_VISIBLE: Final = "Loads cannot be answered, and nothing of this transaction has become visible"


@dataclass(frozen=True)
class TableView:
    """The rows of a table and of its pending commits: data files and what is deleted in them."""

    snapshot_id: int | None
    files: tuple[SearchedFile, ...]  # oldest first; ranges of row groups where files are large


class TableViews:
    """Makes the views of a session's tables."""

    def __init__(self, manifests: ManifestCache) -> None:
        self._manifests = manifests
        self._deletes: dict[UUID, RowDeletes] = {}  # of tables with pending commits

    def view(
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


class SessionViews:
    """Loads a table's newest metadata for each transaction: another writer may have changed the table."""

    def __init__(
        self,
        catalog: Catalog,
        views: TableViews,
        find_pending: Callable[[TableId, str], Sequence[StagedCommit]],
        fences: fence.LastFences,
        generations: Mapping[TableId, Collection[str]],
    ) -> None:
        """`find_pending` returns the pending commits of a table, for keys of a key range. `fences` knows those of the
        opened tables, and each commit before it leaves the pending ones. `generations` has all that the rows of each
        table have had."""
        self._catalog = catalog
        self._views = views
        self._find_pending = find_pending
        self._fences = fences
        self._generations = generations

    def find(
        self, table_id: TableId, writer: WriterId, columns: Sequence[Column], keys: pa.Table | None = None
    ) -> TableView:
        """Return the view of a table as it is now, for a session that acts as this writer. `columns` are the key
        columns that it writes, and `keys` is the keys table of its Loads: the view leaves out files that cannot have
        one of them. Retries while the catalog or the store does not answer.

        Raises UserError if the table is gone or cannot be searched, or if the catalog refuses to read it, SignInError
        if the catalog does not accept the sign-in any more, FencedError if another process has taken over.
        """
        path, began = table_id[0], time.monotonic()
        try:
            return retry(lambda _: self._find(table_id, writer, columns, keys), partial(_judge, path, began), RETRY_FOR)
        except InvalidMetadataError as error:
            raise commit_errors.explain_broken_metadata(path, error, _NOTHING_VISIBLE) from error

    def _find(self, table_id: TableId, writer: WriterId, columns: Sequence[Column], keys: pa.Table | None) -> TableView:
        path, uuid = table_id
        # Before the table is loaded: a commit may land in between, and then the table shows it.
        pending = self._find_pending(table_id, writer.key_range)
        had = self._fences.find(table_id)  # after the pending commits, so each one is in either
        try:
            table = self._catalog.load_table(path)
        except NoSuchTableError:
            raise explain_dropped_table(path) from None
        generation = find_generation(table, writer.materialization)
        if generation.uuid != uuid:
            if generation.uuid in self._generations[table_id]:
                raise RetryableError("the catalog answers with an older table: as it was before the backfill")
            raise UserError(
                f"table {path} was replaced by another table of the same name while the task was "
                "running. Start the task again."
            )
        if older := fence.explain_older_answer(table.properties, had):
            raise RetryableError(older)
        task_table = restrict_to_generation(table, generation)
        _check_keys(task_table, columns)
        if keys is None:
            return self._views.view(task_table, pending)
        values = keys.select([str(column.id) for column in columns])
        key_columns = {column.id: column.type for column in columns}
        return self._views.view(task_table, pending, keys=KeyValues(key_columns, values))


def _judge(path: TableIdentifier, began: float, error: Exception, number: int, is_last: bool) -> ConnectorError | None:
    """Return the error of the view, unless another attempt may succeed."""
    if explain_unknown_type(error):
        return commit_errors.explain_broken_metadata(path, error, _NOTHING_VISIBLE)
    if commit_errors.is_final(error):
        return commit_errors.explain_refusal(
            path, error, "a read of its metadata", f"{_NOTHING_VISIBLE}.", permission="read"
        )
    answer = commit_errors.quote(error)
    log.warning("table %s: attempt %d to read its snapshot: %s: %s", path, number, type(error).__name__, answer)
    if not is_last:
        return None
    return RetryableError(
        f"table {path}: its current snapshot could not be read to answer Loads, after {time.monotonic() - began:.0f} s "
        f"of attempts: {answer}. Nothing of this transaction has become visible, and the next start tries again."
    )


def _check_keys(table: Table, keys: Sequence[Column]) -> None:
    """Raise LostColumnError unless the table has the key columns, with their types.

    Files that were rewritten lack the values of a column that another engine has dropped, or that apply has converted:
    then a new session finds the keys in the new column. A wider column may have values that this session cannot hold.
    """
    now, name = {column.field_id: column.field_type for column in table.schema().fields}, TableIdentifier.of(table)
    for column in keys:
        if now.get(column.id) == column.type:
            continue
        if find_newest_column(table, column.id) in now:
            raise LostColumnError(
                f"table {name}: its column {column.name!r}, which is part of the key, got another type while the task "
                f"was running. {_NOTHING_VISIBLE}. The next start finds the rows."
            )
        raise LostColumnError(
            f"table {name}: another engine has dropped column {column.name!r}, which is part of the key. Rows cannot "
            f"be found by their keys any more. {BACKFILL.capitalize()}."
        )


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
    live = (file for file in listed if file.content is DataFileContent.DATA)
    files = sorted(live, key=lambda file: file.sequence_number)
    applied = deletes.find_all(files)
    for file in files:
        found = tuple(delete.id for delete in applied[file.path])
        whole = SearchedFile(
            file.path,
            file.size,
            position_deletes=found,
            lineage=file.lineage,
            missing_values=missing.find(file.partition),
        )
        yield from _split(whole, file.row_groups, unit_size)


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
        if file.format is not FileFormat.PARQUET and not file.vector:
            raise UserError(
                f"table {name}: {file.path} is no Parquet file. Standard updates only read Parquet. Have the table's "
                "files rewritten as Parquet (in Spark: CALL system.rewrite_data_files)."
            )
