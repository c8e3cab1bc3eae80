"""What the error of a catalog's client says about the commit that raised it."""

import sys
import zlib
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

from connector.host.errors import RetryableError
from connector.storage.aws_errors import is_refusal

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
