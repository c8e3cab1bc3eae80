"""Store lines to rows: by a decoder made for one binding, or loosely, line by line."""

from collections.abc import Callable, Sequence
from functools import cached_property
from types import GenericAlias
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np

from protocol.errors import ProtocolError

_Keys = TypeVar("_Keys")
_Values = TypeVar("_Values")


class Row(msgspec.Struct, Generic[_Keys, _Values], frozen=True, rename="camel", gc=False):
    """A Store; each of its halves is in the plain form, the packed form, or both."""

    binding: int | str | None = 0
    key: _Keys | None = None
    values: _Values | None = None
    key_packed: bytes | None = None
    values_packed: bytes | None = None
    doc: msgspec.Raw = msgspec.Raw()


class _Line(msgspec.Struct, Generic[_Keys, _Values], frozen=True, gc=False):
    store: Row[_Keys, _Values]


_NEWLINE: Final = b"\n"

LooseRow: TypeAlias = Row[list[msgspec.Raw], list[msgspec.Raw]]
_decode_loosely: Final = msgspec.json.Decoder(_Line[list[msgspec.Raw], list[msgspec.Raw]]).decode


def rows_decoder(keys: Sequence[Any], values: Sequence[Any]) -> Callable[[bytes], list[Row[Any, Any]]]:
    """A decoder of lines whose elements have these types. On any other line it raises msgspec's error, which does not
    say which line that is."""
    line_type: Any = _Line
    decoder = msgspec.json.Decoder(line_type[GenericAlias(tuple, tuple(keys)), GenericAlias(tuple, tuple(values))])
    return lambda lines: [line.store for line in decoder.decode_lines(lines)]


def loose_row(line: bytes, number: int) -> LooseRow:
    """A Store of any binding with any elements; ProtocolError if the line is none."""
    try:
        row = _decode_loosely(line).store
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"line {number}: expected a Store: {error}") from error
    # In proto3 JSON an empty list is the same as an absent one.
    if row.key == [] and row.key_packed:
        row = msgspec.structs.replace(row, key=None)
    if row.values == [] and row.values_packed:
        row = msgspec.structs.replace(row, values=None)
    return row


class Lines:
    """Whole lines. `number_of` gives the number in the input of the first (0), the second (1), …, for errors."""

    def __init__(self, content: bytes, number_of: Callable[[int], int]) -> None:
        self.content = content
        self.number = number_of

    @cached_property
    def count(self) -> int:
        return int(np.count_nonzero(np.frombuffer(self.content, np.uint8) == ord(_NEWLINE)))

    @cached_property
    def each(self) -> list[bytes]:
        """Without their newlines."""
        return self.content.removesuffix(_NEWLINE).split(_NEWLINE)

    def row(self, place: int) -> LooseRow:
        return loose_row(self.each[place], self.number(place))


def binding_of(row: Row[Any, Any], number: int) -> int:
    """Proto3 JSON may write a number as a string, and leave out or null a zero."""
    try:
        return int(row.binding or 0)
    except ValueError as error:
        raise ProtocolError(f"line {number}: {row.binding!r} is not the index of a binding") from error
