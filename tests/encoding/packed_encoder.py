"""FoundationDB's tuple encoding, element by element, as the released Flow runtime packs keys and values."""

import struct
from typing import Any

import orjson


def pack(*elements: Any) -> bytes:
    return b"".join(map(_element, elements))


def _element(value: Any) -> bytes:
    match value:
        case None:
            return b"\x00"
        case bool():
            return b"\x27" if value else b"\x26"
        case int():
            return _integer(value)
        case float():
            return b"\x21" + _double(value)
        case str():
            return b"\x02" + _escaped(value.encode())
        case _:
            return b"\x01" + _escaped(orjson.dumps(value))


def _escaped(content: bytes) -> bytes:
    return content.replace(b"\x00", b"\x00\xff") + b"\x00"


def _integer(value: int) -> bytes:
    size = (abs(value).bit_length() + 7) // 8
    content = (value if value >= 0 else value + 256**size - 1).to_bytes(size, "big")
    if size <= 8:
        return bytes([0x14 + size if value >= 0 else 0x14 - size]) + content
    return (bytes([0x1D, size]) if value > 0 else bytes([0x0B, 0xFF - size])) + content


def _double(value: float) -> bytes:
    content = struct.pack(">d", value)
    if content[0] & 0x80:
        return bytes(byte ^ 0xFF for byte in content)
    return bytes([content[0] ^ 0x80]) + content[1:]
