"""The value rules of docs: what lands in a column, and what may not."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
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

from connector.encoding.values.temporal import nanosecond_instants
from connector.encoding.values.texts import Texts
from connector.host.errors import InvalidValueError
from connector.model.invalid_values import Treated, Treatment
from encoding.example_values import INVALID, USUAL
from encoding.store_lines import binding, column, decode, json_line, packed, plain

LAST_INSTANT = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)

LANDS_AS: list[tuple[PrimitiveType, str, Any]] = [
    (BooleanType(), "true", True),
    (BooleanType(), "false", False),
    (LongType(), "0", 0),
    (LongType(), "1.0", 1),
    (LongType(), "1e3", 1000),
    (LongType(), "-0.0", 0),
    (LongType(), "9223372036854775807", 2**63 - 1),
    (LongType(), "-9223372036854775808", -(2**63)),
    (LongType(), '"1.0"', 1),
    (LongType(), '"-12"', -12),
    (LongType(), '"9223372036854775807.000"', 2**63 - 1),
    (LongType(), '"-9223372036854775808.0"', -(2**63)),
    (IntegerType(), "2147483647", 2**31 - 1),
    (IntegerType(), '"-2147483648.0"', -(2**31)),
    (DoubleType(), "1", 1.0),
    (DoubleType(), "1.5e300", 1.5e300),
    (DoubleType(), "100000000000000000000000000", 1e26),
    (DoubleType(), '"1.5"', 1.5),
    (DoubleType(), '"Infinity"', float("inf")),
    (DoubleType(), '"-Infinity"', float("-inf")),
    (DecimalType(9, 2), "9999999.99", Decimal("9999999.99")),
    (DecimalType(9, 2), "-9999999.990", Decimal("-9999999.99")),
    (DecimalType(9, 2), "-0.0", Decimal("0.00")),
    (DecimalType(9, 2), "1e3", Decimal("1000.00")),
    (DecimalType(9, 2), "12.5e-1", Decimal("1.25")),
    (DecimalType(9, 2), "0e-400", Decimal("0.00")),
    (DecimalType(9, 2), f"0.1{'0' * 60}", Decimal("0.10")),
    (DecimalType(9, 2), '"+001.5"', Decimal("1.50")),
    (DecimalType(9, 2), '".5"', Decimal("0.50")),
    (DecimalType(9, 2), f'"{"0" * 60}5."', Decimal("5.00")),
    (DecimalType(18, 18), "1e-18", Decimal("1e-18")),
    (DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
    (DecimalType(38, 0), "1e37", Decimal(10**37)),
    (DecimalType(38, 0), "-" + "9" * 38 + ".000", Decimal("-" + "9" * 38)),
    (DecimalType(38, 38), "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
    (DecimalType(38, 30), "12345678.123456789", Decimal("12345678.123456789")),
    (StringType(), '"it\\u00e9 \\"is\\" \\u0000"', 'ité "is" \0'),
    (StringType(), '""', ""),
    (StringType(), '"null"', "null"),
    (StringType(), "true", "true"),
    (StringType(), "1.10", "1.10"),
    (StringType(), '{"b":1.10, "a":[null,"\\u00e9"]}', '{"b":1.10, "a":[null,"\\u00e9"]}'),
    (StringType(), "[]", "[]"),
    (BinaryType(), '"aGVsbG8="', b"hello"),
    (BinaryType(), '""', b""),
    (DateType(), '"2024-02-29"', date(2024, 2, 29)),
    (DateType(), '"0001-01-01"', date(1, 1, 1)),
    (TimestamptzType(), '"2024-01-02T03:04:05Z"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (TimestamptzType(), '"2024-01-02t03:04:05.5z"', datetime(2024, 1, 2, 3, 4, 5, 500000, UTC)),
    (TimestamptzType(), '"2024-01-02T03:04:05+05:30"', datetime(2024, 1, 1, 21, 34, 5, tzinfo=UTC)),
    (TimestamptzType(), '"2024-01-02T03:04:05.123456789-01:00"', datetime(2024, 1, 2, 4, 4, 5, 123456, UTC)),
    (TimestamptzType(), '"1969-12-31T23:59:59.9999999Z"', datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    (TimestamptzType(), '"2016-12-31T23:59:60.25Z"', datetime(2017, 1, 1, 0, 0, 0, 250000, UTC)),
    (TimestamptzType(), '"2024-01-02 03:04:05Z"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (TimestamptzType(), '"2024-01-02_03:04:05Z"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (TimestamptzType(), '"2024-01-02x03:04:05.5+05:30"', datetime(2024, 1, 1, 21, 34, 5, 500000, UTC)),
    (TimestamptzType(), '"2024-01-02-03:04:05-01:00"', datetime(2024, 1, 2, 4, 4, 5, tzinfo=UTC)),
    (TimestamptzType(), '"2024-01-02\\u000003:04:05.123456789Z"', datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)),
    (TimestamptzType(), '"2024-01-02T03:04:05"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (TimestamptzType(), '"2024-01-02t03:04:05.5"', datetime(2024, 1, 2, 3, 4, 5, 500000, UTC)),
    (TimestamptzType(), '"2024-01-02 03:04:05.123456789"', datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)),
    (TimestamptzType(), '"2016-12-31T23:59:60.25"', datetime(2017, 1, 1, 0, 0, 0, 250000, UTC)),
]

CLAMPED: list[tuple[PrimitiveType, str, Any]] = [
    (DateType(), "0000-12-31", date.min),
    (DateType(), "-0044-03-15", date.min),
    (DateType(), "10000-01-01", date.max),
    (DateType(), "5874897-12-31", date.max),  # PostgreSQL's last one
    (DateType(), f"{'9' * 30}-12-31", date.max),
    (DateType(), f"-{'9' * 30}-12-31", date.min),
    (TimestamptzType(), "0000-06-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    (TimestamptzType(), "0001-01-01T00:00:00+00:01", datetime(1, 1, 1, tzinfo=UTC)),
    (TimestamptzType(), "9999-12-31T23:59:59-00:01", LAST_INSTANT),
    (TimestamptzType(), "9999-12-31T23:59:60Z", LAST_INSTANT),
    (TimestamptzType(), "+999999-01-01T00:00:00Z", LAST_INSTANT),
    (TimestamptzType(), "+999999-01-01T00:00:00", LAST_INSTANT),
    (TimestamptzType(), "0000-06-01_00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    (TimestamptzType(), "292277026596-12-04T15:30:08Z", LAST_INSTANT),
    (TimestamptzType(), f"-{'9' * 30}-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
]


def test_an_instant_that_is_clamped_loses_its_nanoseconds() -> None:
    texts = [f"{year}-01-01T00:00:00.000000999Z" for year in (1600, 2024, 2263)]
    found, clamped = nanosecond_instants(Texts(pa.array(texts), np.ones(len(texts), np.bool_)))
    microseconds = [-(2**63 // 1000), 1_704_067_200_000_000, 2**63 // 1000 - 1]
    nanoseconds = [1000 * each + rest for each, rest in zip(microseconds, (0, 999, 0), strict=True)]
    assert found.cast(pa.int64()).to_pylist() == nanoseconds
    assert clamped.tolist() == [0, 2]


@pytest.mark.parametrize("text", ["2024-01-02 03:04:05.123456789", "2024-01-02_03:04:05.123456789Z"])
def test_an_instant_keeps_its_nanoseconds_however_it_is_written(text: str) -> None:
    found, clamped = nanosecond_instants(Texts(pa.array([text, None]), np.ones(2, np.bool_)))
    assert found.cast(pa.int64()).to_pylist() == [1_704_164_645_123_456_789, None]
    assert not len(clamped)


@pytest.mark.parametrize(
    ("second", "nanoseconds"),
    [("0", 0), ("0.5", 500_000_000), ("0.1234567", 123_456_700), ("0.12345678", 123_456_780), ("0.0000000019", 1)],
)
def test_an_instant_may_have_any_number_of_digits(second: str, nanoseconds: int) -> None:
    texts = [f"{minute}{second}Z" for minute in ("1970-01-01T00:00:0", "1969-12-31T23:59:0")]
    found, _ = nanosecond_instants(Texts(pa.array(texts), np.ones(2, np.bool_)))
    assert found.cast(pa.int64()).to_pylist() == [nanoseconds, nanoseconds - 60_000_000_000]


@pytest.mark.parametrize(("type_", "json", "expected"), LANDS_AS, ids=str)
def test_a_value_lands_as_its_columns_type_has_it(type_: PrimitiveType, json: str, expected: Any) -> None:
    assert column(decode(binding(type_), [json_line(json)])) == [expected]


@pytest.mark.parametrize(("type_", "json", "expected"), LANDS_AS, ids=str)
def test_a_value_lands_the_same_among_a_thousand_usual_ones(type_: PrimitiveType, json: str, expected: Any) -> None:
    lines = [json_line(USUAL[type_])] * 700 + [json_line(json)] + [json_line(USUAL[type_])] * 300

    values = column(decode(binding(type_), lines))

    assert values[700] == expected
    assert values[:700] + values[701:] == column(decode(binding(type_), [json_line(USUAL[type_])])) * 1000


@pytest.mark.parametrize("type_", USUAL, ids=str)
@pytest.mark.parametrize("line", [json_line, lambda _: packed(1, None)], ids=["plain", "packed"])
def test_null_lands_as_null(type_: PrimitiveType, line: Any) -> None:
    decoded = decode(binding(type_), [line("null"), json_line(USUAL[type_]), line("null")])

    assert decoded.batch.column("value0").null_count == 2
    assert decoded.batch.num_rows == 3


def test_a_packed_integer_that_came_as_a_double_lands_as_the_integer() -> None:
    lines = [packed(1, 1000.0), packed(2, "1.0"), packed(3, -5)]

    assert column(decode(binding(LongType()), lines)) == [1000, 1, -5]


def test_packed_numbers_of_any_kind_are_decimals_as_they_are_written() -> None:
    values = [7, -7, 0, 2**64 - 1, -(2**64) + 1, 2**65, 0.1, -2.5, -0.0, 1e17, "12.34", "-1e3"]
    lines = [packed(number, value) for number, value in enumerate(values)]

    assert column(decode(binding(DecimalType(38, 4)), lines)) == [Decimal(str(value)) for value in values]


def test_nan_lands_as_nan() -> None:
    for line in (plain(1, "NaN"), packed(1, "NaN")):
        (value,) = column(decode(binding(DoubleType()), [line]))
        assert value != value


@pytest.mark.parametrize("beside", ["7.5", '"7.5"', '"NaN"'])
@pytest.mark.parametrize(("zero", "expected"), [("-0", "0.0"), ('"-0"', "-0.0"), ("-0.0", "-0.0"), ("-0e1", "-0.0")])
def test_a_zero_has_the_sign_that_it_has_alone_whatever_stands_beside_it(beside: str, zero: str, expected: str) -> None:
    """An integer has one zero."""
    values = column(decode(binding(DoubleType()), [json_line(zero), json_line(beside), json_line(zero)]))
    assert [repr(values[0]), repr(values[2])] == [expected] * 2


@pytest.mark.parametrize(("type_", "text", "expected"), CLAMPED, ids=str)
def test_what_lies_outside_the_years_1_to_9999_is_clamped_and_counted(
    type_: PrimitiveType, text: str, expected: Any
) -> None:
    lines = [plain(1, text, None), plain(2, None, None), packed(3, text, text)]

    decoded = decode(binding(type_, type_), lines)

    assert column(decoded).count(expected) == 2
    assert [*decoded.treated] == [
        ("value0", Treatment.CLAMPED, Treated(2)),
        ("value1", Treatment.CLAMPED, Treated(1)),
    ]


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        (DateType(), "0001-01-01", date.min),
        (DateType(), "9999-12-31", date.max),
        (TimestamptzType(), "0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        (TimestamptzType(), "9999-12-31T23:59:59.999999Z", LAST_INSTANT),
    ],
    ids=str,
)
def test_the_first_and_the_last_value_are_not_clamped(type_: PrimitiveType, text: str, expected: Any) -> None:
    decoded = decode(binding(type_), [plain(1, text)])
    assert column(decoded) == [expected]
    assert not decoded.treated


@pytest.mark.parametrize(("type_", "json"), INVALID, ids=str)
def test_a_value_that_fits_in_no_way_is_an_error_that_says_all_about_it(type_: PrimitiveType, json: str) -> None:
    lines = [json_line(USUAL[type_]), json_line(USUAL[type_]), json_line(json, key="77"), json_line(USUAL[type_])]

    with pytest.raises(InvalidValueError) as raised:
        decode(binding(type_), lines, first_line=40)

    error = raised.value
    assert (error.invalid.table, error.invalid.field, error.invalid.key, error.invalid.value, error.invalid.line) == (
        "shop.orders",
        "value0",
        "[77]",
        json,
        42,
    )


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (LongType(), 2**63),
        (LongType(), -(2**63) - 1),
        (LongType(), 2**90),
        (IntegerType(), 2**31),
        (LongType(), 1.5),
        (LongType(), {"x": 1}),
        (DoubleType(), True),
        (DecimalType(9, 2), 2**128 + 1),
        (DecimalType(9, 2), -(2**128) - 1),
        (DecimalType(9, 2), 0.001),
        (DecimalType(9, 2), 1e20),
        (DecimalType(38, 0), 1.5),
        (DecimalType(9, 2), False),
        (BooleanType(), "true"),
        (BinaryType(), "a"),
        (BinaryType(), [1234]),
        (DateType(), 20230228),
        (TimestamptzType(), "yesterday"),
    ],
    ids=str,
)
def test_the_packed_form_names_an_invalid_value_just_as_well(type_: PrimitiveType, value: Any) -> None:
    lines = [packed(1, None), packed(77, value), packed(3, None)]

    with pytest.raises(InvalidValueError) as raised:
        decode(binding(type_), lines, first_line=40)

    expected = str(value) if isinstance(value, int) and not isinstance(value, bool) else orjson.dumps(value).decode()
    assert (raised.value.invalid.key, raised.value.invalid.value, raised.value.invalid.line) == ("[77]", expected, 41)


@pytest.mark.parametrize("line", [plain(2, None), packed(2, None)], ids=["plain", "packed"])
def test_null_in_a_required_column_is_an_error(line: bytes) -> None:
    with pytest.raises(
        InvalidValueError,
        match=r"line 2: table shop\.orders, field 'value0', key \[2\]: the value is null or missing in the document",
    ):
        decode(binding(StringType(), required=True), [plain(1, "a"), line])


def test_a_long_value_is_shortened_in_the_error() -> None:
    with pytest.raises(InvalidValueError) as raised:
        decode(binding(LongType()), [plain(1, "x" * 100_000)])

    assert len(raised.value.invalid.value) < 200
