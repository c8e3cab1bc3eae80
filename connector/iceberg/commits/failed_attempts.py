"""Tells what failed attempts mean for a commit of maintenance, and makes its error.

An attempt without an answer may have been committed. Then no later attempt proves that nothing was changed.
"""

from dataclasses import dataclass
from typing import Final

from connector.host.errors import CommitUnknownError, ConnectorError, RetryableError
from connector.iceberg.commits.commit_errors import explain_refusal, is_final, list_unknown_errors, quote
from connector.model.table_identifier import TableIdentifier

_MAY_BE_DONE: Final = "An earlier attempt got no answer, so it may have been committed. Rows are not affected."
_START_OR_REPEAT: Final = ". Then start the task again, or repeat the command."


@dataclass(frozen=True)
class FailureTexts:
    """What errors say about a kind of commit. `{answer}` stands for the catalog's words."""

    name: str  # "a commit to merge manifests"
    left: str  # what a refused commit leaves: "Nothing was changed."
    unknown: str  # if the catalog did not answer
    conflict: str  # if other writers were faster


def is_unanswered(error: Exception) -> bool:
    """Whether the attempt may have been committed."""
    return isinstance(error, list_unknown_errors()) and not is_final(error)


def explain_failure(
    path: TableIdentifier, texts: FailureTexts, last: Exception, unanswered: Exception | None
) -> ConnectorError:
    """Return the error of a commit after its last attempt. `unanswered` is the error of an attempt, perhaps of the last
    one, that may have been committed."""
    if isinstance(last, ConnectorError):
        return last
    if is_final(last):
        return explain_refusal(path, last, texts.name, _MAY_BE_DONE if unanswered else texts.left, _START_OR_REPEAT)
    if unanswered:
        return CommitUnknownError(f"table {path}: {texts.unknown.format(answer=quote(unanswered))}")
    return RetryableError(f"table {path}: {texts.conflict.format(answer=quote(last))}")
