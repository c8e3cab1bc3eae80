"""Corrections of how PyIceberg reads and writes values, for the whole process.

A module that relies on one calls `apply_patches` when it is imported. docs/pyiceberg.md says when they can go.
"""

import struct
from decimal import Decimal
from typing import Final

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.conversions import to_bytes
from pyiceberg.types import DecimalType
from pyiceberg.utils.decimal import decimal_to_bytes

_DOUBLE: Final = struct.Struct("<d")


def apply_patches() -> None:
    """Let PyIceberg read doubles of manifests as they are, and write decimals of partitions whatever they are. To
    repeat it changes nothing."""
    DoubleReader.read = _read_double  # type: ignore[assignment, method-assign]
    to_bytes.register(DecimalType, _write_decimal)


def _read_double(_: DoubleReader, decoder: BinaryDecoder) -> float:
    """Read a double. PyIceberg's compiled decoder rounds it to a float, and a manifest that is written again would get
    other partitions."""
    (value,) = _DOUBLE.unpack(decoder.read(_DOUBLE.size))
    return float(value)


def _write_decimal(_: DecimalType, value: Decimal) -> bytes:
    """Write a decimal, also one with a digit more than its type has.

    `truncate` rounds down, so the partition of -99.99 may be -100. PyIceberg would refuse it when it summarizes the
    partitions of a manifest, and the table would take no commit any more.
    """
    return decimal_to_bytes(value)
