"""What a catalog has said, of an error that PyIceberg has made of it."""

from typing import Final

_PAGE: Final = ": Received unexpected JSON Payload"  # follows, in PyIceberg's words


def said(error: Exception) -> tuple[str, bool]:
    """Without a gateway's page; and whether there was one in the place of a catalog's answer."""
    words, page, _ = str(error).partition(_PAGE)
    return words, bool(page)
