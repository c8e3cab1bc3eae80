"""Texts that errors quote: a catalog's answer, and its address.

`catalogs` and `commits` do not know each other, and both quote answers.
"""

import json
import re
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError
from pyiceberg.exceptions import CommitFailedException

from connector.host.errors import UserError
from connector.model.table_identifier import TableIdentifier

# PyIceberg's words. The page follows these.
_PAGE: Final = ": Received unexpected JSON Payload: "
_STATUS: Final = "RESTError"
_NO_BODY: Final = ": RestError: "
DAMAGED_FILE: Final = "its metadata file is damaged"  # of an error that catalogs raise
_UNKNOWN_TYPE: Final = re.compile("(?:Unsupported field type: '|Type not recognized: )([^' ]{1,100})")
_UNKNOWN_DEFAULT: Final = re.compile("Cannot deserialize bytes, type (.{1,100}?) not supported: ")


class TableLockError(CommitFailedException):
    """Another process holds the catalog's lock of a table. The text says who, since when, and what to do."""


class Message(NamedTuple):
    """A catalog's answer. `is_page` says whether a gateway's answer came instead of it."""

    text: str
    is_page: bool = False


def explain_dropped_table(path: TableIdentifier) -> UserError:
    """Return the error of a session that does not find a table that it had found before."""
    return UserError(
        f"table {path} was dropped or renamed while the task was running. Bring it back under its name, or backfill "
        "the binding, which starts with a new table."
    )


def explain_gone_table(path: TableIdentifier) -> UserError:
    """Return the error of maintenance that does not find a table that it had found before."""
    return UserError(
        f"table {path}: it was dropped or renamed meanwhile. If it has another name now, repeat the command for that "
        "name."
    )


def explain_unknown_type(error: Exception) -> str:
    """Return what to do about a table that PyIceberg cannot read because of the type of a column, or of its default
    value. Empty if the error has another cause."""
    if unknown := _UNKNOWN_TYPE.search(str(error)):
        column = unknown[1]
    elif unknown := _UNKNOWN_DEFAULT.search(str(error)):
        column = f"{unknown[1]} with a default value"
    else:
        return ""
    return (
        f"has, or had, a column of type {column}, so PyIceberg, which the connector uses, cannot read its "
        "metadata. Another engine has added the column. Drop it, and expire all snapshots and schemas that have it (in "
        "Spark: CALL system.expire_snapshots with clean_expired_metadata => true). Nothing else is wrong with the "
        "table."
    )


def make_page_text(status: int, page: str) -> str:
    """Return PyIceberg's text of an answer that is no catalog's."""
    return f"{_STATUS} {status}{_PAGE}{page}"


def read_message(error: Exception) -> Message:
    """Return the catalog's answer from PyIceberg's error. Of an answer without a text, such as every answer to a HEAD,
    the status and the request are returned. Of a gateway's answer, only the status and the message of a JSON object are
    returned: AWS answers so."""
    if isinstance(error, ValidationError):
        return Message(_describe_mismatch(error))
    text, separator, page = str(error).partition(_PAGE)
    if not separator:
        return Message(_describe_request(error) if _NO_BODY in text else text)
    status = text.replace(_STATUS, "HTTP status", 1)
    return Message(": ".join(filter(None, (status, _read_gateway_message(page)))), is_page=True)


def _describe_request(error: Exception) -> str:
    """Return the status of an answer without a text, and what was asked for."""
    response: Any = getattr(error.__cause__, "response", None)
    if response is None:
        return str(error)
    return f"HTTP status {response.status_code} for {response.request.method} {urlsplit(response.request.url).path}"


def _read_gateway_message(page: str) -> str:
    try:
        answer, _ = json.JSONDecoder().raw_decode(page)
    except ValueError:
        return ""
    message = answer.get("message") if isinstance(answer, dict) else None
    return message if isinstance(message, str) else ""


def _describe_mismatch(error: ValidationError) -> str:
    """Return what does not fit in an answer. The error's own text quotes the answer, which may have credentials that
    are not yet known as secrets."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in found)


def first_line(text: str) -> str:
    """Return the first line of an answer, without its full stop."""
    return (text.strip().splitlines() or ["it gives no reason"])[0].rstrip(".")


def read_address(uri: str) -> str:
    """Return a catalog's URI without the parts that may be secret."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
