"""The parts of a JSON text are those that every other reader sees, and text that is no JSON has none."""

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.json_parts import MalformedJsonError, mask_surrogates, parse_items, parse_members, unmask_surrogates

SPACES: Final = st.text(" \t\r\n", max_size=2)
SCALARS: Final = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES: Final = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


def spaced(text: str, data: st.DataObject) -> bytes:
    """The text with spaces in front of and behind it."""
    return (data.draw(SPACES) + text + data.draw(SPACES)).encode()


@given(st.lists(VALUES, max_size=5), st.booleans(), st.data())
def test_the_items_of_an_array_are_its_values_as_written(
    values: list[Any], is_ascii: bool, data: st.DataObject
) -> None:
    written = [json.dumps(value, ensure_ascii=is_ascii) for value in values]
    text = b"[" + b",".join(spaced(value, data) for value in written) + b"]"
    assert parse_items(text if values else b" [ ] ") == [value.encode() for value in written]


@given(st.lists(st.tuples(st.text(), VALUES), max_size=5), st.booleans(), st.data())
def test_the_members_of_an_object_are_its_pairs_in_their_order(
    pairs: list[tuple[str, Any]], is_ascii: bool, data: st.DataObject
) -> None:
    written = [(json.dumps(name, ensure_ascii=is_ascii), json.dumps(value)) for name, value in pairs]
    text = b",".join(spaced(name, data) + b":" + spaced(value, data) for name, value in written)
    assert parse_members(b"{" + text + b"}") == [(name, json.dumps(value).encode()) for name, value in pairs]


@given(VALUES, st.data())
def test_a_text_with_one_wrong_byte_is_taken_apart_only_if_it_still_is_json(value: Any, data: st.DataObject) -> None:
    text = json.dumps([value])
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from('[]{},:"\\ux0-.eE1tn\x01 ')) + text[at + 1 :]
    try:
        parts: list[Any] | None = [json.loads(item) for item in parse_items(changed.encode())]
    except MalformedJsonError:
        parts = None
    try:
        expected = json.loads(changed)
    except ValueError:
        expected = None
    assert parts == (expected if isinstance(expected, list) else None)


@pytest.mark.parametrize(
    "text", [b"", b" ", b"[", b"[1", b"[1,]", b"[,]", b"[1 2]", b"[1]]", b"[1}", b"[01]", b"[+1]", b"[.5]", b"[nan]"]
)
def test_what_is_no_array_has_no_items(text: bytes) -> None:
    with pytest.raises(MalformedJsonError):
        parse_items(text)


@pytest.mark.parametrize("text", [b"[]", b"1", b'{"a"}', b'{"a":}', b"{a:1}", b'{"a":1,}', b'{"a":1]', b'{"a" 1}'])
def test_what_is_no_object_has_no_members(text: bytes) -> None:
    with pytest.raises(MalformedJsonError):
        parse_members(text)


def test_a_name_that_comes_twice_is_there_twice() -> None:
    assert parse_members(b'{"a":1,"\\u0061":[2],"a":3}') == [("a", b"1"), ("a", b"[2]"), ("a", b"3")]


def test_text_that_no_reader_can_decode_is_there_as_written() -> None:
    assert parse_members(b'{"\\ud800":"\\udc00","\xff":"\xff"}') == [
        ("\ud800", b'"\\udc00"'),
        ("\N{REPLACEMENT CHARACTER}", b'"\xff"'),
    ]


def test_any_depth_is_read() -> None:
    deep = b'{"a":[' * 100_000 + b"]}" * 100_000
    assert parse_items(b"[0,%b,1]" % deep) == [b"0", deep, b"1"]


@given(st.lists(st.sampled_from(["\\\\", "\\ud8FF", "\\uDc00", "\\uD7ff", "\\n", '\\"', "ud800", "\\u0041", "é"])))
def test_a_masked_text_is_decoded_and_its_parts_are_those_of_the_text(pieces: list[str]) -> None:
    items = [f'"{"".join(pieces)}"'.encode(), b'{"\\ud800":"\\\\"}']
    masked = mask_surrogates(b"[%b,%b]" % (*items,))
    assert masked is not None
    assert [unmask_surrogates(bytes(item)) for item in msgspec.json.decode(masked, type=list[msgspec.Raw])] == items


@pytest.mark.parametrize("text", [b'"\\udz00"', b'"\\ud8"', b'"\\\\\\"', b'"\\x"'])
def test_what_is_no_json_is_none_when_it_is_masked(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(mask_surrogates(text) or b"null", type=msgspec.Raw)


def test_a_text_that_has_the_mask_is_not_masked() -> None:
    assert mask_surrogates(b'"\x7f"') is None
