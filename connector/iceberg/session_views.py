"""What the Loads of a session find in its tables, whose newest metadata is read for each transaction.

It is read again while the catalog or the store does not answer, or while the catalog answers with an older table.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.table import Table

from connector.encoding.search.key_bounds import KeyValues
from connector.host.errors import BACKFILL, ConnectorError, LostColumnError, RetryableError, UserError
from connector.iceberg.catalog_messages import explain_dropped_table, explain_unknown_type
from connector.iceberg.commits import commit_errors
from connector.iceberg.commits.retry_commits import RETRY_FOR, retry
from connector.iceberg.fences import fence
from connector.iceberg.metadata.table_properties import find_generation, find_newest_column, restrict_to_generation
from connector.iceberg.table_view import TableView, ViewFactory
from connector.model.binding import Column
from connector.model.state import StagedCommit, TableId, WriterId
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

_NOTHING_VISIBLE: Final = "Loads cannot be answered, and nothing of this transaction has become visible"


class SessionViews:
    """Loads a table's newest metadata for each transaction: another writer may have changed the table."""

    def __init__(
        self,
        catalog: Catalog,
        views: ViewFactory,
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

    def find(self, table_id: TableId, writer: WriterId, columns: Sequence[Column], keys: pa.Table) -> TableView:
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

    def _find(self, table_id: TableId, writer: WriterId, columns: Sequence[Column], keys: pa.Table) -> TableView:
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
        _check_key_columns(task_table, columns)
        values = keys.select([str(column.id) for column in columns])
        key_columns = {column.id: column.type for column in columns}
        return self._views.make(task_table, pending, keys=KeyValues(key_columns, values))


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


def _check_key_columns(table: Table, columns: Sequence[Column]) -> None:
    """Raise LostColumnError unless the table has the key columns, with their types.

    Files that were rewritten lack the values of a column that another engine has dropped, or that apply has converted:
    then a new session finds the keys in the new column. A wider column may have values that this session cannot hold.
    """
    now, name = {column.field_id: column.field_type for column in table.schema().fields}, TableIdentifier.of(table)
    for column in columns:
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
