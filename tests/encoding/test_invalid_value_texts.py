"""What a user reads of a value that fits its column in no way, kept in a file to be reviewed."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.host.errors import InvalidValueError
from encoding.store_lines import binding, decode, json_line
from support.snapshots import check_text

VALUES: Final[Mapping[str, tuple[PrimitiveType, str]]] = {
    "no boolean": (BooleanType(), '"yes"'),
    "no integer": (LongType(), "1.5"),
    "an integer beyond 64 bits": (LongType(), "9223372036854775808"),
    "an integer beyond 32 bits": (IntegerType(), "2147483648"),
    "no number": (DoubleType(), '"seven"'),
    "too many digits": (DecimalType(20, 4), "0.00001"),
    "no date": (DateType(), '"2024-02-30"'),
    "no instant": (TimestamptzType(), '"2024-01-02"'),
    "no base64": (BinaryType(), '"?"'),
    "a long value": (LongType(), '"' + "long " * 100 + '"'),
}


def said(of: Any, line: bytes) -> str:
    with pytest.raises(InvalidValueError) as error:
        decode(of, [line])
    return str(error.value)


@pytest.mark.parametrize("name", VALUES)
def test_why_a_value_does_not_fit_is_said_and_what_to_do(name: str) -> None:
    type_, value = VALUES[name]
    check_text("value_errors", name, said(binding(type_), json_line(value)))


@pytest.mark.parametrize(("digits", "has_room"), [(38, True), (39, False)])
def test_a_decimal_is_advised_only_for_an_integer_that_it_can_hold(digits: int, has_room: bool) -> None:
    assert ('"decimal"' in said(binding(LongType()), json_line("9" * digits))) is has_room


def test_why_a_null_does_not_fit_is_said_and_what_to_do() -> None:
    check_text("value_errors", "a null", said(binding(StringType(), required=True), json_line("null")))
    check_text("value_errors", "a null in the key", said(binding(StringType()), json_line('"a"', key="null")))
