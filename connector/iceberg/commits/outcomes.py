"""What an error of a catalog's client says of the commit that it was raised for."""

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

from connector.errors import RetryableError
from connector.iceberg.files.aws_errors import is_refusal

# ValueError: the metadata moved under PyIceberg's own checks. A table that is gone is told by the next look.
REFUSED: Final = (CommitFailedException, NoSuchTableError, ValueError)
# ValidationError, a ValueError too: the answer was no catalog's, but a gateway's, or was cut short.
_UNKNOWN: Final = (RESTError, OSError, BotoCoreError, ClientError, ValidationError)
# What the readers of metadata make of files that are cut short or are something else, and of parts that are missing.
BROKEN: Final = (InvalidMetadataError, EOFError, KeyError, zlib.error)
_HOPELESS: Final = (BadRequestError, ForbiddenError, UnauthorizedError)


def unknown() -> tuple[type[Exception], ...]:
    """Those after which nobody knows whether the commit has landed."""
    return (*_UNKNOWN, databases.SQLAlchemyError) if (databases := _databases()) else _UNKNOWN


def worth_another_look() -> tuple[type[Exception], ...]:
    """Those after which the table says whether there is anything left to commit."""
    return (*REFUSED, *unknown(), RetryableError)


def is_hopeless(error: Exception) -> bool:
    """Whether the catalog will answer the same again."""
    return is_refusal(error) if isinstance(error, ClientError) else isinstance(error, _HOPELESS)


def answer(error: Exception) -> Exception:
    """What the catalog itself has said: a database, without the statement that it said it of."""
    databases = _databases()
    said: Exception = error.orig if databases and isinstance(error, databases.DBAPIError) else error
    return said


def _databases() -> ModuleType | None:
    """SQLAlchemy's errors. It takes as long to import as most of PyIceberg, and what no catalog has imported raises nothing."""
    return sys.modules.get("sqlalchemy.exc")
