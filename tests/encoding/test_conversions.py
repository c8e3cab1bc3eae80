"""A value that is converted is what the connector would have written to a column of the other type."""

import datetime as dt
import math
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connector.encoding.values.column_types import arrow_type_of
from connector.encoding.values.conversions import CONVERSIONS, NoEquivalentError, convert
from connector.evolution.type_changes import TYPE_CHANGES, TypeChange
from connector.model.invalid_values import OnInvalid
from encoding.store_lines import binding, column, decode, json_line, packed

OTHER_ARROW_TYPES = {
    FloatType(): pa.float32(),
    TimeType(): pa.time64("us"),
    TimestampType(): pa.timestamp("us"),
    UUIDType(): pa.binary(16),
    FixedType(4): pa.binary(4),
}
UTC = dt.UTC

CONVERTED: list[tuple[PrimitiveType, PrimitiveType, Any, Any]] = [
    (IntegerType(), DoubleType(), 7, 7.0),
    (LongType(), DoubleType(), 2**53, 2.0**53),
    (LongType(), DoubleType(), -(2**53), -(2.0**53)),
    (FloatType(), LongType(), 16777216.0, 16777216),
    (DoubleType(), LongType(), 1e18, 10**18),
    (DecimalType(20, 3), LongType(), Decimal("7.000"), 7),
    (DecimalType(20, 3), DoubleType(), Decimal("-7.100"), -7.1),
    (DecimalType(38, 0), DoubleType(), Decimal(10**37), 1e37),
    (IntegerType(), DecimalType(12, 2), -(2**31), Decimal("-2147483648.00")),
    (LongType(), DecimalType(38, 19), 2**63 - 1, Decimal(2**63 - 1)),
    (FloatType(), DecimalType(9, 4), 0.5, Decimal("0.5")),
    (DoubleType(), DecimalType(9, 2), 0.1, Decimal("0.1")),
    (DoubleType(), DecimalType(38, 0), 1e37, Decimal(10**37)),
    (DecimalType(20, 3), DecimalType(38, 30), Decimal("-12345678.900"), Decimal("-12345678.9")),
    (DecimalType(20, 3), DecimalType(3, 1), Decimal("99.900"), Decimal("99.9")),
    (BooleanType(), StringType(), True, "true"),
    (BooleanType(), StringType(), False, "false"),
    (IntegerType(), StringType(), -7, "-7"),
    (LongType(), StringType(), -(2**63), "-9223372036854775808"),
    (FloatType(), StringType(), 0.1, "0.10000000149011612"),
    (DoubleType(), StringType(), 0.1, "0.1"),
    (FloatType(), StringType(), 16777216.0, "16777216"),
    (DoubleType(), StringType(), 42.0, "42"),
    (DoubleType(), StringType(), -100.0, "-100"),
    (DoubleType(), StringType(), 0.0, "0"),
    (DoubleType(), StringType(), -0.0, "-0.0"),
    (DoubleType(), StringType(), 2.0**53 - 1, "9007199254740991"),
    (DoubleType(), StringType(), 2.0**53, "9007199254740992.0"),
    (DoubleType(), StringType(), 1.25, "1.25"),
    (DoubleType(), StringType(), 10.05, "10.05"),
    (DoubleType(), StringType(), math.nan, "NaN"),
    (DoubleType(), StringType(), math.inf, "Infinity"),
    (DoubleType(), StringType(), -math.inf, "-Infinity"),
    (DecimalType(20, 3), StringType(), Decimal("7.100"), "7.100"),
    (DecimalType(9, 9), StringType(), Decimal("0.000000001"), "0.000000001"),
    (DateType(), StringType(), dt.date(1, 2, 3), "0001-02-03"),
    (TimeType(), StringType(), dt.time(1, 2, 3, 40), "01:02:03.00004"),
    (TimeType(), StringType(), dt.time(10, 20), "10:20:00"),
    (TimestampType(), StringType(), dt.datetime(2024, 1, 2, 3, 4, 50), "2024-01-02T03:04:50"),  # noqa: DTZ001 - the value of a timestamp column
    (TimestamptzType(), StringType(), dt.datetime(2024, 1, 2, 3, 4, 50, tzinfo=UTC), "2024-01-02T03:04:50Z"),
    (TimestamptzType(), StringType(), dt.datetime(1, 1, 1, 0, 0, 0, 120000, UTC), "0001-01-01T00:00:00.12Z"),
    (UUIDType(), StringType(), uuid.UUID(int=7).bytes, "00000000-0000-0000-0000-000000000007"),
    (FixedType(4), StringType(), b"\0\1\2\3", "AAECAw=="),
    (BinaryType(), StringType(), b"hello", "aGVsbG8="),
    (BinaryType(), StringType(), b"", ""),
    (StringType(), BooleanType(), "true", True),
    (StringType(), LongType(), "1.0", 1),
    (StringType(), DoubleType(), "-Infinity", -math.inf),
    (StringType(), DecimalType(20, 3), "1e-3", Decimal("0.001")),
    (StringType(), DateType(), "2024-02-29", dt.date(2024, 2, 29)),
    (StringType(), TimestamptzType(), "2024-01-02t01:00:00+01:00", dt.datetime(2024, 1, 2, tzinfo=UTC)),
    (StringType(), TimestamptzNanoType(), "1970-01-01T00:00:00.000000123Z", 123),
    (StringType(), BinaryType(), "aGVsbG8=", b"hello"),
]

WITHOUT_EQUIVALENT: list[tuple[PrimitiveType, PrimitiveType, Any]] = [
    (LongType(), DoubleType(), 2**53 + 1),
    (DoubleType(), LongType(), 1.5),
    (DoubleType(), LongType(), 2.0**63),
    (DoubleType(), LongType(), math.nan),
    (FloatType(), LongType(), 0.5),
    (DecimalType(20, 3), LongType(), Decimal("7.001")),
    (DecimalType(20, 3), LongType(), Decimal("-99999999999999999.999")),
    (DecimalType(20, 3), DoubleType(), Decimal("12345678901234567.890")),
    (LongType(), DecimalType(20, 2), 10**18),
    (DoubleType(), DecimalType(20, 1), 0.25),
    (DoubleType(), DecimalType(20, 1), math.nan),
    (DoubleType(), DecimalType(20, 1), math.inf),
    (FloatType(), DecimalType(9, 4), 0.1),
    (DecimalType(20, 3), DecimalType(20, 2), Decimal("7.001")),
    (DecimalType(20, 3), DecimalType(38, 30), Decimal("123456789.000")),
    (DecimalType(20, 3), DecimalType(3, 1), Decimal("100.000")),
    (DateType(), StringType(), 2**31 - 1),  # of years that Arrow cannot write
    (TimestampType(), StringType(), 2**62),
    (TimestamptzType(), StringType(), -(2**63)),
    (StringType(), DecimalType(20, 3), "1.0001"),
    (StringType(), BooleanType(), "yes"),
    (StringType(), LongType(), "abc"),
    (StringType(), LongType(), "1.5"),
    (StringType(), DoubleType(), ""),
    (StringType(), DateType(), "2024-02-30"),
    (StringType(), DateType(), "10000-01-01"),
    (StringType(), TimestamptzType(), "2024-01-02"),
    (StringType(), TimestamptzType(), "0000-01-01T00:00:00Z"),
    (StringType(), BinaryType(), "hello"),
]


def array(values: list[Any], of: IcebergType) -> pa.Array:
    assert isinstance(of, PrimitiveType)
    return pa.array(values, OTHER_ARROW_TYPES.get(of) or arrow_type_of(of))


@pytest.mark.parametrize(("old", "new", "value", "expected"), CONVERTED, ids=str)
def test_a_value_becomes_its_equivalent_and_null_stays_null(
    old: PrimitiveType, new: PrimitiveType, value: Any, expected: Any
) -> None:
    result = convert(array([None, value, None, value], old), old, new)
    assert result.type == arrow_type_of(new)
    assert str(result) == str(array([None, expected, None, expected], new))
    assert convert(array([], old), old, new) == pa.array([], arrow_type_of(new))
    assert convert(array([None], old), old, new).null_count == 1


@pytest.mark.parametrize(("old", "new", "value"), WITHOUT_EQUIVALENT, ids=str)
def test_a_value_without_an_equivalent_is_never_converted(old: PrimitiveType, new: PrimitiveType, value: Any) -> None:
    with pytest.raises(NoEquivalentError):
        convert(array([None, value], old), old, new)


@pytest.mark.parametrize("new", [BooleanType(), LongType(), DateType(), TimestamptzNanoType(), BinaryType()], ids=str)
def test_a_string_of_another_engine_that_is_not_utf8_has_no_equivalent(new: PrimitiveType) -> None:
    texts = pa.StringArray.from_buffers(1, *pa.array([b"\xff"]).buffers()[1:])
    with pytest.raises(NoEquivalentError):
        convert(texts, StringType(), new)


def test_every_conversion_that_is_planned_can_be_done_and_is_tried_here() -> None:
    planned = {pair for pair, change in TYPE_CHANGES.items() if change is TypeChange.CONVERT}
    assert set(CONVERSIONS) == planned
    assert {(type(old), type(new)) for old, new, *_ in CONVERTED} == planned


SCALARS: dict[PrimitiveType, st.SearchStrategy[Any]] = {
    BooleanType(): st.booleans(),
    LongType(): st.integers(-(2**63), 2**63 - 1),
    DoubleType(): st.floats(allow_nan=False, allow_infinity=False).map(lambda number: _plain_number(number)),
    DateType(): st.dates().map(str),
    BinaryType(): st.binary(max_size=9),
    TimestamptzType(): st.datetimes(timezones=st.just(UTC)).map(
        lambda at: (
            at.isoformat().replace("+00:00", "").rstrip("0").rstrip(".") + "Z"
            if at.microsecond
            else at.isoformat().replace("+00:00", "Z")
        )
    ),
}


@pytest.mark.parametrize("type_", SCALARS, ids=str)
@given(data=st.data())
def test_a_value_as_text_is_what_a_string_column_would_have_got_in_either_form(
    type_: PrimitiveType, data: st.DataObject
) -> None:
    values = data.draw(st.lists(SCALARS[type_], min_size=1, max_size=5))
    plain = [json_line(orjson.dumps(value, default=_base64).decode()) for value in values]
    typed = decode(binding(type_), plain).batch.column("value0")
    texts = convert(typed, type_, StringType()).to_pylist()
    assert texts == column(decode(binding(StringType()), plain))
    if type_ != BinaryType():
        assert texts == column(decode(binding(StringType()), [packed(1, value) for value in values]))


DIGITS: Final = st.text("0123456789", max_size=40)
NUMBERS: Final = st.builds("{}{}.{}{}".format, st.sampled_from(["", "-"]), DIGITS, DIGITS, st.sampled_from(["", "e-3"]))
INSTANTS: Final = st.builds(
    "{}T{}.{}{}".format, st.dates(), st.times(), DIGITS, st.sampled_from(["Z", "+01:30", "-23:59", ""])
)


@pytest.mark.parametrize(
    "type_",
    [LongType(), DoubleType(), DecimalType(38, 9), DateType(), TimestamptzType(), TimestamptzNanoType(), BinaryType()],
    ids=str,
)
@given(text=st.text(max_size=5) | NUMBERS | INSTANTS | st.dates().map(str))
@example(text="0.1000000000000000055511151231257827")
@example(text="-0")
@example(text="2024-01-02T03:04:05.123456789Z")
@example(text="2024-01-02T03:04:05.1234567899Z")
def test_a_text_becomes_what_a_document_with_it_would_have_become(type_: PrimitiveType, text: str) -> None:
    """Also if it has more digits than the new type. A text that would be invalid or clamped has no equivalent."""
    try:
        converted = convert(pa.array([text]), StringType(), type_)
    except NoEquivalentError:
        converted = None
    of = replace(binding(type_), on_invalid=OnInvalid.NULL)
    for line in (packed(1, text), json_line(orjson.dumps(text).decode())):
        decoded = decode(of, [line])
        assert converted == (None if [*decoded.treated] else decoded.batch.column("value0"))


@given(st.lists(st.none() | st.floats(), max_size=9))
def test_a_double_comes_back_from_its_text_as_it_was(values: list[float | None]) -> None:
    texts = convert(array(values, DoubleType()), DoubleType(), StringType())
    assert repr(convert(texts, StringType(), DoubleType()).to_pylist()) == repr(values)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**53), 2**53), max_size=9))
def test_an_integer_that_becomes_a_double_keeps_every_digit(values: list[int | None]) -> None:
    try:
        doubles = convert(array(values, LongType()), LongType(), DoubleType())
    except NoEquivalentError:
        assert any(value is not None and abs(value) > 2**53 for value in values)
        return
    assert [None if value is None else int(value) for value in doubles.to_pylist()] == values


def _plain_number(number: float) -> float:
    """As most sources write it: 42 and not 42.0, where a double holds each integer."""
    is_plain = number.is_integer() and abs(number) < 2**53 and str(number) != "-0.0"
    return int(number) if is_plain else number


def _base64(value: object) -> str:
    assert isinstance(value, bytes)
    return convert(pa.array([value]), BinaryType(), StringType())[0].as_py()  # type: ignore[no-any-return]  # Arrow's
