"""The packed form of a tuple: FoundationDB's encoding, column by column for all rows at once.

A cursor per row walks one buffer that holds every row's tuple; the code byte under it gives type and size.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.encoding.values.arrays import Bytes, Mask, Positions, Words
from connector.encoding.values.texts import Texts, as_strings, contains, gather, replace_values

NULL: Final = 0x00
JSON: Final = 0x01
STRING: Final = 0x02
BIG_NEGATIVE: Final = 0x0B
ZERO: Final = 0x14
BIG_POSITIVE: Final = 0x1D
DOUBLE: Final = 0x21
FALSE: Final = 0x26
TRUE: Final = 0x27
LARGEST: Final = 8  # bytes of an integer whose code says its size
INTEGERS: Final = frozenset(range(ZERO - LARGEST, ZERO + LARGEST + 1))
_ESCAPE: Final = 0xFF  # after a 00 that is part of a string
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

_ALL_ONES: Final = np.uint64(2**64 - 1)
_UNKNOWN: Final = -1
_SIZES: Final = np.full(256, _UNKNOWN, dtype=np.int64)
_SIZES[[NULL, JSON, STRING, BIG_NEGATIVE, BIG_POSITIVE, FALSE, TRUE]] = 0  # texts and big integers end otherwise
_SIZES[ZERO - LARGEST : ZERO + LARGEST + 1] = np.abs(np.arange(-LARGEST, LARGEST + 1))
_SIZES[DOUBLE] = 8
_FITS_A_LONG: Final = np.full(256, fill_value=False)  # whatever the integer is
_FITS_A_LONG[ZERO - LARGEST + 1 : ZERO + LARGEST] = True


class PackedTupleError(Exception):
    """This row's tuple is malformed, or has another number of elements."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row, self.reason = row, reason


class PackedRows:
    """The tuples of all rows in one buffer.

    Zeros separate them: they end a string that lacks its own end, beyond its tuple, where that is noticed.
    """

    def __init__(self, tuples: Sequence[bytes]) -> None:
        lengths = np.fromiter(map(len, tuples), np.int64, len(tuples))
        self.data = b"\0".join((*tuples, bytes(LARGEST)))
        self.buffer: Bytes = np.frombuffer(self.data, dtype=np.uint8)
        # The eight bytes from every position on: a view, nothing is copied.
        self.words = np.ndarray((len(self.data) - LARGEST + 1,), ">u8", self.data, strides=(1,))
        self.limits = np.cumsum(lengths + 1) - 1
        self.begins = self.limits - lengths
        zeros = np.flatnonzero(self.buffer[:-1] == 0)
        escaped = self.buffer[zeros + 1] == _ESCAPE
        self.escapes: Positions = zeros[escaped]
        self.string_ends: Positions = zeros[~escaped] if len(self.escapes) else zeros

    def elements(self, count: int) -> Iterator["Elements"]:
        """Yield the elements of each column. Raises PackedTupleError unless every tuple has exactly `count`."""
        cursors = self.begins
        for _ in range(count):
            self._refuse(cursors >= self.limits, f"has fewer elements than the {count} columns")
            elements = self._elements_at(cursors)
            cursors = elements.nexts
            self._refuse(cursors > self.limits, "ends within an element")
            yield elements
        self._refuse(cursors < self.limits, f"has more elements than the {count} columns")

    def _elements_at(self, at: Positions) -> "Elements":
        codes = self.buffer[at]
        sizes = _SIZES[codes]
        self._refuse(sizes == _UNKNOWN, "has an element with an unknown code")
        ends = at + 1 + sizes
        nexts = ends
        present = _present(codes)
        if present & {JSON, STRING}:
            strings = (codes == JSON) | (codes == STRING)
            string_ends = self.string_ends[np.searchsorted(self.string_ends, at + 1)]
            ends = np.where(strings, string_ends, ends)
            nexts = ends + strings
        if present & {BIG_NEGATIVE, BIG_POSITIVE}:
            lengths = self.buffer[at + 1].astype(np.int64)
            ends = np.where(codes == BIG_POSITIVE, at + 2 + lengths, ends)
            ends = np.where(codes == BIG_NEGATIVE, at + 2 + (lengths ^ 0xFF), ends)
            nexts = np.maximum(nexts, ends)
        return Elements(self, at, codes, present, ends, nexts)

    @staticmethod
    def _refuse(wrong: Mask, reason: str) -> None:
        if wrong.any():
            raise PackedTupleError(int(np.argmax(wrong)), reason)


@dataclass(frozen=True)
class Elements:
    """The same element of every row's tuple."""

    rows: PackedRows
    at: Positions  # of the code
    codes: Bytes
    present: frozenset[int]  # the codes that occur
    ends: Positions
    nexts: Positions

    def texts(self) -> Texts:
        """Return every element as text. Raises InvalidCellsError if a string is not UTF-8."""
        begins = self.at + 1
        if self.present <= {NULL, JSON, STRING}:
            array = gather(self.rows.data, begins, self.ends, self.codes != NULL)
        else:
            is_text = (self.codes == JSON) | (self.codes == STRING)
            array = gather(self.rows.data, begins, np.where(is_text, self.ends, begins), self.codes != NULL)
            array = self._with_scalar_texts(array)
        if len(self.rows.escapes) and self.present & {JSON, STRING}:
            escaped = contains(self.rows.escapes, begins, self.ends) & (self.codes <= STRING)
            array = replace_values(array, escaped, lambda row: self._content(row).replace(b"\0\xff", b"\0"))
        return Texts(as_strings(array), self.codes == STRING)

    def integers(self) -> tuple[Words, Mask]:
        """Return magnitudes, and which numbers are negative. All elements must be integers of up to eight bytes."""
        unused_bits = (64 - 8 * (self.ends - self.at - 1)).astype(np.uint64)
        numbers = self.words() >> unused_bits
        negative = self.codes < ZERO
        return np.where(negative, (_ALL_ONES >> unused_bits) - numbers, numbers), negative

    def words(self) -> Words:
        """Return the eight bytes after each code."""
        return self.rows.words[self.at + 1].astype(np.uint64)

    def _with_scalar_texts(self, array: pa.BinaryArray) -> pa.BinaryArray:
        fitting = _FITS_A_LONG[self.codes]
        if fitting.any():
            magnitudes, negative = self._of(np.flatnonzero(fitting)).integers()
            longs = np.where(negative, -magnitudes.view(np.int64), magnitudes.view(np.int64))
            texts = pa.array(longs).cast(pa.string()).cast(pa.binary())
            array = pc.replace_with_mask(array, pa.array(fitting), texts)
        return replace_values(array, (self.codes > STRING) & ~fitting, self._scalar_text)

    def _of(self, rows: Positions) -> "Elements":
        codes = self.codes[rows]
        return Elements(self.rows, self.at[rows], codes, _present(codes), self.ends[rows], self.nexts[rows])

    def without(self, rows: Positions) -> "Elements":
        """Return the same elements, with null in these rows."""
        codes, ends = self.codes.copy(), self.ends.copy()
        codes[rows] = NULL
        ends[rows] = self.at[rows] + 1
        return replace(self, codes=codes, present=_present(codes), ends=ends)

    def json_text(self, row: int) -> str:
        """Return the element of one row as JSON, for people."""
        code = self.codes[row]
        if code == NULL:
            return "null"
        if code > STRING:
            text = self._scalar_text(row).decode()
            return f'"{text}"' if text in _NOT_FINITE.values() else text
        content = self._content(row).replace(b"\0\xff", b"\0").decode(errors="replace")
        return content if code == JSON else orjson.dumps(content).decode()

    def _content(self, row: int) -> bytes:
        return self.rows.data[self.at[row] + 1 : self.ends[row]]

    def _scalar_text(self, row: int) -> bytes:
        code, content = int(self.codes[row]), self._content(row)
        if code in (FALSE, TRUE):
            return b"true" if code == TRUE else b"false"
        if code == DOUBLE:
            return _double_text(content)
        if code in (BIG_NEGATIVE, BIG_POSITIVE):
            content = content[1:]
        number = int.from_bytes(content, "big")
        return b"%d" % (number if code >= ZERO else number - (256 ** len(content) - 1))


def _present(codes: Bytes) -> frozenset[int]:
    return frozenset(np.flatnonzero(np.bincount(codes)).tolist())


def _double_text(content: bytes) -> bytes:
    """Return a double as the runtime writes it in the plain form."""
    word = int.from_bytes(content, "big")
    word ^= 1 << 63 if word >> 63 else (1 << 64) - 1
    (number,) = struct.unpack(">d", word.to_bytes(8, "big"))
    return _NOT_FINITE[repr(number)].encode() if repr(number) in _NOT_FINITE else orjson.dumps(number)
