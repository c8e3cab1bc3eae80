"""A column as text, where no typed decoder fits its values; and text to values, a whole column in one call."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.encoding.values.arrays import Mask, Positions

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_NULL: Final = ord("n")
# Texts, or fewer: so many are parsed one by one.
_FASTER_BY_VALUE: Final = 16
_decode_string = msgspec.json.Decoder(str).decode


class InvalidCellsError(Exception):
    """The column cannot hold the values in these rows; there may be more of them."""

    def __init__(self, rows: Positions, reason: str) -> None:
        super().__init__(rows, reason)
        self.rows, self.reason = rows, reason


@dataclass(frozen=True)
class Texts:
    """Strings as they are, everything else as its JSON text; null where there is no value."""

    array: pa.StringArray
    is_string: Mask

    def require_strings(self, reason: str) -> None:
        """Raise InvalidCellsError if a value is no string."""
        others = np.flatnonzero(~self.is_string & find_valid(self.array))
        if len(others):
            raise InvalidCellsError(others, reason)


def find_valid(array: pa.Array) -> Mask:
    """Return which values are not null."""
    if not array.null_count:
        return np.ones(len(array), dtype=np.bool_)
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def of_json(cells: Sequence[msgspec.Raw]) -> Texts:
    """Return JSON values byte for byte, but strings without quotes and escapes. An empty cell is a missing value."""
    data = b"".join((*cells, b" "))  # with a space, so that even an empty last cell has a first byte
    ends = np.cumsum(np.fromiter(map(len, cells), np.int64, len(cells)))
    begins = np.concatenate(([0], ends[:-1]))
    codes = np.frombuffer(data, dtype=np.uint8)
    firsts = codes[begins]
    valid = (firsts != _NULL) & (begins < ends)
    is_string = (firsts == _QUOTE) & valid
    array = as_strings(gather(data, begins + is_string, ends - is_string, valid))
    if b"\\" in data:
        escaped = is_string & contains(np.flatnonzero(codes == _BACKSLASH), begins, ends)
        array = _without_escapes(array, escaped, cells)
    return Texts(array, is_string)


def _without_escapes(array: pa.StringArray, escaped: Mask, cells: Sequence[msgspec.Raw]) -> pa.StringArray:
    try:
        return replace_values(array, escaped, lambda row: _decode_string(cells[row]).encode())
    except msgspec.DecodeError as error:
        # The line was JSON, or there would be no cells. Strings that are not UTF-8 were refused before.
        rows = [row for row in np.flatnonzero(escaped).tolist() if not _is_decodable(cells[row])]
        raise InvalidCellsError(np.array(rows), "has half of a surrogate pair, which is no character") from error


def _is_decodable(cell: msgspec.Raw) -> bool:
    try:
        _decode_string(cell)
    except msgspec.DecodeError:
        return False
    return True


def gather(data: bytes, begins: Positions, ends: Positions, valid: Mask) -> pa.BinaryArray:
    """Return the slices of `data`, which do not overlap and are in order. Rows that are not valid are null."""
    if valid.all() and np.array_equal(begins[1:], ends[:-1]):
        return _binaries(np.append(begins[:1], ends), data)
    bounds = np.empty(2 * len(begins) + 1, dtype=np.int64)
    bounds[0:-1:2] = begins
    bounds[1::2] = ends
    bounds[-1] = len(data)
    slices_and_gaps = _binaries(bounds, data)
    slices = np.arange(0, 2 * len(begins), 2, dtype=np.int32)
    return slices_and_gaps.take(pa.array(slices, mask=None if valid.all() else ~valid))


def contains(positions: Positions, begins: Positions, ends: Positions) -> Mask:
    """Return which slices hold one of the positions, which are in order."""
    held: Mask = np.searchsorted(positions, begins) < np.searchsorted(positions, ends)
    return held


def replace_values(array: pa.Array, where: Mask, value: Callable[[int], bytes]) -> pa.Array:
    """Return the array, of binary or string type, with `value(row)` in the rows `where`."""
    rows = np.flatnonzero(where)
    if not len(rows):
        return array
    return pc.replace_with_mask(array, pa.array(where), pa.array([value(int(row)) for row in rows], array.type))


def as_strings(array: pa.BinaryArray) -> pa.StringArray:
    """Return the same values as strings, without copying. Raises InvalidCellsError if one is not UTF-8: readers of the
    file would fail on it."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidCellsError(_rows_that_are_not_utf8(array), "is not valid UTF-8") from error


def _binaries(bounds: Positions, data: bytes) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _rows_that_are_not_utf8(array: pa.BinaryArray) -> Positions:
    rows = [row for row, value in enumerate(array.to_pylist()) if not _is_utf8(value or b"")]
    assert rows, "Arrow finds a string that is not UTF-8, Python does not"
    return np.array(rows)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def double_texts(doubles: pa.DoubleArray) -> pa.StringArray:
    """Return each number with the fewest digits that identify it, as in documents."""
    numbers = doubles.fill_null(0).to_numpy()
    texts = orjson.dumps(np.where(np.isfinite(numbers), numbers, 0.0), option=orjson.OPT_SERIALIZE_NUMPY)
    finite = pa.array(texts[1:-1].decode().split(",") if len(doubles) else [], pa.string())
    named = np.select([np.isnan(numbers), numbers > 0], ["NaN", "Infinity"], "-Infinity")
    values = pc.if_else(pa.array(np.isfinite(numbers)), finite, pa.array(named, pa.string()))
    return pc.if_else(doubles.is_valid(), values, pa.scalar(None, pa.string()))


@dataclass(frozen=True)
class Parser:
    """`by_value` reads whatever `at_once` reads, with the same result, and more; ValueError means that a text is
    invalid."""

    arrow_type: pa.DataType
    by_value: Callable[[str], object]
    reason: str
    at_once: Callable[[pa.StringArray], pa.Array] | None = None  # default: Arrow's cast. Raises ArrowInvalid

    def parse(self, texts: pa.StringArray) -> pa.Array:
        """Return the values of the texts. Raises InvalidCellsError with the rows of all texts that are invalid."""
        invalid: list[int] = []
        array = pa.concat_arrays(self._parts(texts, 0, invalid))
        if invalid:
            raise InvalidCellsError(np.array(invalid), self.reason)
        return array

    def _parts(self, texts: pa.StringArray, first_row: int, invalid: list[int]) -> Iterator[pa.Array]:
        """Yield the values of the texts. Halves the texts again and again around those that Arrow cannot read."""
        try:
            yield self.at_once(texts) if self.at_once else texts.cast(self.arrow_type)
        except pa.ArrowInvalid:
            if len(texts) <= _FASTER_BY_VALUE:
                yield pa.array(self._values(texts, first_row, invalid), self.arrow_type)
                return
            half = len(texts) // 2
            yield from self._parts(texts[:half], first_row, invalid)
            yield from self._parts(texts[half:], first_row + half, invalid)

    def _values(self, texts: pa.StringArray, first_row: int, invalid: list[int]) -> Iterator[object]:
        for row, text in enumerate(texts.to_pylist(), first_row):
            try:
                yield None if text is None else self.by_value(text)
            except ValueError:
                invalid.append(row)
                yield None
