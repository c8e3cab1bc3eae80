"""What a catalog has answered, out of the error that PyIceberg has made of it."""

from typing import Final

from pydantic import ValidationError

_PAGE: Final = ": Received unexpected JSON Payload"  # follows, in PyIceberg's words


def read_message(error: Exception) -> tuple[str, bool]:
    """The answer without a gateway's error page, and whether there was such a page instead of a catalog's answer."""
    if isinstance(error, ValidationError):
        return _describe_mismatch(error), False
    words, page, _ = str(error).partition(_PAGE)
    return words, bool(page)


def _describe_mismatch(error: ValidationError) -> str:
    """What does not fit in an answer. Its own text quotes the answer, which may hand out keys that nobody knows yet."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in found)
