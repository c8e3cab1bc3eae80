"""Which JSON values fit a column: a second reading of the rules, with the standard library alone.

Like `support.rows.expected_rows` it shares nothing with the connector, so that a mistake would have to be made twice.
"""

import binascii
import json
import math
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Final

NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
OFFSET: Final = r"([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"
TIME: Final = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
DATE_TIME: Final = re.compile(rf"(\d{{4}}-\d\d-\d\d)([\x00-/:-\x7f]{TIME}{OFFSET}|[Tt ]{TIME})", re.ASCII)
NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")


def fits(type_: str, text: str) -> bool:
    """Whether a column of this type can hold the value with this JSON text; null is for others to judge."""
    if type_.startswith("decimal"):
        return text == "null" or _decimal(text, *map(int, type_[8:-1].split(", ")))
    return text == "null" or FITS[type_](text)


def _string_in(text: str) -> str | None:
    return str(json.loads(text)) if text.startswith('"') else None


def _number_in(text: str) -> str | None:
    """Of a number, or of a string with one in it."""
    content = _string_in(text) if text.startswith('"') else text
    return content if content is not None and NUMBER.fullmatch(content) else None


def _long(text: str) -> bool:
    number = _number_in(text)
    return number is not None and -(2**63) <= Decimal(number) < 2**63 and Decimal(number) % 1 == 0


def _decimal(text: str, precision: int, scale: int) -> bool:
    number = _number_in(text)
    if number is None:
        return False
    _, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).lstrip("0")
    fraction = -(exponent + len(significant) - len(significant.rstrip("0")))
    return not significant or (fraction <= scale and len(significant) + exponent <= precision - scale)


def _double(text: str) -> bool:
    number = _number_in(text)
    return _string_in(text) in NOT_FINITE or (number is not None and math.isfinite(float(number)))


def _binary(text: str) -> bool:
    try:
        b64decode(_string_in(text) or ("" if text == '""' else "?"), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _date(text: str) -> bool:
    return _is_date(_string_in(text) or "")


def _timestamptz(text: str) -> bool:
    found = DATE_TIME.fullmatch(_string_in(text) or "")
    return found is not None and _is_date(found[1])


def _is_date(text: str) -> bool:
    found = DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    try:
        date(year or 400, month, day)  # the year 0 is clamped, and as long as the year 400
    except ValueError:
        return False
    return True


FITS: Final[Mapping[str, Callable[[str], bool]]] = {
    "boolean": lambda text: text in ("true", "false"),
    "long": _long,
    "double": _double,
    "string": lambda _: True,
    "binary": _binary,
    "date": _date,
    "timestamptz": _timestamptz,
}
