"""Views of the session's tables for Loads: the current snapshot, and what is staged on top of it."""

import logging
import time
from collections.abc import Callable, Sequence

from pyiceberg.catalog import Catalog

from connector.host.errors import RetryableError, UserError
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits import commit_errors
from connector.iceberg.commits.commit import RETRY_FOR, count_attempts
from connector.iceberg.commits.commit_errors import list_retried_errors
from connector.iceberg.table_view import TableView, TableViews
from connector.model.state import StagedCommit

log = logging.getLogger(__name__)


class SessionViews:
    """Loads a table's newest metadata for each transaction: another writer may have changed the table."""

    def __init__(
        self, catalog: Catalog, views: TableViews, find_pending: Callable[[BoundTable], Sequence[StagedCommit]]
    ) -> None:
        self._catalog = catalog
        self._views = views
        self._find_pending = find_pending

    def find(self, bound: BoundTable) -> TableView:
        """Return the view of a table as it is now. Retries while the catalog or the store does not answer.

        Raises UserError if the table is gone or cannot be searched, FencedError if another process has taken over.
        """
        began = time.monotonic()
        last: Exception | None = None
        for number in count_attempts(RETRY_FOR):
            try:
                return self._find(bound)
            except UserError:
                raise
            except list_retried_errors() as error:
                log.warning(
                    "table %s: attempt %d to read its snapshot: %s: %s",
                    bound.binding.table,
                    number + 1,
                    type(error).__name__,
                    commit_errors.quote(error),
                )
                last = error
                if commit_errors.is_final(error):
                    break
        assert last is not None
        raise RetryableError(
            f"table {bound.binding.table}: its current snapshot could not be read to answer Loads, after "
            f"{time.monotonic() - began:.0f} s of attempts: {commit_errors.quote(last)}. Nothing of this transaction "
            "has become visible, and the next start tries again."
        ) from last

    def _find(self, bound: BoundTable) -> TableView:
        # Before the table is loaded: a commit may land in between, and then the table shows it.
        pending = self._find_pending(bound)
        table = self._catalog.load_table(bound.binding.path)
        if str(table.metadata.table_uuid) != bound.table_uuid:
            raise UserError(
                f"table {bound.binding.table} was replaced by another table of the same name while the task was "
                "running. Start the task again."
            )
        return self._views.view(table, pending)
