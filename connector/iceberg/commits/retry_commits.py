"""Tries a commit of maintenance again while other writers are faster, and explains why no attempt succeeded.

An attempt without an answer may have been committed. Then no later attempt proves that nothing was changed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from connector.host.errors import CommitUnknownError, ConnectorError, RetryableError
from connector.iceberg.commits.commit import RETRY_FOR, count_attempts
from connector.iceberg.commits.commit_errors import (
    explain_refusal,
    is_final,
    list_retried_errors,
    list_unknown_errors,
    quote,
)
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAY_BE_DONE: Final = "An earlier attempt got no answer, so it may have been committed. Rows are not affected."
_START_OR_REPEAT: Final = ". Then start the task again, or repeat the command."


@dataclass(frozen=True)
class FailureTexts:
    """What errors say about a kind of commit. `{answer}` stands for the catalog's words."""

    name: str  # "a commit to merge manifests"
    left: str  # what a refused commit leaves: "Nothing was changed."
    unknown: str  # if the catalog did not answer
    conflict: str  # if other writers were faster


@dataclass(frozen=True)
class ActionText:
    """What an action is called in errors."""

    to_do: str  # "merge manifests"
    done: str  # "manifests were merged"

    @property
    def of_failures(self) -> FailureTexts:
        """What errors say about a commit of the action."""
        return FailureTexts(
            name=f"a commit to {self.to_do}",
            left="Nothing was changed.",
            unknown=f"the catalog gave no answer when {self.done} ({{answer}}). Rows are not affected. Check the "
            "catalog, and repeat the command.",
            conflict=f"other writers committed first each time when {self.done} ({{answer}}). Nothing was changed. "
            "Repeat the command later.",
        )


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
    raise explain_failure(path, text.of_failures, last, unanswered) from last


def is_unanswered(error: Exception) -> bool:
    """Whether the attempt may have been committed."""
    return isinstance(error, list_unknown_errors()) and not is_final(error)


def explain_failure(
    path: TableIdentifier, texts: FailureTexts, last: Exception, unanswered: Exception | None
) -> ConnectorError:
    """Return the error of a commit after its last attempt. `unanswered` is the error of an attempt, perhaps of the last
    one, that may have been committed."""
    if is_final(last):
        return explain_refusal(path, last, texts.name, _MAY_BE_DONE if unanswered else texts.left, _START_OR_REPEAT)
    if unanswered:
        return CommitUnknownError(f"table {path}: {texts.unknown.format(answer=quote(unanswered))}")
    if isinstance(last, ConnectorError):
        return last
    return RetryableError(f"table {path}: {texts.conflict.format(answer=quote(last))}")
