"""Load lines: which keys they ask for in both forms, and what is said of those that are wrong."""

import base64
import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import DoubleType, LongType, PrimitiveType, StringType

from connector.encoding.lines.load_lines import keys_table_of_loads, parse_loads
from connector.model.binding import Binding, Column, KeyPart, Updates
from encoding.store_lines import INDEX, binding, json_line, numbered, plain
from fixtures.packed import pack
from protocol.protocol_error import ProtocolError
from support.snapshots import check_text


def keyed(*types: PrimitiveType) -> Binding:
    columns = tuple(Column(f"k{n}", f"k{n}", 20 + n, type_, True) for n, type_ in enumerate(types))
    parts = tuple(KeyPart(column.id, f"/{column.field}") for column in columns)
    return replace(binding(document=True), keys=columns, updates=Updates(parts, 100))


LONG = keyed(LongType())


def load(*key: Any, index: int = INDEX) -> bytes:
    return json.dumps({"load": {"binding": index, "key": key}}, ensure_ascii=False).encode() + b"\n"


def packed_load(*key: Any) -> bytes:
    return orjson.dumps({"load": {"binding": INDEX, "keyPacked": base64.b64encode(pack(key)).decode()}}) + b"\n"


def keys(of: Binding, *lines: bytes) -> list[tuple[Any, ...]]:
    table = keys_table_of_loads(of, parse_loads(numbered(b"".join(lines)))[INDEX])
    assert table.column_names == [*(str(column.id) for column in of.keys), "key"]
    return [tuple(row.values()) for row in table.to_pylist()]


def test_both_forms_of_a_key_have_the_same_values_and_the_same_text() -> None:
    of = keyed(StringType(), LongType())
    key = ('a"é\\\n\0', -(2**40))

    assert keys(of, load(*key)) == keys(of, packed_load(*key)) == [(*key, '["a\\"é\\\\\\n\\u0000",-1099511627776]')]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64) + 1, 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)


@given(st.lists(st.tuples(SCALARS, SCALARS), min_size=1, max_size=5))
def test_any_key_has_one_text_in_both_forms(some: list[tuple[Any, Any]]) -> None:
    of = keyed(StringType(), StringType())

    texts = [
        [json.loads(row[-1]) for row in keys(of, *map(form, *zip(*some, strict=True)))] for form in (load, packed_load)
    ]
    assert texts[0] == texts[1] == [[*key] for key in some]


def test_bindings_are_told_apart() -> None:
    lines = [load(1), load(2, index=4), b'{"load":{"key":["x"]}}\n', load(3), b'{"load":{"binding":"4","key":[5]}}\n']
    found = parse_loads(numbered(b"".join(lines), first_line=10))

    assert {index: [*map(lines.number, range(len(lines.loads)))] for index, lines in found.items()} == {
        INDEX: [10, 13],
        4: [11, 14],
        0: [12],
    }


def test_a_key_that_its_columns_cannot_hold_is_left_out_in_both_forms() -> None:
    not_utf8 = b'{"load":{"binding":3,"key":["\xff"]}}\n'
    packed_not_utf8 = b'{"load":{"binding":3,"keyPacked":"%b"}}\n' % base64.b64encode(b"\x02\xff\x00")
    half = b'{"load":{"binding":3,"key":["\\ud800"]}}\n'

    lines = [load("x"), packed_load("x"), load(2**63), not_utf8, packed_not_utf8, half, load("07"), packed_load(7)]
    assert keys(LONG, *lines) == [(7, '["07"]'), (7, "[7]")]
    assert keys(keyed(StringType()), load("a"), not_utf8, packed_not_utf8, half, packed_load("b")) == [
        ("a", '["a"]'),
        ("b", '["b"]'),
    ]


def test_numbers_that_are_no_number_have_the_text_that_stores_have() -> None:
    [row] = keys(keyed(DoubleType()), packed_load(float("inf")))

    assert row == (float("inf"), '["Infinity"]')


def test_unknown_members_and_white_space_do_not_matter() -> None:
    line = (
        b' { "$internal":{}, "load" : {"values": 7, "new":[{}],"key":[ 5 ] ,"doc":{}, "binding" :3}, "flush":null } \n'
    )

    assert keys(LONG, line, load(6)) == [(5, "[5]"), (6, "[6]")]


def test_an_empty_list_beside_the_packed_form_is_as_good_as_none() -> None:
    assert keys(LONG, b'{"load":{"binding":3,"key":[],"keyPacked":"FQE="}}\n', load(2)) == [(2, "[2]"), (1, "[1]")]


def test_no_lines_are_no_loads() -> None:
    assert parse_loads(numbered(b"")) == {}


WRONG_LINES = {
    "a Store": plain(1, "a"),
    "a Store with half of a surrogate pair": json_line('"\\ud800"'),
    "no JSON": b'{"load":{"binding":3,"key":[1}}\n',
    "blank": b"\n",
    "not UTF-8": b'{"load":{"binding":3,"key":\xff}}\n',
    "a binding that is no number": b'{"load":{"binding":"three","key":[1]}}\n',
    "too few elements": b'{"load":{"binding":3,"key":[]}}\n',
    "too many elements": load(1, 2),
    "no key": b'{"load":{"binding":3}}\n',
    "another message beside it": load(1)[:-2] + b',"flush":{}}\n',
    "twice": load(1)[:-2] + b"," + load(2)[1:],
    "twice, and half of a surrogate pair": load(1)[:-2] + b',"load":{"key":["\\ud800"]}}\n',
    "a key that is no array": b'{"load":{"binding":3,"key":1}}\n',
    "a packed key that is not base64": b'{"load":{"binding":3,"keyPacked":"?"}}\n',
    "a packed key cut off": b'{"load":{"binding":3,"keyPacked":"FgE="}}\n',
    "a packed key of two elements": packed_load(1, 2),
}


@pytest.mark.parametrize("name", WRONG_LINES)
@pytest.mark.parametrize("before", [0, 2])
def test_a_wrong_line_is_a_protocol_error_that_names_it(name: str, before: int) -> None:
    lines = numbered(load(1) * before + WRONG_LINES[name] + packed_load(3), first_line=100)

    with pytest.raises(ProtocolError, match=rf"^line {100 + before}\b") as error:
        keys_table_of_loads(LONG, parse_loads(lines)[INDEX])
    check_text("protocol_errors", f"a Load: {name}", str(error.value), {f"line {100 + before}": "line N"})
