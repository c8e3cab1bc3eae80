"""Tries a commit of maintenance again while other writers are faster, and explains why no attempt succeeded."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from connector.host.errors import CommitUnknownError, ConnectorError, RetryableError, UserError
from connector.iceberg.commits.commit import RETRY_FOR, count_attempts
from connector.iceberg.commits.commit_errors import is_final, list_retried_errors, list_unknown_errors, quote
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class ActionText:
    """What an action is called in errors."""

    to_do: str  # "merge manifests"
    done: str  # "manifests were merged"


def retry_commit(path: TableIdentifier, text: ActionText, attempt: Callable[[], T]) -> T:
    """Attempt a commit until it succeeds, for RETRY_FOR, and return what the last attempt returns.

    Each attempt must begin with the table as it is then. UserError if the catalog refuses the commit, RetryableError if
    other writers were always faster, CommitUnknownError if the catalog does not answer.
    """
    last: Exception | None = None
    for number in count_attempts(RETRY_FOR):
        try:
            return attempt()
        except list_retried_errors() as error:
            if is_final(error) or isinstance(error, ConnectorError):
                raise _explain(path, text, error) from error
            log.info("table %s: attempt %d to %s: %s", path, number + 1, text.to_do, quote(error))
            last = error
    assert last is not None
    raise _explain(path, text, last) from last


def _explain(path: TableIdentifier, text: ActionText, error: Exception) -> ConnectorError:
    if isinstance(error, ConnectorError):
        return error
    if is_final(error):
        return UserError(
            f"table {path}: the catalog refuses to {text.to_do} ({quote(error)}). Nothing was changed. Give the user "
            "of the config's credentials the permission to change this table."
        )
    if isinstance(error, list_unknown_errors()):
        return CommitUnknownError(
            f"table {path}: the catalog gave no answer when {text.done} ({quote(error)}). Rows are not affected. "
            "Check the catalog, and repeat the command."
        )
    return RetryableError(
        f"table {path}: other writers committed first each time when {text.done} ({quote(error)}). Nothing was "
        "changed. Repeat the command later."
    )
