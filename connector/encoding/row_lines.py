"""Store lines to rows: by a decoder made for one binding, or loosely, line by line."""

from collections.abc import Callable, Sequence
from functools import cached_property
from types import GenericAlias
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np

from protocol.codec import REQUESTS, find_kind, message_name
from protocol.json_parts import MalformedJsonError, parse_items, parse_members
from protocol.protocol_error import ProtocolError
from protocol.request import Store

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


_NEWLINE: Final = b"\n"
_HEAD: Final = ("binding", "keyPacked", "valuesPacked")  # all but the fields that hold JSON of documents

LooseRow: TypeAlias = Row[list[msgspec.Raw], list[msgspec.Raw]]


class _Stores:
    """Decodes lines with one Store each.

    msgspec keeps the last of two members of one name and drops the others without a word. So each Row is noted when it
    is made, and the Rows are counted.
    """

    def __init__(self, keys: Any, values: Any, **line_options: Any) -> None:
        self._made: list[Row[Any, Any]] = []
        halves = [("key", keys | None, None), ("values", values | None, None)]
        noting = {"__post_init__": self._made.append}
        row = msgspec.defstruct("Row", halves, bases=(Row,), namespace=noting, frozen=True, rename="camel", gc=False)
        line: Any = msgspec.defstruct("_Line", [("store", row)], frozen=True, gc=False, **line_options)
        self._decoder = msgspec.json.Decoder(line)

    def of_lines(self, lines: bytes) -> list[Row[Any, Any]]:
        """Return one row for each line that is not blank. Raises msgspec's errors, which do not name the line."""
        self._made.clear()
        count = len(self._decoder.decode_lines(lines))
        return self._noted(count)

    def of_line(self, line: bytes) -> Row[Any, Any]:
        """Return the row of one line. Raises msgspec's errors."""
        self._made.clear()
        self._decoder.decode(line)
        [row] = self._noted(1)
        return row

    def _noted(self, count: int) -> list[Row[Any, Any]]:
        rows = self._made.copy()
        self._made.clear()
        if len(rows) != count:
            raise msgspec.ValidationError("Object has several fields `store`")
        return rows


_NO_OTHER: Final = msgspec.defstruct(
    "_NoOtherMessage", [(name, None, None) for name in REQUESTS if name != "store"], frozen=True, kw_only=True, gc=False
)
# A line may have further members, but no other message.
_LOOSE: Final = _Stores(list[msgspec.Raw], list[msgspec.Raw], bases=(_NO_OTHER,))


def rows_decoder(keys: Sequence[Any], values: Sequence[Any]) -> Callable[[bytes], list[Row[Any, Any]]]:
    """Return a decoder of lines whose elements have these types. On another line the decoder raises msgspec's error,
    which does not name the line."""
    halves = GenericAlias(tuple, tuple(keys)), GenericAlias(tuple, tuple(values))
    # Usual lines have no other member than the Store. That costs nothing to check, while fields for other messages do.
    alone, among_others = _Stores(*halves, forbid_unknown_fields=True), _Stores(*halves, bases=(_NO_OTHER,))

    def decode(lines: bytes) -> list[Row[Any, Any]]:
        try:
            return alone.of_lines(lines)
        except msgspec.ValidationError:
            return among_others.of_lines(lines)

    return decode


def loose_row(line: bytes, number: int) -> LooseRow:
    """Return the row of a Store of any binding, with any elements. Raises ProtocolError if the line is no Store."""
    try:
        row = _loose_row(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"line {number}: {_complaint(line, error)}") from error
    # In proto3 JSON an empty list is the same as an absent one.
    if row.key == [] and row.key_packed:
        row = msgspec.structs.replace(row, key=None)
    if row.values == [] and row.values_packed:
        row = msgspec.structs.replace(row, values=None)
    return row


def _complaint(line: bytes, refusal: Exception) -> str:
    try:
        kind = find_kind(line)
    except ProtocolError as error:
        return str(error)
    return f"expected a Store: {refusal}" if kind is Store else f"expected a Store, got {message_name(kind)}"


def _loose_row(line: bytes) -> LooseRow:
    try:
        return _LOOSE.of_line(line)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError) as refusal:
        try:
            return _row_of_parts(line)
        except MalformedJsonError:
            raise refusal from None


def _row_of_parts(line: bytes) -> LooseRow:
    """Return the row of a line with a value that msgspec refuses: only the field of that value is invalid."""
    messages = [(name, value) for name, value in parse_members(line) if name in REQUESTS and value != b"null"]
    stores = [parse_members(value) for name, value in messages if name == "store"]
    heads = [(name, value) for store in stores for name, value in store if name in _HEAD]
    row = _LOOSE.of_line(_object([(name, _object(heads) if name == "store" else b"{}") for name, _ in messages]))
    store = dict(stores[0])
    plain = {half: _elements(store.get(half, b"null")) for half in ("key", "values")}
    return msgspec.structs.replace(row, **plain, doc=msgspec.Raw(store.get("doc", b"")))


def _object(named: Sequence[tuple[str, bytes]]) -> bytes:
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), value) for name, value in named)


def _elements(array: bytes) -> list[msgspec.Raw] | None:
    return None if array == b"null" else [msgspec.Raw(item) for item in parse_items(array)]


class Lines:
    """Whole lines. `number_of` gives the number in the input of the first (0), the second (1), …, for errors."""

    def __init__(self, content: bytes, number_of: Callable[[int], int]) -> None:
        self.content = content
        self.number = number_of

    @cached_property
    def count(self) -> int:
        """The number of lines."""
        return int(np.count_nonzero(np.frombuffer(self.content, np.uint8) == ord(_NEWLINE)))

    @cached_property
    def each(self) -> list[bytes]:
        """The lines without their newlines."""
        return self.content.removesuffix(_NEWLINE).split(_NEWLINE)

    def row(self, place: int) -> LooseRow:
        """Return the row of one line (from 0)."""
        return loose_row(self.each[place], self.number(place))


def binding_of(row: Row[Any, Any], number: int) -> int:
    """Return the index of the row's binding. Proto3 JSON may write a number as a string, and a zero as null or not at
    all."""
    try:
        return int(row.binding or 0)
    except ValueError as error:
        raise ProtocolError(f"line {number}: {row.binding!r} is not the index of a binding") from error
