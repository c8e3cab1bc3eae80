"""Packed tuples: every code at its limits, and every way in which a tuple can be broken."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import BooleanType, DoubleType, LongType, StringType

from connector.host.errors import InvalidValueError
from encoding.store_lines import binding, column, decode, packed, packed_line
from fixtures.packed import pack
from protocol.protocol_error import ProtocolError
from support.snapshots import check_text

WIDTHS = [sign * (256**width + step) for width in range(9) for step in (-1, 0, 1) for sign in (1, -1)]
LONGS = [number for number in WIDTHS if -(2**63) <= number < 2**63] + [2**63 - 1, -(2**63)]


@pytest.mark.parametrize("number", LONGS)
def test_an_integer_of_any_width_keeps_its_value(number: int) -> None:
    assert column(decode(binding(LongType()), [packed(number, number), packed(1, None)])) == [number, None]


@pytest.mark.parametrize("number", [*WIDTHS, 2**300, -(2**300)])
def test_an_integer_of_any_width_is_a_double_and_a_text(number: int) -> None:
    decoded = decode(binding(DoubleType(), StringType()), [packed(1, number, number), packed(2, 0.5, "a")])

    assert column(decoded) == [float(number), 0.5]
    assert column(decoded, "value1") == [str(number), "a"]


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, -1.5, 5e-324, -1.7976931348623157e308])
def test_a_double_keeps_its_bits(number: float) -> None:
    (value,) = column(decode(binding(DoubleType()), [packed(1, number)]))

    assert value.hex() == number.hex()


def test_numbers_and_booleans_in_a_text_column_are_their_json() -> None:
    lines = [packed(n, value) for n, value in enumerate([1.5, -1.0, True, False, None, {"a": 1.0}])]

    assert column(decode(binding(StringType()), lines)) == ["1.5", "-1.0", "true", "false", None, '{"a":1.0}']


@pytest.mark.parametrize("number", [0x0100FF, -0x0100FF, 2**64 + 0xFF])
def test_a_number_with_the_bytes_of_an_escaped_null_character_keeps_its_value_beside_one(number: int) -> None:
    decoded = decode(binding(StringType()), [packed(1, number), packed(2, "a\0b")])

    assert column(decoded) == [str(number), "a\0b"]


NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


@given(st.lists(st.none() | st.sampled_from(WIDTHS) | st.integers(-(2**63), 2**63 - 1) | st.floats(), min_size=1))
def test_a_column_of_numbers_has_the_text_of_each(values: list[int | float | None]) -> None:
    texts = column(decode(binding(StringType()), [packed(1, value) for value in values]))
    expected = [value if value is None else NOT_FINITE.get(str(value)) or _json(value) for value in values]
    assert texts == expected


def _json(number: float) -> str:
    return str(number) if isinstance(number, int) else orjson.dumps(number).decode()


@pytest.mark.parametrize("text", ["", "\0", "\0\0", "a\0", "\0ÿ", "ÿ\0ÿ", "\0" * 300])
def test_zeros_in_a_string_are_part_of_it(text: str) -> None:
    lines = [packed(1, text, True), packed(2, "between", None), packed(3, text, False)]

    decoded = decode(binding(StringType(), BooleanType()), lines)

    assert column(decoded) == [text, "between", text]
    assert column(decoded, "value1") == [True, None, False]


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "too short": pack(["a"]),
    "too long": pack(["a", 1, None]),
    "unknown code": b"\x02a\x00\x30",
    "string without end": b"\x15\x01\x02abc",
    "string that ends in an escape": b"\x15\x01\x02abc\x00\xff",
    "integer cut off": pack(["a"]) + b"\x1c\x01\x02",
    "double cut off": pack(["a"]) + b"\x21\x80",
    "large integer without length": pack(["a"]) + b"\x1d",
    "large integer cut off": pack(["a"]) + b"\x1d\x09\x01",
    "large negative integer cut off": pack(["a"]) + b"\x0b\xf6\x01",
    "escape after the end": pack(["a"]) + b"\xff",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tuple_is_a_protocol_error_that_names_its_line(name: str) -> None:
    lines = [packed(1, "a", 1), packed(2, "b", 2), packed_line(BROKEN[name]), packed(3, "c", 3)]

    with pytest.raises(ProtocolError, match=r"^line 12: valuesPacked: the tuple ") as error:
        decode(binding(StringType(), LongType()), lines, first_line=10)
    check_text("protocol_errors", f"a packed tuple: {name}", str(error.value))


@pytest.mark.parametrize("following", [b"\xff\x00", b"\x00", b""])
def test_a_string_without_end_does_not_go_on_in_the_next_tuple(following: bytes) -> None:
    with pytest.raises(ProtocolError, match="valuesPacked: the tuple"):
        decode(binding(StringType()), [packed_line(b"\x02abc\x00\xff"), packed_line(following)])


def test_a_broken_key_is_told_from_broken_values() -> None:
    with pytest.raises(ProtocolError, match=r"^line 1: keyPacked: the tuple has more elements than the 1 columns"):
        decode(binding(StringType()), [packed_line(pack(["a"]), key=pack([1, 2]))])


def test_a_string_that_is_not_utf8_is_an_error() -> None:
    with pytest.raises(InvalidValueError) as error:
        decode(binding(StringType()), [packed(1, "a"), packed_line(b"\x02\xe9\x00")])
    check_text("value_errors", "no UTF-8", str(error.value))


def test_a_key_of_any_kind_is_shown_in_an_error() -> None:
    keys: list[Any] = ["a\0b", 2**80, None, 1.5, True]
    lines = [packed_line(pack([0.5]), key=pack([key])) for key in keys]
    shown = []
    for line in lines:
        with pytest.raises(InvalidValueError) as raised:
            decode(binding(BooleanType()), [line])
        shown.append(raised.value.invalid.key)

    assert shown == ['["a\\u0000b"]', f"[{2**80}]", "[null]", "[1.5]", "[true]"]
