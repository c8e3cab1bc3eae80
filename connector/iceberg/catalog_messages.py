"""Texts that errors quote: a catalog's answer, and its address.

`catalogs` and `commits` do not know each other, and both quote answers.
"""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError

_PAGE: Final = ": Received unexpected JSON Payload"  # PyIceberg's words; the page follows them


class Message(NamedTuple):
    """A catalog's answer. `is_page` says whether a gateway's error page came instead of it."""

    text: str
    is_page: bool = False


def read_message(error: Exception) -> Message:
    """Return the catalog's answer from PyIceberg's error, without a gateway's error page."""
    if isinstance(error, ValidationError):
        return Message(_describe_mismatch(error))
    text, page, _ = str(error).partition(_PAGE)
    return Message(text, bool(page))


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
