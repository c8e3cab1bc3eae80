"""Store and Load lines to rows.

The normal path of Stores is `rows_decoder`: a decoder made for one binding, whose elements have the types of its
columns. It decodes many lines in one call of msgspec. If the lines have other members beside the Store, it needs a
second call.

All other lines are decoded by a `LineDecoder`: Loads, and the Stores that the binding's decoder has refused. They may
be of any binding, and their elements stay JSON. It tries, one after the other:

1. `of_lines`: all lines in one call. This is the normal path of Loads.
2. `_of_masked`: the same with masks for halves of surrogate pairs, which msgspec refuses.
3. `of_line`: each line by itself, so that an error names its line. With masks too.
4. `_of_parts`: the members of one line, if msgspec refuses a value. Then only the field of this value is invalid.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter, ne
from threading import Lock
from types import GenericAlias
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np

from protocol.codec import REQUESTS, find_kind, message_name
from protocol.json_parts import MalformedJsonError, mask_surrogates, parse_items, parse_members, unmask_surrogates
from protocol.protocol_error import ProtocolError
from protocol.request import Request, Store

_Keys = TypeVar("_Keys")
_Values = TypeVar("_Values")


class KeyRow(msgspec.Struct, Generic[_Keys], frozen=True, rename="camel", gc=False):
    """A Load, or the part of a Store that says which row it is. The key is in the plain form, the packed form, or
    both."""

    binding: int | str | None = 0
    key: _Keys | None = None
    key_packed: bytes | None = None


class Row(KeyRow[_Keys], Generic[_Keys, _Values], frozen=True, rename="camel", gc=False):
    """A Store; its values have the forms that its key may have."""

    values: _Values | None = None
    values_packed: bytes | None = None
    doc: msgspec.Raw = msgspec.Raw()
    exists: bool | None = False  # the row was loaded in this transaction
    delete: bool | None = False  # the document is deleted


_NEWLINE: Final = b"\n"

LooseKeyRow: TypeAlias = KeyRow[list[msgspec.Raw]]
LooseRow: TypeAlias = Row[list[msgspec.Raw], list[msgspec.Raw]]
_AnyRow = TypeVar("_AnyRow", bound=KeyRow[Any])


def rows_decoder(keys: Sequence[Any], values: Sequence[Any]) -> Callable[[bytes], list[Row[Any, Any]]]:
    """Return a decoder of Store lines whose elements have these types. On another line the decoder raises msgspec's
    error, which does not name the line."""
    tuples = [("key", GenericAlias(tuple, tuple(keys))), ("values", GenericAlias(tuple, tuple(values)))]
    # Usual lines have no other member than the Store. That costs nothing to check, while fields for other messages do.
    alone: _Messages[Row[Any, Any]] = _Messages(Row, "store", tuples, forbid_unknown_fields=True)
    among_others: _Messages[Row[Any, Any]] = _Messages(Row, "store", tuples, bases=(_NO_OTHER_THAN_STORE,))

    def decode(lines: bytes) -> list[Row[Any, Any]]:
        try:
            return alone.of_lines(lines)
        except msgspec.ValidationError:
            return among_others.of_lines(lines)

    return decode


class _Messages(Generic[_AnyRow]):
    """Decodes lines with one message each, of one kind.

    If several members have one name, msgspec silently keeps only the last. So each row is noted when it is made, and
    the rows are counted. All rows are noted in one list, so one thread decodes at a time.
    """

    def __init__(self, row_type: type[_AnyRow], message: str, tuples: Sequence[tuple[str, Any]], **line: Any) -> None:
        """`tuples` are the types of the row's plain tuples, `line` are options of the line."""
        self._made: list[_AnyRow] = []
        self._lock = Lock()  # of the list
        fields = [(name, elements | None, None) for name, elements in tuples]
        noting = {"__post_init__": self._made.append}
        row = msgspec.defstruct(
            "Row", fields, bases=(row_type,), namespace=noting, frozen=True, rename="camel", gc=False
        )
        line_type: Any = msgspec.defstruct("_Line", [(message, row)], frozen=True, gc=False, **line)
        self._message = message
        self._decoder = msgspec.json.Decoder(line_type)

    def of_lines(self, lines: bytes) -> list[_AnyRow]:
        """Return one row for each line that is not blank. Raises msgspec's errors, which do not name the line."""
        return self._note(lambda: len(self._decoder.decode_lines(lines)))

    def of_line(self, line: bytes) -> _AnyRow:
        """Return the row of one line. Raises msgspec's errors."""
        [row] = self._note(lambda: len([self._decoder.decode(line)]))
        return row

    def _note(self, decode: Callable[[], int]) -> list[_AnyRow]:
        """Return the rows that are made while this decodes lines and returns their number."""
        with self._lock:
            self._made.clear()
            count = decode()
            rows = self._made.copy()
            self._made.clear()
        if len(rows) != count:
            raise msgspec.ValidationError(f"Object has several fields `{self._message}`")
        return rows


def _no_other(message: str) -> Any:
    """Return the base of lines that may have further members, but no other message than this one."""
    names = [(name, None, None) for name in REQUESTS if name != message]
    return msgspec.defstruct("_NoOtherMessage", names, frozen=True, kw_only=True, gc=False)


_NO_OTHER_THAN_STORE: Final = _no_other("store")


class LineDecoder(Generic[_AnyRow]):
    """Decodes lines with one message of a kind each: of any binding, with any elements, which stay JSON."""

    def __init__(self, row_type: type[_AnyRow], kind: type[Request]) -> None:
        self._kind, self._name = kind, message_name(kind)
        fields = row_type.__struct_fields__
        self._tuples = [name for name in fields if f"{name}_packed" in fields]
        self._raw = [*self._tuples, *({"doc"} & {*fields})]  # the fields that hold JSON of documents
        encoded = zip(fields, row_type.__struct_encode_fields__, strict=True)
        self._head = {member for name, member in encoded if name not in self._raw}
        types = [(name, list[msgspec.Raw]) for name in self._tuples]
        self._messages: _Messages[_AnyRow] = _Messages(row_type, self._name, types, bases=(_no_other(self._name),))

    def of_lines(self, lines: "Lines") -> Sequence[_AnyRow]:
        """Return the row of each line. Raises ProtocolError if a line is no such message."""
        rows: Sequence[_AnyRow]
        try:
            rows = self._messages.of_lines(lines.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            rows = self._of_masked(lines.each)
        if len(rows) != lines.count:
            return [self.of_line(line, lines.number(index)) for index, line in enumerate(lines.each)]
        if not any([] in map(attrgetter(name), rows) for name in self._tuples):
            return rows
        return [self._without_empty_tuples(row) for row in rows]

    def _of_masked(self, lines: Sequence[bytes]) -> Sequence[_AnyRow]:
        """Return the rows of lines with halves of surrogate pairs. There are none if msgspec refuses something else."""
        masked = mask_surrogates(_NEWLINE.join(lines))
        if masked is None:
            return []
        try:
            rows = self._messages.of_lines(masked)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return []
        if len(rows) != len(lines):
            return []
        changed = map(ne, lines, masked.split(_NEWLINE))
        return [self._unmask(row) if is_changed else row for row, is_changed in zip(rows, changed, strict=True)]

    def of_line(self, line: bytes, number: int) -> _AnyRow:
        """Return the row of one line. Raises ProtocolError if it is no such message."""
        try:
            return self._without_empty_tuples(self._of_line(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"line {number}: {self._complaint(line, error)}") from error

    def _of_line(self, line: bytes) -> _AnyRow:
        try:
            return self._messages.of_line(line)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, RecursionError) as refusal:
            if masked := self._of_masked([line]):
                [row] = masked
                return row
            try:
                return self._of_parts(line)
            except MalformedJsonError:
                raise refusal from None

    def _of_parts(self, line: bytes) -> _AnyRow:
        """Return the row of a line with a value that msgspec refuses: only the field of that value is invalid."""
        messages = [(name, value) for name, value in parse_members(line) if name in REQUESTS and value != b"null"]
        rows = [parse_members(value) for name, value in messages if name == self._name]
        heads = [(name, value) for row in rows for name, value in row if name in self._head]
        row = self._messages.of_line(
            _object([(name, _object(heads) if name == self._name else b"{}") for name, _ in messages])
        )
        parts = dict(rows[0])
        raw: dict[str, Any] = {name: _elements(parts.get(name, b"null")) for name in self._tuples}
        if "doc" in self._raw:
            raw["doc"] = msgspec.Raw(parts.get("doc", b""))
        return msgspec.structs.replace(row, **raw)

    def _unmask(self, row: _AnyRow) -> _AnyRow:
        tuples = {name: items for name in self._tuples if (items := getattr(row, name))}
        raw: dict[str, Any] = {name: [*map(_unmask, items)] for name, items in tuples.items()}
        if isinstance(row, Row):
            raw["doc"] = _unmask(row.doc)
        return msgspec.structs.replace(row, **raw)

    def _without_empty_tuples(self, row: _AnyRow) -> _AnyRow:
        """In proto3 JSON an empty list is the same as an absent one."""
        empty = [name for name in self._tuples if getattr(row, name) == [] and getattr(row, f"{name}_packed")]
        return msgspec.structs.replace(row, **dict.fromkeys(empty)) if empty else row

    def _complaint(self, line: bytes, refusal: Exception) -> str:
        try:
            kind = find_kind(line)
        except ProtocolError as error:
            return str(error)
        expected = f"expected a {self._kind.__name__}"
        return f"{expected}: {refusal}" if kind is self._kind else f"{expected}, got {message_name(kind)}"


def _unmask(value: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(unmask_surrogates(bytes(value)))


def _object(named: Sequence[tuple[str, bytes]]) -> bytes:
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), value) for name, value in named)


def _elements(array: bytes) -> list[msgspec.Raw] | None:
    return None if array == b"null" else [msgspec.Raw(item) for item in parse_items(array)]


_STORES: Final[LineDecoder[LooseRow]] = LineDecoder(Row, Store)


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

    def rows(self) -> Sequence[LooseRow]:
        """Return the row of each line. Raises ProtocolError if a line is no Store."""
        return _STORES.of_lines(self)

    def row(self, index: int) -> LooseRow:
        """Return the row of one line (from 0)."""
        return _STORES.of_line(self.each[index], self.number(index))


def binding_of(row: KeyRow[Any], number: int) -> int:
    """Return the index of the row's binding. Proto3 JSON may write a number as a string, and a zero as null or not at
    all."""
    try:
        return int(row.binding or 0)
    except ValueError as error:
        raise ProtocolError(f"line {number}: {row.binding!r} is not the index of a binding") from error
