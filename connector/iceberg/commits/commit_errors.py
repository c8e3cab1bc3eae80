"""What the error of a catalog's client means for a commit, and the error that the task gets."""

import sys
import zlib
from collections.abc import Sequence
from textwrap import shorten
from types import ModuleType
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    RESTError,
    UnauthorizedError,
)
from pyiceberg.exceptions import ValidationError as InvalidMetadataError

from connector.host.errors import CommitUnknownError, ConnectorError, RetryableError, UserError
from connector.host.redaction import redact
from connector.iceberg.catalog_messages import read_message
from connector.model.state import StagedCommit
from connector.storage.aws_errors import is_refusal

QUOTED_CHARACTERS: Final = 300  # of an answer
_LANDS: Final = "the task adds those that the table does not have yet"
_BACKFILL: Final = "Or backfill the binding: it drops these staged rows and reads the source again."

# ValueError: the metadata changed under PyIceberg's own checks. The next look finds a table that is gone.
REFUSED: Final = (CommitFailedException, NoSuchTableError, ValueError)
# ValidationError, a ValueError too: the answer was not a catalog's but a gateway's, or was cut short.
_UNKNOWN: Final = (RESTError, OSError, BotoCoreError, ClientError, ValidationError)
# What the readers of metadata make of files that are cut short or are something else, and of parts that are missing.
BROKEN: Final = (InvalidMetadataError, EOFError, KeyError, zlib.error)
_HOPELESS: Final = (BadRequestError, ForbiddenError, UnauthorizedError)


def unknown() -> tuple[type[Exception], ...]:
    """The errors after which nobody knows whether the commit has landed."""
    return (*_UNKNOWN, databases.SQLAlchemyError) if (databases := _databases()) else _UNKNOWN


def worth_another_look() -> tuple[type[Exception], ...]:
    """The errors after which the table is looked at again: it says whether anything is left to commit."""
    return (*REFUSED, *unknown(), RetryableError)


def is_hopeless(error: Exception) -> bool:
    """Whether the catalog would answer the same again."""
    return is_refusal(error) if isinstance(error, ClientError) else isinstance(error, _HOPELESS)


def answer(error: Exception) -> Exception:
    """The catalog's own answer: of a database's error, without the SQL statement."""
    databases = _databases()
    said: Exception = error.orig if databases and isinstance(error, databases.DBAPIError) else error
    return said


def _databases() -> ModuleType | None:
    """SQLAlchemy's errors, if a catalog has imported it: it is as slow to import as most of PyIceberg."""
    return sys.modules.get("sqlalchemy.exc")


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
