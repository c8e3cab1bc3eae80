"""The key of a document, compared as the runtime packs keys: by type and value.

A key column may not tell which key a row has: `7` and `07` are the same long. The document of the row always tells.
"""

import json
from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connector.model.binding import KeyPart
from protocol.flow import Json, split_pointer
from protocol.json_parts import MalformedJsonError, mask_surrogates, parse_items, parse_members

Key: TypeAlias = tuple[Json, ...]

_INT_DIGITS: Final = 1000
_decode = msgspec.json.Decoder().decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode  # the quickest check


class MalformedDocumentError(Exception):
    """The text is not a JSON object."""


def parse_key(text: str) -> Key:
    """Return the elements of a key that is a JSON array, to be compared with `document_key`."""
    try:
        elements = _decode(text)
    except msgspec.DecodeError:  # half of a surrogate pair
        elements = _parse(text)
    return tuple(map(_comparable, elements))


def _parse(text: str | bytes) -> Json:
    """Parse what msgspec does not: half of a surrogate pair, and integers of any length."""
    return json.loads(text, parse_int=_parse_int)


def _parse_int(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _INT_DIGITS else Decimal(digits)  # Python's int() refuses long ones


def find_malformed(documents: pa.StringArray) -> list[int]:
    """Return the indexes of texts that are no JSON objects, and of nulls."""
    texts = documents.to_pylist()
    try:
        deque(map(_decode_raw, texts), maxlen=0)
        if pc.all(pc.starts_with(documents, "{"), min_count=0).as_py():
            return []
    except (msgspec.DecodeError, RecursionError, TypeError):  # a null is no text
        pass
    return [index for index, text in enumerate(texts) if text is None or not _is_object(text)]


def _is_object(document: str) -> bool:
    text = document.encode()
    try:
        _decode_raw(mask_surrogates(text) or text)
    except (msgspec.DecodeError, RecursionError):  # as for `document_key`
        try:
            parse_members(text)
        except MalformedJsonError:
            return False
    return document.lstrip().startswith("{")


def document_key(document: str, parts: Sequence[KeyPart]) -> Key:
    """Return the key of a document. Raises MalformedDocumentError."""
    try:
        root = _decode(document)
    except (msgspec.DecodeError, RecursionError):
        # Half of a surrogate pair, or nested too deeply for msgspec.
        return tuple(_comparable(_find_in_text(document, part)) for part in parts)
    if not isinstance(root, dict):
        raise MalformedDocumentError
    return tuple(_comparable(_find(root, part)) for part in parts)


def _comparable(value: Json) -> Json:
    """Python takes true for 1. The runtime does not, but it takes 7.0 for 7, as Python does."""
    return {"boolean": value} if isinstance(value, bool) else value


def _find(root: Json, part: KeyPart) -> Json:
    value = root
    for token in split_pointer(part.pointer):
        if isinstance(value, dict):
            if token not in value:
                return part.default
            value = value[token]
        else:
            index = _parse_index(token)
            if not isinstance(value, list) or index is None or index >= len(value):
                return part.default
            value = value[index]
    return value


def _parse_index(token: str) -> int | None:
    """Return the index that a pointer's token means in an array."""
    is_index = token.isascii() and token.isdecimal() and (token == "0" or token[0] != "0")
    return int(token) if is_index else None


def _find_in_text(document: str, part: KeyPart) -> Json:
    """Return the same as `_find`, but parse only the values on the way, one level after the other."""
    found = document.strip().encode()
    if not found.startswith(b"{"):
        raise MalformedDocumentError
    for token in split_pointer(part.pointer):
        value = _child(found, token)
        if value is None:
            return part.default
        found = value
    is_scalar = found[:1] not in (b"{", b"[")
    return _parse(found) if is_scalar else {}  # no key has an object


def _child(text: bytes, token: str) -> bytes | None:
    try:
        if text.startswith(b"{"):
            return dict(parse_members(text)).get(token)
        items, index = parse_items(text) if text.startswith(b"[") else [], _parse_index(token)
    except MalformedJsonError as error:
        raise MalformedDocumentError from error
    return items[index] if index is not None and index < len(items) else None
