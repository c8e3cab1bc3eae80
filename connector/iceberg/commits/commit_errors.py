"""Tells what an error of a catalog's client means for a commit, and makes the error that the task gets."""

import logging
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)

from connector.host import facts
from connector.host.errors import (
    BACKFILL,
    NEW_TABLE,
    CommitUnknownError,
    ConnectorError,
    FencedError,
    OlderTableError,
    RefusedKeysError,
    RetryableError,
    SignInError,
    UnfitCommitError,
    UserError,
)
from connector.host.facts import AttemptFailure, FailedAttempt
from connector.host.logs import Event, fields
from connector.host.redaction import redact_and_shorten
from connector.iceberg.catalog_messages import (
    DAMAGED_FILE,
    TableLockError,
    explain_unknown_type,
    read_message,
)
from connector.model.state import StagedCommit
from connector.model.table_identifier import TableIdentifier
from connector.storage.aws_errors import has_code, is_refusal, refuses_credentials

log = logging.getLogger(__name__)

_ADDED_LATER: Final = "the task adds those that the table does not have yet"
_STILL_STAGED: Final = "The new rows stay staged in the task's state."
_PUBLISH: Final = " and publish the task again. Otherwise start the task again."
_BACKFILL: Final = "Or backfill the binding: it drops these staged rows and reads the source again."

# Another writer has committed (HTTP status 409), or has dropped the table. The next attempt sees if the table is gone.
CONFLICTS: Final = (CommitFailedException, NoSuchTableError)
# ValueError: the metadata changed under PyIceberg's own checks, or there is a defect.
REFUSED: Final = (*CONFLICTS, ValueError)
# ValidationError, a ValueError too: the answer came from a gateway instead of a catalog, or was cut short.
# NotImplementedError: PyIceberg raises it for HTTP status 501.
_UNKNOWN: Final = (RESTError, OSError, BotoCoreError, ClientError, ValidationError, NotImplementedError)
_SIGN_IN_REFUSED: Final = (AuthorizationExpiredError, OAuthError, UnauthorizedError)
_FINAL: Final = (BadRequestError, ForbiddenError, *_SIGN_IN_REFUSED)  # the catalog would answer the same again
_UNPROCESSABLE: Final = 422  # the HTTP status of such an answer for which PyIceberg has no error of its own

# Servers in Java and Rust say this if the table's newest snapshot is dated more than a minute after now.
_OTHER_CLOCK: Final = "Invalid update timestamp"


def list_unknown_errors() -> tuple[type[Exception], ...]:
    """Return the errors after which the commit may be done or not."""
    return (*_UNKNOWN, databases.SQLAlchemyError) if (databases := _databases()) else _UNKNOWN


def list_retried_errors() -> tuple[type[Exception], ...]:
    """Return the errors after which the table is loaded again, to see what is left to commit."""
    return (*REFUSED, *list_unknown_errors(), RetryableError, OlderTableError)


def is_final(error: Exception) -> bool:
    """Whether the catalog would answer the same again."""
    if isinstance(error, ClientError):
        return is_refusal(error)
    return isinstance(error, _FINAL) or _read_status(error) == _UNPROCESSABLE


def _read_status(error: Exception) -> int | None:
    """Return the HTTP status of a REST catalog's answer, from which PyIceberg has made the error."""
    response = getattr(error.__cause__, "response", None)
    return response.status_code if isinstance(error, RESTError) and response is not None else None


def classify(error: Exception) -> AttemptFailure:
    """Return why an attempt to commit has failed, for metrics."""
    if isinstance(error, list_unknown_errors()):
        return AttemptFailure.UNKNOWN
    return AttemptFailure.CONFLICT if isinstance(error, CommitFailedException) else AttemptFailure.REFUSED


def _unwrap(error: Exception) -> Exception:
    """Return the error of the catalog itself. A database's error comes without the SQL statement."""
    databases = _databases()
    said: Exception = error.orig if databases and isinstance(error, databases.DBAPIError) else error
    return said


def _databases() -> ModuleType | None:
    """Return SQLAlchemy's errors if a catalog has imported it. To import it takes as long as most of PyIceberg."""
    return sys.modules.get("sqlalchemy.exc")


def explain_refusal(
    path: TableIdentifier,
    error: Exception,
    name: str = "the commit",
    left: str = _STILL_STAGED,
    renewal: str = _PUBLISH,
    permission: str = "change",
) -> ConnectorError:
    """Return the error of a commit that the catalog would refuse again. `left` says what became of its files or of the
    table, `renewal` what follows new credentials, and `permission` what the catalog has to allow."""
    if isinstance(error, _SIGN_IN_REFUSED) or refuses_credentials(error):
        kind = RefusedKeysError if refuses_credentials(error) else SignInError
        return kind(
            f"table {path}: the catalog does not accept the sign-in any more ({quote(error)}). {left} The "
            "token or the credential has expired or was revoked. If it is in the config (/catalog/token, "
            f"/catalog/credential, /catalog/service_account_json or /credentials), set a new one there{renewal}"
        )
    if isinstance(error, ForbiddenError) or has_code("AccessDeniedException")(error):
        return UserError(
            f"table {path}: the catalog forbids {name} ({quote(error)}). {left} Give the user of the "
            f"config's credentials the permission to {permission} this table."
        )
    if _OTHER_CLOCK in str(error):
        return UserError(
            f"table {path}: the catalog refuses {name} ({quote(error)}). {left} The clocks of this machine and of the "
            "catalog's server probably differ by more than a minute: set both, and start again. If they are right, "
            "another machine has dated a snapshot of this table in the future: wait until that time."
        )
    return UserError(
        f"table {path}: the catalog refuses {name} ({quote(error)}). {left} Correct what the catalog's "
        "answer names: in the config, in the table, or in the permissions of the config's credentials."
    )


def explain_broken_metadata(
    path: TableIdentifier, error: Exception, left: str = "The new rows stay staged in the task's state"
) -> ConnectorError:
    """Return the error of a table whose metadata PyIceberg cannot read. It may be repaired, so it is retryable. `left`
    says what became of the transaction."""
    if reason := explain_unknown_type(error):
        return RetryableError(f"table {path} {reason} {left}.")
    way_out = NEW_TABLE if DAMAGED_FILE in str(error) else BACKFILL
    return RetryableError(
        f"table {path}: its metadata cannot be read ({type(error).__name__}: {quote(error)}). {left}: repair the "
        f"table, or {way_out}."
    )


def explain_last_attempt(path: TableIdentifier, last: Exception, seconds: float) -> ConnectorError:
    """Return the error of a commit after several attempts in so many seconds. `last` is the error of the last one."""
    if isinstance(last, RetryableError | OlderTableError):
        return last
    if isinstance(last, TableLockError):
        return RetryableError(f"table {path}: not committed for {seconds:.0f} s, because {last} {_STILL_STAGED}")
    if isinstance(last, CONFLICTS):
        return RetryableError(
            f"table {path}: other writers committed first for {seconds:.0f} s ({quote(last)}). {_STILL_STAGED} Let "
            "the other writers commit less often."
        )
    if isinstance(last, ValueError) and not isinstance(last, list_unknown_errors()):
        return RetryableError(
            f"table {path}: the commit could not be made for {seconds:.0f} s ({type(last).__name__}: {quote(last)}). "
            f"{_STILL_STAGED} This is a defect of the connector or of a library that it uses: report it."
        )
    return CommitUnknownError(
        f"table {path}: the catalog gave no answer for {seconds:.0f} s ({type(last).__name__}: {quote(last)}). "
        "The new rows stay staged in the task's state until it answers. Check the catalog."
    )


def quote(error: Exception) -> str:
    """Return the catalog's own words, redacted and shortened."""
    words, _ = read_message(_unwrap(error))
    return redact_and_shorten(words)


def explain_missing_table(staged: Sequence[StagedCommit]) -> UnfitCommitError:
    """Return the error of commits that were staged for a table whose name does not exist any more."""
    return UnfitCommitError(
        f"table {staged[0].path} is gone, and {_describe(staged)}. To keep these rows, bring the table back "
        f"under its name: {_ADDED_LATER}. {_BACKFILL}"
    )


def explain_replaced_table(staged: Sequence[StagedCommit], uuid: str) -> UnfitCommitError:
    """Return the error of commits that were staged for a table whose name another table has now, with this uuid."""
    name = staged[0].path
    return UnfitCommitError(
        f"table {name} is another table now (uuid {uuid}), and {_describe(staged)}. To keep these rows, first rename "
        f"or drop the table that is named {name} now, then bring the old table back under this name: {_ADDED_LATER}. "
        f"{_BACKFILL}"
    )


def explain_older_copy(staged: Sequence[StagedCommit]) -> UnfitCommitError | FencedError:
    """Return the error of commits that were staged after a backfill of their table, but for the table as it was before.
    FencedError if this process staged any of them: so it would stage all others."""
    kind = UnfitCommitError if all(commit.is_recovered for commit in staged) else FencedError
    return kind(
        f"table {staged[0].path}: a session of the task began after the last backfill of the table (state key "
        f"{staged[0].writer.state_key}), but the catalog answered it with the table as it was before, from a replica "
        f"or a cache. So {_describe(staged)}, and these rows cannot be added. Backfill the binding again: it drops "
        "them and reads the source again. Let the catalog answer with what was committed last, and not from a replica "
        "or a cache."
    )


def _describe(staged: Sequence[StagedCommit]) -> str:
    rows = sum(commit.rows for commit in staged)
    return f"the task's state names {rows} rows that are staged for the old table (uuid {staged[0].table_uuid})"


def report_retry(path: TableIdentifier, attempt: int, error: Exception) -> None:
    """Log that an attempt has failed and is followed by another, and report it to the metrics."""
    log.warning(
        "table %s: commit attempt %d: %s: %s",
        path,
        attempt,
        type(error).__name__,
        quote(error),
        extra=fields(Event.RETRIED, table=str(path), attempt=attempt),
    )
    facts.report(FailedAttempt(str(path), classify(error)))
