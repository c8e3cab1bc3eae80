"""Decimals from text: every digit is kept, or the value is invalid; nothing is rounded."""

import re
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DecimalType

from connector.encoding.values.arrays import NO_ROWS, Positions
from connector.encoding.values.texts import Parser, Texts

NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SAFE_DIGITS: Final = len(str(2**127)) - 1  # any so many fit into 128 bits with a sign


@cache
def decimals(type_: DecimalType) -> Callable[[Texts], tuple[pa.Array, Positions]]:
    """Return the rule that turns texts into decimals of this type."""
    whole = type_.precision - type_.scale
    reason = f"is not a number with at most {whole} digits before its point and {type_.scale} behind it"
    parser = Parser(arrow_decimal(type_), _by_value(type_), reason, _at_once(type_))
    return lambda texts: (parser.parse(texts.array), NO_ROWS)


def arrow_decimal(type_: DecimalType) -> pa.DataType:
    """Return Arrow's type for a decimal."""
    return pa.decimal128(type_.precision, type_.scale)


def _at_once(type_: DecimalType) -> Callable[[pa.StringArray], pa.Array]:
    arrow_type, whole = arrow_decimal(type_), type_.precision - type_.scale
    # With more digits Arrow's arithmetic overflows silently: it reads 2¹²⁸ + 1 as 1. An exponent it may misread, or
    # crash.
    safe = rf"^[+-]?0*[0-9]{{0,{whole}}}(\.[0-9]{{0,{_SAFE_DIGITS - whole}}})?$"

    def array(texts: pa.StringArray) -> pa.Array:
        if not pc.all(pc.match_substring_regex(texts, safe)).as_py():
            raise pa.ArrowInvalid("some text is not known to be read exactly")
        return texts.cast(arrow_type)

    return array


def _by_value(type_: DecimalType) -> Callable[[str], Decimal]:
    exactly = Context(prec=type_.precision, traps=[Inexact, InvalidOperation])
    unit = Decimal((0, (1,), -type_.scale))

    def value(text: str) -> Decimal:
        if not NUMBER.fullmatch(text):
            raise ValueError(text)
        try:
            return Decimal(text).quantize(unit, context=exactly)
        except DecimalException as error:
            raise ValueError(text) from error

    return value
