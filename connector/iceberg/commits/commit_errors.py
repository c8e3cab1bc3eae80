"""The errors of commits that fail: what happened to which table, and what to do."""

from collections.abc import Sequence
from textwrap import shorten
from typing import Final

from connector.host.errors import CommitUnknownError, ConnectorError, RetryableError, UserError
from connector.host.redaction import redact
from connector.iceberg.catalog_messages import read_message
from connector.iceberg.commits.outcomes import REFUSED, answer, unknown
from connector.model.state import StagedCommit

QUOTED_CHARACTERS: Final = 300  # of an answer
_LANDS: Final = "the task adds those that the table does not have yet"
_BACKFILL: Final = "Or backfill the binding: it drops these staged rows and reads the source again."


def explain_refusal(name: str, error: Exception) -> ConnectorError:
    """The catalog would refuse the commit again."""
    return UserError(
        f"table {name}: the catalog refuses the commit: {quote(error)}. Its files stay staged in the task's state: "
        "give the connector the permission, or correct the config."
    )


def explain_broken_metadata(name: str, error: Exception) -> ConnectorError:
    return RetryableError(
        f"table {name}: its metadata cannot be read ({type(error).__name__}: {quote(error)}). Its files stay staged "
        "in the task's state: repair the table, or backfill the binding."
    )


def explain_last_attempt(name: str, last: Exception, seconds: float) -> ConnectorError:
    """`last` is the error of the last of several attempts, over so many seconds."""
    if isinstance(last, RetryableError):
        return last
    if isinstance(last, REFUSED) and not isinstance(last, unknown()):
        return RetryableError(
            f"table {name}: other writers were faster for {seconds:.0f} s ({quote(last)}). Its files stay staged in "
            "the task's state; reduce the other writers' commits."
        )
    return CommitUnknownError(
        f"table {name}: the catalog gave no answer for {seconds:.0f} s ({type(last).__name__}: {quote(last)}). "
        "Its files stay staged in the task's state until it does: check the catalog."
    )


def quote(error: Exception) -> str:
    """The catalog's own words, redacted and shortened."""
    words, _ = read_message(answer(error))
    return shorten(redact(words), QUOTED_CHARACTERS, placeholder=" …").rstrip(".")


def gone(staged: Sequence[StagedCommit]) -> UserError:
    """Nothing has the name of the table that these were staged for."""
    return UserError(
        f"table {'.'.join(staged[0].path)} is gone, and {_described(staged)}. To keep these rows, bring the table back "
        f"under its name: {_LANDS}. {_BACKFILL}"
    )


def explain_replaced_table(staged: Sequence[StagedCommit], uuid: str) -> UserError:
    """Another table, which has this uuid, has the name of the one that these were staged for."""
    name = ".".join(staged[0].path)
    return UserError(
        f"table {name} is another table now (uuid {uuid}), and {_described(staged)}. To keep these rows, first rename "
        f"or drop the table that is named {name} now, then bring the old table back under this name: {_LANDS}. "
        f"{_BACKFILL}"
    )


def _described(staged: Sequence[StagedCommit]) -> str:
    rows = sum(commit.rows for commit in staged)
    return f"the task's state names {rows} rows that are staged for the old table (uuid {staged[0].table_uuid})"
