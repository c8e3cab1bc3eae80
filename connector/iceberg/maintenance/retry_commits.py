"""Tries a commit of maintenance again while other writers are faster, and explains why no attempt succeeded."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from connector.host.errors import ConnectorError
from connector.iceberg.commits.commit import RETRY_FOR, count_attempts
from connector.iceberg.commits.commit_errors import is_final, list_retried_errors, quote
from connector.iceberg.commits.failed_attempts import FailureTexts, explain_failure, is_unanswered
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
    other writers were always faster, CommitUnknownError if the catalog did not answer an attempt.
    """
    last: Exception | None = None
    unanswered: Exception | None = None
    for number in count_attempts(RETRY_FOR):
        try:
            return attempt()
        except list_retried_errors() as error:
            last = error
            if is_unanswered(error):
                unanswered = error
            if is_final(error) or isinstance(error, ConnectorError):
                break
            log.info("table %s: attempt %d to %s: %s", path, number + 1, text.to_do, quote(error))
    assert last is not None
    raise explain_failure(path, _texts(text), last, unanswered) from last


def _texts(action: ActionText) -> FailureTexts:
    return FailureTexts(
        name=f"a commit to {action.to_do}",
        left="Nothing was changed.",
        unknown=f"the catalog gave no answer when {action.done} ({{answer}}). Rows are not affected. Check the "
        "catalog, and repeat the command.",
        conflict=f"other writers committed first each time when {action.done} ({{answer}}). Nothing was changed. "
        "Repeat the command later.",
    )
