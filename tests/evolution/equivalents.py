"""The values of columns that get another type, as docs/columns.md has them: a second reading, with the standard
library."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from support.rows.expected_rows import FIRST_INSTANT, LAST_INSTANT, canonical, scale_of
from support.rows.fitting import fits

_EXACT_INTEGERS: Final = 2**53
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def loses_texts(old: str, new: str) -> bool:
    """Whether a document's text is not in the column any more, so that its conversion may give it another one."""
    return new == "string" and _family(old) in ("long", "double", "decimal", "timestamptz")


def has_equivalents(old: str, new: str) -> bool:
    """Whether any value of one type has one of the other; if not the column is set aside."""
    return (_family(old), _family(new)) in EQUIVALENTS


def equivalent(old: str, new: str, text: str | None) -> str | None:
    """A value's equivalent; null for null. ValueError where it has none."""
    if text is None:
        return None
    value = EQUIVALENTS[_family(old), _family(new)](text)
    return _of_text(new)(value) if _family(new) == "decimal" else value


def holds(column: str, needed: str) -> bool:
    """Whether a column is left as it is."""
    return column == needed or (_of_one_scale(column, needed) and _precision(column) >= _precision(needed))


def is_widened(column: str, needed: str) -> bool:
    """Whether it is changed in place."""
    return _of_one_scale(column, needed) and _precision(column) < _precision(needed)


def _of_one_scale(one: str, other: str) -> bool:
    return _family(one) == _family(other) == "decimal" and scale_of(one) == scale_of(other)


def _precision(type_: str) -> int:
    return int(type_.removeprefix("decimal(").partition(",")[0])


def _family(type_: str) -> str:
    return type_.partition("(")[0]


def _double_of_decimal(text: str) -> str:
    """The digits of a double are those that tell it from any other."""
    if Decimal(repr(float(text))) != Decimal(text):
        raise ValueError(text)
    return repr(float(text))


def _double_of_long(text: str) -> str:
    if abs(int(text)) > _EXACT_INTEGERS:
        raise ValueError(text)
    return repr(float(text))


def _long_of_double(text: str) -> str:
    number = Decimal(text)
    if not number.is_finite() or not -(2**63) <= number < 2**63 or number % 1:
        raise ValueError(text)
    return str(int(number))


def _text_of_double(text: str) -> str:
    """Of numbers that are not so small that Python writes them in another way than JSON libraries do."""
    number = float(text)
    if number.is_integer() and abs(number) < _EXACT_INTEGERS and text != "-0.0":
        return str(int(number))
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


def _text_of_instant(text: str) -> str:
    moment = (_EPOCH + timedelta(microseconds=int(text))).isoformat(timespec="microseconds")
    return moment.removesuffix("+00:00").rstrip("0").removesuffix(".") + "Z"


def _text_of_binary(text: str) -> str:
    return b64encode(bytes.fromhex(text)).decode()


def _of_text(new: str) -> Callable[[str], str]:
    """As if the text came in a document, where nothing of it would have to be clamped."""

    def value(text: str) -> str:
        json = text if new == "boolean" else _quoted(text)
        found = canonical(new, json) if fits(new, json) else None
        if found is None or (new == "timestamptz" and int(found) in (FIRST_INSTANT, LAST_INSTANT)):
            raise ValueError(text)
        return found

    return value


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


EQUIVALENTS: Final[Mapping[tuple[str, str], Callable[[str], str]]] = {
    ("long", "double"): _double_of_long,
    ("double", "long"): _long_of_double,
    ("decimal", "long"): _long_of_double,
    ("decimal", "double"): _double_of_decimal,
    ("decimal", "string"): str,
    **{(old, "decimal"): str for old in ("long", "double", "decimal", "string")},
    ("boolean", "string"): str,
    ("long", "string"): str,
    ("double", "string"): _text_of_double,
    ("date", "string"): str,
    ("timestamptz", "string"): _text_of_instant,
    ("binary", "string"): _text_of_binary,
    **{("string", new): _of_text(new) for new in ("boolean", "long", "double", "date", "timestamptz", "binary")},
}
