"""Hashes of keys, and digests of sets of keys: whether the Stores of a transaction replace all rows that Loads found.

Keys are compared by the values of their columns, so both forms of a key have one digest. A hash is made of a whole
column at once, and is the same in every process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa

from connector.encoding.lines.keys_tables import KEY
from connector.encoding.values.arrays import Indices, Words

_BITS: Final = 64
_WORD: Final = 8  # bytes
_SHORT: Final = 64  # bytes of values whose words are added one after the other
_AT_ONCE: Final = 4 << 20  # bytes: the words of uneven values take six times as much
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_NULL: Final = np.uint64(0xD1B54A32D192ED03)  # the hash of a null


@dataclass(frozen=True)
class KeyDigest:
    """How many keys there are, and the sum of their hashes, modulo 2 to the power of 64. The order does not matter."""

    count: int = 0
    total: int = 0

    def __add__(self, other: "KeyDigest") -> "KeyDigest":
        return KeyDigest(self.count + other.count, (self.total + other.total) % 2**_BITS)


def digest_keys_table(keys: pa.Table) -> KeyDigest:
    """Return the digest of the keys of a keys table."""
    return digest_hashes([hash_keys_table(keys)])


def digest_hashes(parts: Iterable[Words]) -> KeyDigest:
    """Return the digest of the keys that have these hashes."""
    return sum_digests([KeyDigest(len(part), int(part.sum(dtype=np.uint64))) for part in parts])


def hash_keys_table(keys: pa.Table) -> Words:
    """Return the hash of each key of a keys table."""
    columns = [keys[name].combine_chunks() for name in keys.column_names if name != KEY]
    return hash_keys(columns) if keys.num_rows else np.empty(0, np.uint64)


def hash_keys(columns: Sequence[pa.Array]) -> Words:
    """Return the hash of each key. Different keys may have one hash, but hardly ever do."""
    return reduce(lambda total, column: _mix(total + _hash(column)), columns, np.zeros(1, np.uint64))


def sum_digests(digests: Sequence[KeyDigest]) -> KeyDigest:
    """Return the digest of all keys together."""
    return sum(digests, KeyDigest())


def _hash(column: pa.Array) -> Words:
    hashes = _hash_fixed(column) if _is_fixed(column.type) else _hash_bytes(column)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes) if column.null_count else hashes


def _is_fixed(arrow_type: pa.DataType) -> bool:
    return pa.types.is_boolean(arrow_type) or (
        pa.types.is_primitive(arrow_type) and not pa.types.is_decimal(arrow_type)
    )


def _hash_fixed(column: pa.Array) -> Words:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.int64())
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        numbers = numbers + 0.0  # -0.0 and 0.0 are one key, and an integer -0 is either of them
    return _mix(numbers.view(np.uint64))


def _hash_bytes(column: pa.Array) -> Words:
    """Return a mixed sum of eight bytes at a time, each multiplied by a random weight of its index."""
    if column.nbytes > _AT_ONCE and len(column) > 1:
        middle = len(column) // 2
        return np.concatenate([_hash_bytes(column[:middle]), _hash_bytes(column[middle:])])
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    values = column.cast(pa.binary()).fill_null(b"")
    _, offsets, content = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    begins, sizes = bounds[:-1] - bounds[0], np.diff(bounds)
    data = (content[bounds[0] : bounds[-1]].to_pybytes() if content else b"") + bytes(_WORD)
    is_even = sizes.min() == sizes.max() <= _SHORT
    sums = _sum_even(data, len(sizes), int(sizes[0])) if is_even else _sum_uneven(data, begins, sizes)
    return _mix(sums + sizes.astype(np.uint64) * _ODD)


def _sum_even(data: bytes, rows: int, size: int) -> Words:
    """Return the sums of values that all have one size. Most keys of a table have. It takes a third of the time."""
    count = -(-size // _WORD)
    words = np.ndarray((rows, count), "<u8", data, strides=(size, _WORD))
    sums = np.zeros(rows, np.uint64)
    for index, weight in enumerate(_weights(count)):
        surplus = max(_WORD * (index + 1) - size, 0)
        sums += (words[:, index] << np.uint64(8 * surplus)) * weight
    return sums


def _sum_uneven(data: bytes, begins: Indices, sizes: Indices) -> Words:
    """Return the sums of values of any sizes."""
    counts = -(-sizes // _WORD)  # of words; the last one of a value may have bytes of the next, which are removed
    ends = np.cumsum(counts)
    indices = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))[np.repeat(begins, counts) + _WORD * indices]
    surplus = np.maximum(_WORD * (indices + 1) - np.repeat(sizes, counts), 0).astype(np.uint64) * np.uint64(8)
    words = (words << surplus) * _weights(int(counts.max()))[indices]
    sums = np.append(np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64))
    differences: Words = sums[ends] - sums[ends - counts]
    return differences


def _weights(count: int) -> Words:
    return _mix(np.arange(1, count + 1, dtype=np.uint64) * _ODD)


def _mix(words: Words) -> Words:
    """Return words of which every bit depends on every bit of these: the last step of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
