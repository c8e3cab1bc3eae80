"""Corrections of how PyIceberg reads and writes values, for the whole process.

A module that relies on one calls `apply_patches` when it is imported. docs/pyiceberg.md says when they can go.
"""

import struct
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from pyiceberg.avro.codecs.snappy_codec import SnappyCodec
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.conversions import from_json, to_bytes, to_json
from pyiceberg.types import DecimalType, TimestampNanoType, TimestamptzNanoType
from pyiceberg.utils.datetime import timestamp_to_nanos, timestamptz_to_nanos, to_human_timestamp
from pyiceberg.utils.decimal import decimal_to_bytes

_DOUBLE: Final = struct.Struct("<d")
_SECOND: Final = 1_000_000_000  # nanoseconds


def apply_patches() -> None:
    """Let PyIceberg read doubles of manifests as they are, and manifests that are compressed with Snappy, write
    decimals of partitions whatever they are, and know defaults with nanoseconds. To repeat it changes nothing."""
    DoubleReader.read = _read_double  # type: ignore[assignment, method-assign]
    SnappyCodec.decompress = staticmethod(_decompress_snappy)  # type: ignore[assignment, method-assign]
    to_bytes.register(DecimalType, _write_decimal)
    read: Any = from_json  # PyIceberg has no type for what they return
    write: Any = to_json
    read.register(TimestampNanoType, lambda _, value: _read_nanos(value, timestamp_to_nanos))
    read.register(TimestamptzNanoType, lambda _, value: _read_nanos(value, timestamptz_to_nanos))
    write.register(TimestampNanoType, lambda _, value: _write_nanos(value))
    write.register(TimestamptzNanoType, lambda _, value: f"{_write_nanos(value)}+00:00")


def _read_double(_: DoubleReader, decoder: BinaryDecoder) -> float:
    """Read a double. PyIceberg's compiled decoder rounds it to a float, and a manifest that is written again would get
    other partitions."""
    (value,) = _DOUBLE.unpack(decoder.read(_DOUBLE.size))
    return float(value)


def _decompress_snappy(block: bytes) -> bytes:
    """Decompress a block of an Avro file. PyIceberg needs a package for it that the connector does not have."""
    import pyarrow as pa  # slow to import, and few files need it

    compressed, checksum = block[:-4], block[-4:]
    size = 0
    for place, byte in enumerate(compressed[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    content: bytes = pa.decompress(compressed, size, "snappy", asbytes=True)
    if zlib.crc32(content).to_bytes(4) != checksum:
        raise ValueError("a block does not have its checksum")
    return content


def _write_decimal(_: DecimalType, value: Decimal) -> bytes:
    """Write a decimal, also one with a digit more than its type has.

    `truncate` rounds down, so the partition of -99.99 may be -100. PyIceberg would refuse it when it summarizes the
    partitions of a manifest, and the table would take no commit any more.
    """
    return decimal_to_bytes(value)


def _read_nanos(value: str | int, read: Callable[[str], int]) -> int:
    """Read the default value of a column. Without it, PyIceberg would read nothing of the table."""
    return read(value) if isinstance(value, str) else value


def _write_nanos(value: int) -> str:
    seconds, nanos = divmod(value, _SECOND)
    return f"{to_human_timestamp(seconds * 1_000_000)}.{nanos:09}"
