"""The same rows from either form, from any mixture, and however many lines are decoded at once."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.encoding.lines.decoder import RowDecoder
from encoding.random_values import TYPES, VALUES, json_values, longs
from encoding.store_lines import binding, numbered, packed, plain

rows = st.lists(
    st.tuples(longs, st.tuples(*(st.none() | values for values in VALUES.values())), st.none() | json_values),
    min_size=1,
)
few = settings(max_examples=40)


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
