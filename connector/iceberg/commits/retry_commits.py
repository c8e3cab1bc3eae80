"""Attempts a commit, or the reading of a table, again while other writers are faster or the catalog does not answer.

An attempt without an answer may have been committed. Then no later attempt proves that nothing was changed. Commits of
maintenance explain this in the same words. Those of transactions do it in `commit_errors`.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from pyiceberg.exceptions import NoSuchTableError

from connector.host.errors import CommitUnknownError, ConnectorError, RetryableError
from connector.iceberg.catalog_messages import explain_gone_table
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

RETRY_FOR: Final = 30.0  # seconds; for all tables of an acknowledgement together, see `try_commits`
FIRST_PAUSE: Final = 0.1  # seconds, doubled up to LONGEST_PAUSE; each lasts a random part of it, at least half
LONGEST_PAUSE: Final = 10.0

# Gets the error of an attempt, the number of attempts so far, and whether there is no time for another one. Returns the
# error to raise, or None for another attempt.
JudgeError: TypeAlias = Callable[[Exception, int, bool], ConnectorError | None]

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


def retry(attempt: Callable[[int], T], judge: JudgeError, retry_for: float) -> T:
    """Attempt until an attempt succeeds, and return what it returns. Attempts have numbers from 1 on.

    Each attempt must begin with the table as it is then. The pauses between attempts grow. The last attempt begins at
    most `retry_for` seconds after the end of the first one, which may take all of its client's time limit. Raises the
    error that `judge` returns.
    """
    number, pause = 1, FIRST_PAUSE
    deadline: float | None = None
    while True:
        try:
            return attempt(number)
        except list_retried_errors() as error:
            now = time.monotonic()
            deadline = deadline or now + retry_for
            if judged := judge(error, number, now + pause > deadline):
                raise judged from error
        time.sleep(pause * random.uniform(0.5, 1))
        number, pause = number + 1, min(2 * pause, LONGEST_PAUSE)


def retry_commit(path: TableIdentifier, text: ActionText, attempt: Callable[[], T]) -> T:
    """Attempt a commit of maintenance until it succeeds, and return what the last attempt returns.

    UserError if the catalog refuses the commit, RetryableError if other writers were always faster, CommitUnknownError
    if the catalog did not answer an attempt.
    """
    unanswered: Exception | None = None

    def judge(error: Exception, number: int, is_last: bool) -> ConnectorError | None:
        nonlocal unanswered
        if is_unanswered(error):
            unanswered = error
        if not (is_final(error) or isinstance(error, ConnectorError)):
            log.info("table %s: attempt %d to %s: %s", path, number, text.to_do, quote(error))
            if not is_last:
                return None
        return explain_failure(path, text.of_failures, error, unanswered)

    return retry(lambda _: attempt(), judge, RETRY_FOR)


def is_unanswered(error: Exception) -> bool:
    """Whether the attempt may have been committed."""
    return isinstance(error, list_unknown_errors()) and not is_final(error)


def explain_failure(
    path: TableIdentifier, texts: FailureTexts, last: Exception, unanswered: Exception | None
) -> ConnectorError:
    """Return the error of a commit after its last attempt. `unanswered` is the error of an attempt, perhaps of the last
    one, that may have been committed."""
    if isinstance(last, NoSuchTableError):
        return explain_gone_table(path)
    if is_final(last):
        return explain_refusal(path, last, texts.name, _MAY_BE_DONE if unanswered else texts.left, _START_OR_REPEAT)
    if unanswered:
        return CommitUnknownError(f"table {path}: {texts.unknown.format(answer=quote(unanswered))}")
    if isinstance(last, ConnectorError):
        return last
    return RetryableError(f"table {path}: {texts.conflict.format(answer=quote(last))}")
