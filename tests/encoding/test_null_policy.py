"""`on_invalid: null`: a value that fits its column in no way becomes null, is counted, and nothing else changes."""

from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.types import DateType, LongType, PrimitiveType, StringType, TimestamptzType

from connector.encoding.lines.decoder import RowDecoder
from connector.host.errors import InvalidValueError
from connector.model.binding import Binding, Column
from connector.model.invalid_values import OnInvalid, Treated, Treatment
from encoding.example_values import INVALID, USUAL
from encoding.store_lines import binding, column, decode, json_line, numbered, packed, plain
from protocol.protocol_error import ProtocolError


def nulling(*types: PrimitiveType, **options: Any) -> Binding:
    return replace(binding(*types, **options), on_invalid=OnInvalid.NULL)


@pytest.mark.parametrize(("type_", "json"), INVALID, ids=str)
def test_an_invalid_value_becomes_null_and_its_neighbours_stay(type_: PrimitiveType, json: str) -> None:
    lines = [json_line(USUAL[type_], key="1"), json_line(json, key="2"), json_line(USUAL[type_], key="3")]
    [usual] = column(decode(binding(type_), lines[:1]))

    decoded = decode(nulling(type_), lines, first_line=40)

    assert decoded.batch.to_pylist() == [
        {"id": 1, "value0": usual},
        {"id": 2, "value0": None},
        {"id": 3, "value0": usual},
    ]
    [(field, treatment, treated)] = decoded.treated
    assert (field, treatment, treated.count) == ("value0", Treatment.NULLED, 1)
    assert treated.example.startswith(f"key [2]: {json} is not ")


@pytest.mark.parametrize("form", [plain, packed])
def test_every_invalid_value_is_counted_by_its_field(form: Any) -> None:
    dates, numbers = ["yesterday", "2024-01-01", 20240101, None], ["x", 2**63, 7, 1.5]
    lines = [form(n, date, number) for n, (date, number) in enumerate(zip(dates * 500, numbers * 500, strict=True))]

    decoded = decode(nulling(DateType(), LongType()), lines)

    assert [str(value) for value in column(decoded)] == ["None", "2024-01-01", "None", "None"] * 500
    assert column(decoded, "value1") == [None, None, 7, None] * 500
    assert {field: treated.count for field, _, treated in decoded.treated} == {"value0": 1000, "value1": 1500}


def test_a_column_that_is_never_fit_is_null_in_every_batch() -> None:
    decoder = RowDecoder(nulling(TimestamptzType(), LongType()))
    lines = b"".join(plain(n, "2024-01-01", "many") for n in range(50))

    for _ in range(3):
        decoded = decoder.decode(numbered(lines))
        assert column(decoded) == column(decoded, "value1") == [None] * 50
        assert decoded.treated.total(Treatment.NULLED) == 100


def test_text_that_is_not_utf8_becomes_null() -> None:
    lines = [
        plain(1, "a"),
        b'{"store":{"binding":3,"key":[2],"values":["\xff"]}}\n',
        b'{"store":{"binding":3,"key":[3],"values":[{"a":"\xff"}]}}\n',
        b'{"store":{"binding":3,"key":[4],"values":["\\n\xff"]}}\n',
        b'{"store":{"binding":3,"key":[5],"values":["\\ud800\xff"]}}\n',
        packed(6, "d"),
    ]

    decoded = decode(nulling(StringType()), lines)

    values = {row["id"]: row["value0"] for row in decoded.batch.to_pylist()}
    assert values == {1: "a", 2: None, 3: None, 4: None, 5: None, 6: "d"}
    assert decoded.treated.total(Treatment.NULLED) == 4


def test_a_packed_string_with_zeros_in_it_becomes_null_like_any_other() -> None:
    decoded = decode(nulling(DateType()), [packed(1, "2024\0"), packed(2, "2024-01-01"), packed(3, "\0\0")])

    assert [str(value) for value in column(decoded)] == ["None", "2024-01-01", "None"]


@pytest.mark.parametrize("form", [plain, packed])
def test_in_a_required_column_it_still_stops_and_says_why(form: Any) -> None:
    for value in (None, "x"):
        with pytest.raises(InvalidValueError, match='"null" does not help here: the column is required') as raised:
            decode(nulling(LongType(), required=True), [form(1, 5), form(77, value)])
        assert (raised.value.invalid.line, raised.value.invalid.key, raised.value.invalid.field) == (
            2,
            "[77]",
            "value0",
        )


@pytest.mark.parametrize("form", [plain, packed])
@pytest.mark.parametrize("required", [True, False])
def test_in_a_key_it_still_stops_and_says_why(form: Any, required: bool) -> None:
    """The key of a table that was there before may be optional."""
    of = replace(nulling(LongType()), keys=(Column("id", "id", 1, LongType(), required),))

    with pytest.raises(InvalidValueError, match='"null" does not help here: the column is part of the key') as raised:
        decode(of, [form(1, 5), form("x", 5)])

    assert (raised.value.invalid.line, raised.value.invalid.key, raised.value.invalid.field) == (2, '["x"]', "id")


def test_lines_of_other_bindings_among_them_are_handed_back_and_counted_for_nothing() -> None:
    other = b'{"store":{"binding":30,"key":["x"],"values":["x"]}}\n'

    decoded = decode(nulling(LongType()), [other, plain(1, "x"), other, packed(2, 5), packed(3, "x")], first_line=10)

    assert sorted(map(str, column(decoded))) == ["5", "None", "None"]
    assert [stray.number for stray in decoded.strays] == [10, 12]
    assert decoded.treated.total(Treatment.NULLED) == 2


def test_a_line_that_is_wrong_still_stops() -> None:
    for line in (plain(2), b'{"store":{"binding":3,"key":[2],"values":["x"\n', packed(2, 5, 5)):
        with pytest.raises(ProtocolError, match="line 2"):
            decode(nulling(LongType()), [plain(1, "x"), line])


def test_values_that_are_clamped_are_counted_beside_those_that_became_null() -> None:
    decoded = decode(nulling(DateType()), [plain(1, "0000-01-01"), plain(2, "never"), plain(3, "+10000-01-01")])

    assert [*decoded.treated] == [
        ("value0", Treatment.NULLED, Treated(1, 'key [2]: "never" is not a date')),
        ("value0", Treatment.CLAMPED, Treated(2)),
    ]
