"""What a catalog has answered, out of the error that PyIceberg has made of it."""

from typing import Final

_PAGE: Final = ": Received unexpected JSON Payload"  # follows, in PyIceberg's words


def said(error: Exception) -> tuple[str, bool]:
    """The answer without a gateway's error page, and whether there was such a page instead of a catalog's answer."""
    words, page, _ = str(error).partition(_PAGE)
    return words, bool(page)
