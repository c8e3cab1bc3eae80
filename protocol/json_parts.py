"""Splits a JSON object into its members, and an array into its items. The text of each value stays unchanged.

This is for texts that msgspec cannot split. msgspec refuses a text with half of a surrogate pair (`"\\ud800"`, which
JSON allows) or values that are nested a thousand deep. Of two members with the same name it keeps only the last one.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

_STRING: Final = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_SPACE: Final = rb"[ \t\r\n]*+"
_OPENING: Final = rb"[\[{]"
_MASK: Final = b"\x7f"  # DEL, a control character that strings may have
_SURROGATE: Final = rb"\\(u[dD][89a-fA-F][0-9a-fA-F]{2})"
_SCALAR: Final = _STRING + rb"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null"
_VALUE_TEXT: Final = _SCALAR + rb"|" + _OPENING
_NAME_TEXT: Final = _STRING + _SPACE + rb":"


class _Tokens:
    """What may come next. The keys are the brackets that open the object or the array."""

    def __init__(self) -> None:
        self.value = _compile(_VALUE_TEXT)
        self.end = _compile(rb"\Z")
        self.after_opening = {b"{": _compile(_NAME_TEXT + rb"|\}"), b"[": _compile(_VALUE_TEXT + rb"|\]")}
        self.after_value = {b"{": _compile(rb"[,}]"), b"[": _compile(rb"[,\]]")}
        self.after_comma = {b"{": _compile(_NAME_TEXT), b"[": self.value}
        self.surrogate = re.compile(_SURROGATE)


_tokens = cache(_Tokens)  # few processes need it, and compiling takes a part of the time of `spec`


def _compile(token: bytes) -> re.Pattern[bytes]:
    return re.compile(_SPACE + rb"(" + token + rb")")


class MalformedJsonError(Exception):
    """The text is not JSON, or it is not the expected object or array."""


def mask_surrogates(text: bytes) -> bytes | None:
    """Return JSON text in which escape sequences of surrogates are plain characters, so that msgspec decodes it. That
    is far faster than to split the text. None if the text has the character DEL.

    DEL takes the place of their backslashes. It also takes the place of escaped backslashes: in `"\\\\ud800"`, the
    second one begins no escape sequence.
    """
    if _MASK in text:
        return None
    return _tokens().surrogate.sub(_MASK + rb"\1", text.replace(rb"\\", 2 * _MASK))


def unmask_surrogates(part: bytes) -> bytes:
    """Return the original of a part of a masked text."""
    return part.replace(_MASK, b"\\")


def parse_members(text: bytes) -> list[tuple[str, bytes]]:
    """Return the names and values of an object in their order, including equal names. A name that is not valid UTF-8
    gets replacement characters. Raises MalformedJsonError."""
    parts = _split(text, b"{")
    return [(json.loads(name.decode(errors="replace")), value) for name, value in parts]


def parse_items(text: bytes) -> list[bytes]:
    """Return the items of an array. Raises MalformedJsonError."""
    return [value for _, value in _split(text, b"[")]


def _split(text: bytes, opening: bytes) -> list[tuple[bytes, bytes]]:
    """Return the values of the outermost object or array. A value of an object has its name with it."""
    if not text.lstrip().startswith(opening):
        raise MalformedJsonError
    parts, name, first = [], b"", 0
    for depth, begin, end in _read_tokens(text):
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


def _read_tokens(text: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield each token: how many brackets are open around it, where it begins, and where it ends. A name and its colon
    are one token.

    This is a loop without recursion, so any depth of nesting can be read.
    """
    tokens = _tokens()
    opened: list[bytes] = []
    expected, at = tokens.value, 0
    while token := expected.match(text, at):
        begin, at = token.span(1)
        if expected is tokens.end:
            return
        last = text[at - 1 : at]
        if last in (b"}", b"]"):
            opened.pop()
        yield len(opened), begin, at
        match last:
            case b"{" | b"[":
                opened.append(last)
                expected = tokens.after_opening[last]
            case b",":
                expected = tokens.after_comma[opened[-1]]
            case b":":
                expected = tokens.value
            case _:
                expected = tokens.after_value[opened[-1]] if opened else tokens.end
    raise MalformedJsonError
