"""The same rows from either form, from any mixture, and however many lines are decoded at once."""

import base64
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.rows.decoder import RowDecoder
from rows.store_lines import binding, numbered, packed, plain

longs = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 255, 256, -255, -256, 2**63 - 1, -(2**63)])
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8")) | st.sampled_from(["\0", "\0\0", "a\0ÿ", "\\", '"', "null", "𝄞"])
json_values = st.recursive(
    st.none() | st.booleans() | longs | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
offsets = st.sampled_from(["Z", "z", "+00:00", "-12:00", "+05:45", "+23:59", "-23:59"])
fractions = st.from_regex(r"(\.[0-9]{1,9})?", fullmatch=True, alphabet="0123456789.")
years = st.integers(0, 9999).map("{:04}".format)
dates = st.builds("{}-{:02}-{:02}".format, years, st.integers(1, 12), st.integers(1, 28))
clocks = st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59), st.integers(0, 60))
date_times = st.builds("{}{}{}{}{}".format, dates, st.sampled_from("Tt"), clocks, fractions, offsets)

VALUES: dict[PrimitiveType, st.SearchStrategy[Any]] = {
    BooleanType(): st.booleans(),
    LongType(): longs | longs.map(str) | st.integers(-(2**53), 2**53).map(float),
    DoubleType(): finite
    | st.integers(-(2**63), 2**64 - 1)
    | st.integers().map(str)
    | finite.map(repr)
    | st.sampled_from(["-Infinity"]),
    StringType(): json_values,
    BinaryType(): st.binary().map(lambda content: base64.b64encode(content).decode()),
    DateType(): dates,
    TimestamptzType(): date_times,
}
TYPES = tuple(VALUES)
rows = st.lists(
    st.tuples(longs, st.tuples(*(st.none() | values for values in VALUES.values())), st.none() | json_values),
    min_size=1,
)
few = settings(max_examples=40, deadline=None, database=None)


def line(form: Any, row: Any) -> bytes:
    key, values, document = row
    made: bytes = form(key, *values) if document is None else form(key, *values, doc=document)
    return made


def batch(*lines: bytes) -> pa.RecordBatch:
    decoded = RowDecoder(binding(*TYPES, document=True)).decode(numbered(b"".join(lines)))
    assert not decoded.strays
    return decoded.batch


@few
@given(rows)
def test_both_forms_give_the_same_rows(rows: list[Any]) -> None:
    assert batch(*(line(packed, row) for row in rows)).equals(batch(*(line(plain, row) for row in rows)))


@few
@given(rows)
def test_lines_decoded_together_give_the_rows_that_each_gives_alone(rows: list[Any]) -> None:
    for form in (plain, packed):
        lines = [line(form, row) for row in rows]
        assert pa.concat_batches([batch(one) for one in lines]).equals(batch(*lines))


@few
@given(rows, rows)
def test_a_decoder_gives_the_same_rows_whatever_it_has_decoded_before(before: list[Any], rows: list[Any]) -> None:
    decoder = RowDecoder(binding(*TYPES, document=True))
    lines = b"".join(line(plain, row) for row in rows)
    decoder.decode(numbered(b"".join(line(plain, row) for row in before)))

    assert decoder.decode(numbered(lines)).batch.equals(batch(lines))


@few
@given(rows, st.data())
def test_forms_may_change_from_line_to_line(rows: list[Any], data: st.DataObject) -> None:
    mixed = [line(data.draw(st.sampled_from([plain, packed])), row) for row in rows]

    decoded = batch(*mixed).to_pylist()

    assert sorted(map(repr, decoded)) == sorted(map(repr, batch(*(line(plain, row) for row in rows)).to_pylist()))
