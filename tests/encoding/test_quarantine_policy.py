"""`on_invalid: quarantine`: a row with a value that fits its column in no way leaves its table, whole."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import orjson
import pytest
from pyiceberg.types import DateType, DoubleType, LongType, PrimitiveType, StringType, TimestamptzType

from connector.encoding.lines.decoder import RowDecoder
from connector.encoding.lines.invalid_cells import RejectedRow, make_batch
from connector.encoding.values.column_types import arrow_schema
from connector.model.binding import Binding
from connector.model.invalid_values import OnInvalid, Treated, Treatment
from encoding.example_values import INVALID, USUAL
from encoding.store_lines import binding, column, decode, json_line, numbered, packed, packed_line, plain
from protocol.protocol_error import ProtocolError


def quarantining(*types: PrimitiveType, **options: Any) -> Binding:
    return replace(binding(*types, **options), on_invalid=OnInvalid.QUARANTINE)


@pytest.mark.parametrize(("type_", "json"), INVALID, ids=str)
def test_a_row_with_an_invalid_value_is_rejected_as_it_was_sent(type_: PrimitiveType, json: str) -> None:
    lines = [json_line(USUAL[type_], key="1"), json_line(json, key="2"), json_line(USUAL[type_], key="3")]

    decoded = decode(quarantining(type_), lines)

    assert column(decoded, "id") == [1, 3]
    assert column(decoded) == column(decode(binding(type_), lines[:1])) * 2
    [row] = decoded.rejected
    assert (row.field, row.key, row.document) == ("value0", "[2]", f'{{"id":2,"value0":{json}}}')
    assert row.reason.startswith("is not ")
    assert [*decoded.treated] == [
        ("value0", Treatment.REJECTED, Treated(1, f"key [2]: {json} {row.reason}")),
    ]


@pytest.mark.parametrize("form", [plain, packed])
def test_both_forms_keep_everything_that_was_sent(form: Any) -> None:
    values = [1.5, 'two \0 "lines"\n', {"a": [1, None]}, True, 2**63, None, "never"]
    of = quarantining(*[StringType()] * 6, DateType(), document=True)

    [row] = decode(of, [form(7, *values, doc={"all": "of it"})]).rejected

    assert row.key == "[7]"
    fields = {"id": 7, **{f"value{n}": value for n, value in enumerate(values)}, "flow_document": {"all": "of it"}}
    assert orjson.loads(row.document) == fields


def test_a_number_that_is_none_in_json_is_a_string_there() -> None:
    lines = [packed(1, float("nan"), "never"), packed(2, float("-inf"), "never")]

    rejected = decode(quarantining(DoubleType(), DateType()), lines).rejected

    assert [orjson.loads(row.document)["value0"] for row in rejected] == ["NaN", "-Infinity"]


def test_text_that_is_not_utf8_is_kept_with_replacement_characters() -> None:
    lines = [b'{"store":{"binding":3,"key":[2],"values":["a\xff"]}}\n', packed_line(b"\x02a\xff\x00")]

    rejected = decode(quarantining(StringType()), lines).rejected

    assert [orjson.loads(row.document)["value0"] for row in rejected] == ["a\N{REPLACEMENT CHARACTER}"] * 2
    assert {row.reason for row in rejected} == {"is not valid UTF-8"}


def test_the_first_field_with_an_invalid_value_is_the_one_that_is_named_and_counted() -> None:
    lines = [plain(1, "x", "never"), plain("one", "x", 5), plain(3, 3, "never"), plain(4, 4, "2024-01-01")]

    decoded = decode(quarantining(LongType(), DateType()), lines)

    assert [row.field for row in decoded.rejected] == ["value0", "id", "value1"]
    assert {(field, treated.count) for field, _, treated in decoded.treated} == {
        ("value0", 1),
        ("id", 1),
        ("value1", 1),
    }
    assert decoded.batch.to_pylist() == [{"id": 4, "value0": 4, "value1": date(2024, 1, 1)}]


@pytest.mark.parametrize("form", [plain, packed])
def test_a_null_in_a_required_column_or_a_key_rejects_its_row(form: Any) -> None:
    decoded = decode(quarantining(LongType(), required=True), [form(1, None), form(None, 2), form(3, 3), form(4, "x")])

    assert decoded.batch.to_pylist() == [{"id": 3, "value0": 3}]
    missing = "is null or missing in the document, and the column is required"
    assert [(row.key, row.field, row.reason) for row in decoded.rejected] == [
        ("[1]", "value0", missing),
        ("[null]", "id", missing),
        ("[4]", "value0", "is not an integer of 64 bits"),
    ]
    assert not decoded.batch.column("value0").null_count


def test_values_of_rejected_rows_do_not_count_as_clamped() -> None:
    lines = [plain(1, "0000-01-01", 1), plain(2, "0000-01-01", "x"), plain(3, "2024-01-01", 1)]

    decoded = decode(quarantining(DateType(), LongType()), lines)

    assert {(field, what): treated.count for field, what, treated in decoded.treated} == {
        ("value0", Treatment.CLAMPED): 1,
        ("value1", Treatment.REJECTED): 1,
    }


def test_rows_of_either_form_and_lines_of_other_bindings_keep_apart() -> None:
    other = b'{"store":{"binding":30,"key":["x"],"values":["x"]}}\n'
    lines = [plain(1, "x"), other, packed(2, "x"), plain(3, 3), packed(4, 4), other, plain(5, "x")]

    decoded = decode(quarantining(LongType()), lines, first_line=10)

    assert sorted(column(decoded)) == [3, 4]
    assert sorted(row.key for row in decoded.rejected) == ["[1]", "[2]", "[5]"]
    assert [stray.number for stray in decoded.strays] == [11, 15]


def test_a_batch_of_nothing_but_bad_rows_has_none() -> None:
    decoder = RowDecoder(quarantining(TimestamptzType()))
    for _ in range(2):
        decoded = decoder.decode(numbered(b"".join(plain(n, "now") for n in range(100))))
        assert decoded.batch.num_rows == 0
        assert [row.key for row in decoded.rejected] == [f"[{n}]" for n in range(100)]


def test_a_line_that_is_wrong_still_stops() -> None:
    for line in (plain(2), b'{"store":{"binding":3,"key":[2],"values":["x"\n', packed(2, 5, 5)):
        with pytest.raises(ProtocolError, match="line 2"):
            decode(quarantining(LongType()), [plain(1, "x"), line])


def test_a_long_value_is_kept_whole_and_shortened_in_the_log() -> None:
    decoded = decode(quarantining(LongType()), [plain("k" * 1000, 1), plain(1, "x" * 100_000)])

    assert [row.document for row in decoded.rejected] == [
        f'{{"id":"{"k" * 1000}","value0":1}}',
        f'{{"id":1,"value0":"{"x" * 100_000}"}}',
    ]
    assert decoded.rejected[0].key == f'["{"k" * 1000}"]'
    assert decoded.treated
    assert all(len(treated.example) < 400 for _, _, treated in decoded.treated)


def test_rejected_rows_become_the_columns_of_their_table() -> None:
    table = replace(
        binding(StringType(), StringType(), StringType(), StringType(), TimestamptzType(), required=True), keys=()
    )
    now = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)

    batch = make_batch(
        [RejectedRow("r", "f", "[1]", "{}"), RejectedRow("s", "g", "[2]", "{}")], now, arrow_schema(table)
    )

    assert [[*row.values()] for row in batch.to_pylist()] == [
        ["r", "f", "[1]", "{}", now],
        ["s", "g", "[2]", "{}", now],
    ]
