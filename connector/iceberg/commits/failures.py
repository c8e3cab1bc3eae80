"""The errors of commits that fail: what happened to which table, and what to do."""

from textwrap import shorten
from typing import Final

from connector.errors import CommitUnknownError, ConnectorError, RetryableError, UserError
from connector.iceberg.answers import said
from connector.iceberg.commits.outcomes import REFUSED, answer, unknown
from connector.redaction import redacted
from connector.state import StagedCommit

QUOTED_CHARACTERS: Final = 300  # of an answer


def refused(name: str, error: Exception) -> ConnectorError:
    """The catalog would refuse the commit again."""
    return UserError(
        f"table {name}: the catalog refuses the commit: {quoted(error)}. Its files stay staged in the task's state: "
        "give the connector the permission, or correct the config."
    )


def broken(name: str, error: Exception) -> ConnectorError:
    return RetryableError(
        f"table {name}: its metadata cannot be read ({type(error).__name__}: {quoted(error)}). Its files stay staged "
        "in the task's state: repair the table, or backfill the binding."
    )


def gave_up(name: str, last: Exception, seconds: float) -> ConnectorError:
    """`last` is the error of the last of several attempts, over so many seconds."""
    if isinstance(last, RetryableError):
        return last
    if isinstance(last, REFUSED) and not isinstance(last, unknown()):
        return RetryableError(
            f"table {name}: other writers were faster for {seconds:.0f} s ({quoted(last)}). Its files stay staged in "
            "the task's state; reduce the other writers' commits."
        )
    return CommitUnknownError(
        f"table {name}: the catalog gave no answer for {seconds:.0f} s ({type(last).__name__}: {quoted(last)}). "
        "Its files stay staged in the task's state until it does: check the catalog."
    )


def quoted(error: Exception) -> str:
    """The catalog's own words, redacted and shortened."""
    words, _ = said(answer(error))
    return shorten(redacted(words), QUOTED_CHARACTERS, placeholder=" …").rstrip(".")


def replaced(staged: StagedCommit, what: str) -> UserError:
    return UserError(
        f"table {'.'.join(staged.path)} {what} while {staged.rows} rows were staged for it (its uuid was "
        f"{staged.table_uuid}). They were added nowhere. Bring the table back, or backfill the binding, which begins "
        "with a new table."
    )
