"""The members of a JSON object and the items of an array, each as it was written.

This is for texts that msgspec cannot take apart. It refuses half of a surrogate pair (`"\\ud800"`, which JSON allows)
and what is nested a thousand deep, wherever that stands. And of two members of one name it keeps the last one only.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

_STRING: Final = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_SPACE: Final = rb"[ \t\r\n]*+"
_OPENING: Final = rb"[\[{]"
_SCALAR: Final = _STRING + rb"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null"
_VALUE_TEXT: Final = _SCALAR + rb"|" + _OPENING
_NAME_TEXT: Final = _STRING + _SPACE + rb":"


def _expecting(token: bytes) -> re.Pattern[bytes]:
    return re.compile(_SPACE + rb"(" + token + rb")")


_VALUE: Final = _expecting(_VALUE_TEXT)
_END: Final = _expecting(rb"\Z")
# What may follow, by the bracket that opens the object or the array.
_AFTER_OPENING: Final = {b"{": _expecting(_NAME_TEXT + rb"|\}"), b"[": _expecting(_VALUE_TEXT + rb"|\]")}
_AFTER_VALUE: Final = {b"{": _expecting(rb"[,}]"), b"[": _expecting(rb"[,\]]")}
_AFTER_COMMA: Final = {b"{": _expecting(_NAME_TEXT), b"[": _VALUE}


class MalformedJsonError(Exception):
    """The text is not JSON, or not an object or an array as expected."""


def members(text: bytes) -> list[tuple[str, bytes]]:
    """Return the names and values of an object in their order, equal names included. A name that is not UTF-8 has
    replacement characters. Raises MalformedJsonError."""
    parts = _parts(text, b"{")
    return [(json.loads(name.decode(errors="replace")), value) for name, value in parts]


def items(text: bytes) -> list[bytes]:
    """Return the items of an array. Raises MalformedJsonError."""
    return [value for _, value in _parts(text, b"[")]


def _parts(text: bytes, opening: bytes) -> list[tuple[bytes, bytes]]:
    """The outermost values, with their names where they are an object's."""
    if not text.lstrip().startswith(opening):
        raise MalformedJsonError
    parts, name, first = [], b"", 0
    for depth, begin, end in _tokens(text):
        if depth == 1:
            match text[end - 1 : end]:
                case b":":
                    name = text[begin : end - 1].rstrip()
                case b"{" | b"[":
                    first = begin
                case b"}" | b"]":
                    parts.append((name, text[first:end]))
                case b",":
                    pass
                case _:
                    parts.append((name, text[begin:end]))
    return parts


def _tokens(text: bytes) -> Iterator[tuple[int, int, int]]:
    """How many brackets are open around each token, and where it begins and ends. A name and its colon are one token.

    Nothing here is recursive, so that it reads any depth.
    """
    opened: list[bytes] = []
    expected, at = _VALUE, 0
    while token := expected.match(text, at):
        begin, at = token.span(1)
        if expected is _END:
            return
        last = text[at - 1 : at]
        if last in (b"}", b"]"):
            opened.pop()
        yield len(opened), begin, at
        match last:
            case b"{" | b"[":
                opened.append(last)
                expected = _AFTER_OPENING[last]
            case b",":
                expected = _AFTER_COMMA[opened[-1]]
            case b":":
                expected = _VALUE
            case _:
                expected = _AFTER_VALUE[opened[-1]] if opened else _END
    raise MalformedJsonError
