"""Structs in Thrift's compact protocol, in which Parquet files keep their metadata.

A struct is read without knowledge of its fields, so what a later version of Parquet adds is kept. Only the types that
Parquet's metadata has are known: no maps, no sets.
"""

from io import BytesIO
from typing import Any, Final, TypeAlias

Struct: TypeAlias = dict[int, tuple[int, Any]]  # by a field's id: its type and value

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9  # the value is the type of the elements, and the elements
STRUCT: Final = 12

_INTEGERS: Final = (I16, I32, I64)
_SIZES: Final = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8}  # bytes; booleans have one in lists
_LONG_LIST: Final = 15  # elements: from here on, the number follows the header
_LARGEST_STEP: Final = 15  # from one field's id to the next


def read_struct(source: BytesIO) -> Struct:
    """Read the struct that begins here. What follows it is not read."""
    struct: Struct = {}
    number = 0
    while header := source.read(1)[0]:
        step, kind = header >> 4, header & 0xF
        number = number + step if step else _read_zigzag(source)
        # The type of a field that is a boolean is its value.
        struct[number] = (kind, None if kind in (TRUE, FALSE) else _read_value(source, kind))
    return struct


def write_struct(struct: Struct) -> bytes:
    """Return the bytes of a struct."""
    written = bytearray()
    _write_struct(written, struct)
    return bytes(written)


def _read_value(source: BytesIO, kind: int) -> Any:
    if kind in _INTEGERS:
        return _read_zigzag(source)
    if kind in _SIZES:
        return source.read(_SIZES[kind])
    if kind == BINARY:
        return source.read(read_varint(source))
    if kind == LIST:
        return _read_list(source)
    if kind == STRUCT:
        return read_struct(source)
    raise ValueError(f"Parquet's metadata has no values of Thrift's type {kind}")


def _read_list(source: BytesIO) -> tuple[int, list[Any]]:
    header = source.read(1)[0]
    count, kind = header >> 4, header & 0xF
    if count == _LONG_LIST:
        count = read_varint(source)
    return kind, [_read_value(source, kind) for _ in range(count)]


def _write_struct(written: bytearray, struct: Struct) -> None:
    last = 0
    for number, (kind, value) in sorted(struct.items()):
        step = number - last
        if 0 < step <= _LARGEST_STEP:
            written.append(step << 4 | kind)
        else:
            written.append(kind)
            _write_zigzag(written, number)
        last = number
        if kind not in (TRUE, FALSE):
            _write_value(written, kind, value)
    written.append(0)


def _write_value(written: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_zigzag(written, value)
    elif kind in _SIZES:
        written += value
    elif kind == BINARY:
        _write_varint(written, len(value))
        written += value
    elif kind == LIST:
        _write_list(written, *value)
    else:
        _write_struct(written, value)


def _write_list(written: bytearray, kind: int, elements: list[Any]) -> None:
    count = len(elements)
    written.append(min(count, _LONG_LIST) << 4 | kind)
    if count >= _LONG_LIST:
        _write_varint(written, count)
    for element in elements:
        _write_value(written, kind, element)


def read_varint(source: BytesIO) -> int:
    """Read a number without a sign. It has as many bytes as it needs."""
    number, shift = 0, 0
    while True:
        byte = source.read(1)[0]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7


def _read_zigzag(source: BytesIO) -> int:
    number = read_varint(source)
    return number >> 1 ^ -(number & 1)


def _write_varint(written: bytearray, number: int) -> None:
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)


def _write_zigzag(written: bytearray, number: int) -> None:
    _write_varint(written, number << 1 ^ number >> 63)
