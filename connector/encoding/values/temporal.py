"""Dates and date-times from text, clamped to the years 1 to 9999 in UTC."""

import re
from datetime import date
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.encoding.values.arrays import NO_ROWS, Positions
from connector.encoding.values.texts import Parser, Texts

_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
_DAY: Final = 86_400_000_000  # microseconds
_FIRST_MICRO: Final = _FIRST_DAY * _DAY
_LAST_MICRO: Final = (_LAST_DAY + 1) * _DAY - 1
_FIRST_MICRO_OF_NANOS: Final = -(2**63 // 1000)
_LAST_MICRO_OF_NANOS: Final = 2**63 // 1000 - 1  # with any three further digits
NANOSECONDS: Final = pa.timestamp("ns", "UTC")
_YEARS_IN_CYCLE: Final = 400  # after which the calendar repeats
_DAYS_IN_CYCLE: Final = 146_097

_YEAR_MONTH_DAY: Final = r"([+-]?[0-9]{4,})-([0-9]{2})-([0-9]{2})"
_DATE: Final = re.compile(_YEAR_MONTH_DAY)
_INSTANT: Final = re.compile(
    _YEAR_MONTH_DAY + r"[T ]([01][0-9]|2[0-3])(?::([0-5][0-9])(?::([0-5][0-9]|60)(?:\.([0-9]+))?)?)?"
    r"(?:Z|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)"
)
_SECOND: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
# Flow once took any byte for the T.
_ANY_SEPARATOR: Final = rf"^({_YEAR_MONTH_DAY})[\x00-\x2F\x3A-\x7F]({_SECOND}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}}))$"
_WITHOUT_OFFSET: Final = rf"^({_YEAR_MONTH_DAY}[T ]{_SECOND})$"
_NANOSECONDS: Final = r"(\.[0-9]{6})[0-9]+"
_LAST_DIGITS: Final = r"\.[0-9]{6}(?P<digits>[0-9]{1,3})"


def dates(texts: Texts) -> tuple[pa.Array, Positions]:
    """Return dates, and the rows that were clamped. Raises InvalidCellsError if a text is no date."""
    texts.require_strings(_DATES.reason)
    return _clamp(_DATES.parse(texts.array).cast(pa.int32()), _FIRST_DAY, _LAST_DAY, _DATES.arrow_type)


def instants(texts: Texts) -> tuple[pa.Array, Positions]:
    """Return timestamps in microseconds, and the rows that were clamped. Raises InvalidCellsError if a text is none.

    A text without an offset is in UTC. Digits beyond microseconds are cut off. A leap second becomes the first second
    of the next minute.
    """
    return _clamp(_parse_micros(texts), _FIRST_MICRO, _LAST_MICRO, _INSTANTS.arrow_type)


def nanosecond_instants(texts: Texts) -> tuple[pa.Array, Positions]:
    """Return timestamps in nanoseconds, and the rows that were clamped, to the years 1677 to 2262. Raises
    InvalidCellsError if a text is none.

    Digits beyond nanoseconds are cut off.
    """
    micros, clamped = _clamp(_parse_micros(texts), _FIRST_MICRO_OF_NANOS, _LAST_MICRO_OF_NANOS, pa.int64())
    digits = pc.struct_field(pc.extract_regex(texts.array, _LAST_DIGITS), "digits")
    rest = pc.utf8_rpad(digits, 3, "0").cast(pa.int64()).fill_null(0)
    if len(clamped):
        is_clamped = np.zeros(len(micros), np.bool_)
        is_clamped[clamped] = True
        rest = pc.if_else(pa.array(is_clamped), 0, rest)
    return pc.add(pc.multiply(micros, 1000), rest).cast(NANOSECONDS), clamped


def _parse_micros(texts: Texts) -> pa.Array:
    texts.require_strings(_INSTANTS.reason)
    array = texts.array
    for normalize in (_cut_nanoseconds, _complete):
        try:
            return array.cast(_INSTANTS.arrow_type).cast(pa.int64())
        except pa.ArrowInvalid:
            array = normalize(array)
    return _INSTANTS.parse(array).cast(pa.int64())


def _cut_nanoseconds(texts: pa.StringArray) -> pa.StringArray:
    return pc.ascii_upper(pc.replace_substring_regex(texts, _NANOSECONDS, r"\1"))


def _complete(texts: pa.StringArray) -> pa.StringArray:
    """Return texts with a T before the time, and with an offset. A time without seconds stays: 2024-01-02-05:00 is the
    date of an offset in XML."""
    return pc.replace_substring_regex(
        pc.replace_substring_regex(texts, _ANY_SEPARATOR, r"\1T\5"), _WITHOUT_OFFSET, r"\1Z"
    )


def _clamp(numbers: pa.Array, first: int, last: int, arrow_type: pa.DataType) -> tuple[pa.Array, Positions]:
    outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    rows = NO_ROWS
    if pc.any(outside).as_py():
        rows = np.flatnonzero(outside.fill_null(False))
        low, high = pa.scalar(first, numbers.type), pa.scalar(last, numbers.type)
        numbers = pc.if_else(pc.less(numbers, low), low, pc.if_else(pc.greater(numbers, high), high, numbers))
    return numbers.cast(arrow_type), rows


def _days(text: str) -> int:
    found = _DATE.fullmatch(text)
    if not found:
        raise ValueError(text)
    year, month, day = found.groups()
    # A day may be too far outside for 32 bits: just outside is enough for it to be clamped.
    return min(max(_day_number(int(year), int(month), int(day)), _FIRST_DAY - 1), _LAST_DAY + 1)


def _micros(text: str) -> int:
    found = _INSTANT.fullmatch(text)
    if not found:
        raise ValueError(text)
    year, month, day, hour, minute, second, fraction, sign, offset_hour, offset_minute = found.groups(default="0")
    offset = int(offset_hour) * 60 + int(offset_minute)
    minutes = int(hour) * 60 + int(minute) - (-offset if sign == "-" else offset)
    micros = (minutes * 60 + int(second)) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    # An instant may be too far outside for 64 bits: just outside is enough for it to be clamped.
    return min(max(_day_number(int(year), int(month), int(day)) * _DAY + micros, _FIRST_MICRO - 1), _LAST_MICRO + 1)


def _day_number(year: int, month: int, day: int) -> int:
    """Return days since 1970, in any year. Python's calendar has only the years that a column can hold."""
    cycles, year_of_cycle = divmod(year - 1, _YEARS_IN_CYCLE)
    return date(year_of_cycle + 1, month, day).toordinal() + cycles * _DAYS_IN_CYCLE - _EPOCH


_DATES: Final = Parser(pa.date32(), _days, "is not a date")
_INSTANTS: Final = Parser(pa.timestamp("us", "UTC"), _micros, "is not a date-time")
