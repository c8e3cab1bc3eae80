"""The key of a document: where the pointers find it, and when it is equal to the key of a Load."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.encoding.search import document_keys
from connector.encoding.search.document_keys import MalformedDocumentError, document_key, find_malformed, parse_key
from connector.model.binding import KeyPart


def key_of(document: str, *pointers: str, default: Any = None) -> tuple[Any, ...]:
    return document_key(document, [KeyPart(1, pointer, default) for pointer in pointers])


# Makes msgspec refuse the document, so that it is read level by level.
HALF_A_PAIR = ',"other":"\\ud800"}'
DEEP = ',"other":' + "[" * 5000 + "]" * 5000 + "}"
ENDS = pytest.mark.parametrize("end", ["}", HALF_A_PAIR, DEEP], ids=["usual", "half a pair", "deep"])


@ENDS
@pytest.mark.parametrize(
    ("members", "pointer", "expected"),
    [
        ('"a":7', "/a", 7),
        ('"a":{"b":["x","y"]}', "/a/b/1", "y"),
        ('"a":{"0":"x"}', "/a/0", "x"),
        ('"a/b":1,"c~d":{"~1":2}', "/a~1b", 1),
        ('"a/b":1,"c~d":{"~1":2}', "/c~0d/~01", 2),
        ('"":{"":3}', "//", 3),
        ('"a":18446744073709551617', "/a", 18446744073709551617),
        ('"a":"\\u00e9\\""', "/a", 'é"'),
        ('"a":null', "/a", None),
        ('"a":1,"a":2', "/a", 2),
    ],
)
def test_a_pointer_finds_its_value(end: str, members: str, pointer: str, expected: object) -> None:
    assert key_of(f" {{{members}{end}", pointer, default="none") == (expected,)


@ENDS
@pytest.mark.parametrize(
    "pointer", ["/b", "/a/b", "/list/2", "/list/-", "/list/01", "/list/\N{ARABIC-INDIC DIGIT ONE}", "/list/x", "/a/0"]
)
def test_a_missing_location_has_the_schemas_default(end: str, pointer: str) -> None:
    assert key_of(f'{{"a":7,"list":[1,2]{end}', pointer, default="none") == ("none",)


@ENDS
@pytest.mark.parametrize("value", ["{}", "[]", '{"a":null}'])
def test_an_object_or_an_array_is_equal_to_no_key(end: str, value: str) -> None:
    assert key_of(f'{{"a":{value}{end}', "/a") != parse_key("[null]")


@pytest.mark.parametrize(
    ("key", "value", "is_equal"),
    [
        ("7", "7.0", True),
        ("7", "7e0", True),
        ("7", '"7"', False),
        ('"7"', '"07"', False),
        ("1", "true", False),
        ("true", "true", True),
        ("true", "false", False),
        ("0", "false", False),
        ("null", "false", False),
        ("9007199254740993", "9007199254740992.0", False),
        ("9223372036854775808", "9223372036854775808.0", True),
        ('"\\u0061"', '"a"', True),
        ('"\\ud800"', '"\\ud800"', True),
        pytest.param("7" * 5000, "7" * 5000, True, id="5,000 digits"),
        pytest.param("7" * 5000, "7" * 4999 + "8", False, id="5,000 other digits"),
    ],
)
def test_keys_are_compared_by_type_and_value(key: str, value: str, is_equal: bool) -> None:
    assert (parse_key(f"[{key}]") == key_of(f'{{"a":{value}}}', "/a")) == is_equal
    assert (parse_key(f"[{value}]") == key_of(f'{{"a":{key}}}', "/a")) == is_equal


@pytest.mark.parametrize("default", [True, 1])
def test_defaults_are_compared_like_values(default: object) -> None:
    assert key_of("{}", "/a", default=default) == parse_key(f"[{json.dumps(default)}]")
    assert key_of("{}", "/a", default=default) != parse_key("[1.5]")


def test_documents_are_not_split_for_half_of_a_surrogate_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splitting takes a hundred times as long."""
    monkeypatch.delattr(document_keys, "parse_members")
    texts = ["{}", '{"a":"\\ud800"}', None, ' {"\\udc00":"\\\\"}', '["\\ud800"]']
    assert find_malformed(pa.array(texts)) == [2, 4]


@pytest.mark.parametrize("text", ["", "null", "[1]", '"a"', '{"a":', '{"a":1}x', '{"a":1 "\\ud800"}', "\\ud800"])
def test_a_text_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(MalformedDocumentError):
        key_of(text, "/a")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_both_ways_to_read_a_document_agree(value: Any) -> None:
    usual = key_of(json.dumps({"a": value}), "/a", "/a/0", "/a/~1")
    by_level = key_of(json.dumps({"a": value})[:-1] + HALF_A_PAIR, "/a", "/a/0", "/a/~1")

    for one, other in zip(usual, by_level, strict=True):
        assert one == other or (isinstance(one, dict | list) and other == {})
