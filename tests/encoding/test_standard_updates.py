"""Stores of bindings with standard updates: which of them are rows, and the digest of the rows that exist."""

import base64
import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.encoding.lines.decoder import RowDecoder
from connector.encoding.lines.key_digest import KeyDigest, digest_hashes, digest_keys_table, hash_keys, sum_digests
from connector.encoding.lines.load_lines import keys_table_of_loads, parse_loads
from connector.model.binding import Binding, Column, KeyPart, Updates
from encoding.store_lines import INDEX, binding, column, decode, json_line, numbered, packed, plain
from fixtures.packed import pack
from protocol.protocol_error import ProtocolError


def updated(*key_types: PrimitiveType, hard_delete: bool = False) -> Binding:
    columns = tuple(Column(f"k{n}", f"k{n}", 20 + n, type_, True) for n, type_ in enumerate(key_types or [LongType()]))
    parts = tuple(KeyPart(each.id, f"/{each.field}") for each in columns)
    return replace(binding(StringType()), keys=columns, updates=Updates(parts, 100, hard_delete))


def loads(of: Binding, *keys: Sequence[Any]) -> KeyDigest:
    lines = b"".join(json.dumps({"load": {"binding": INDEX, "key": key}}).encode() + b"\n" for key in keys)
    return digest_keys_table(keys_table_of_loads(of, parse_loads(numbered(lines))[INDEX])) if keys else KeyDigest()


def existing(of: Binding, *lines: bytes) -> KeyDigest:
    """The digest of the keys of Stores whose rows exist."""
    return digest_hashes(decode(of, lines).existing_keys)


HARD = updated(hard_delete=True)


def test_documents_that_are_deleted_for_good_are_no_rows() -> None:
    lines = [
        plain(1, "a"),
        plain(2, "b", delete=True, exists=True),
        plain(3, "c", delete=True),
        packed(4, "d", delete=True),
    ]

    assert column(decode(HARD, lines)) == ["a"]
    assert column(decode(HARD, lines[1:])) == []
    assert decode(HARD, lines[1:]).batch.schema.equals(RowDecoder(HARD).schema)


def test_other_deletions_are_rows() -> None:
    assert column(decode(updated(), [plain(1, "a", delete=True, exists=True), plain(2, "b")])) == ["a", "b"]


@pytest.mark.parametrize("value", ["null", "false"])
def test_a_deletion_that_is_false_or_null_is_none(value: str) -> None:
    line = b'{"store":{"binding":3,"key":[1],"values":["a"],"delete":%b,"exists":%b}}\n' % ((value.encode(),) * 2)
    decoded = decode(HARD, [line])

    assert column(decoded) == ["a"]
    assert not decoded.existing_keys


def test_the_values_of_a_document_that_is_deleted_for_good_need_not_fit() -> None:
    of = replace(HARD, values=binding(LongType()).values)

    assert column(decode(of, [plain(1, "no number", delete=True), plain(2, 5)])) == [5]


def test_a_wrong_line_among_deletions_is_named() -> None:
    wrong = b'{"store":{"binding":3,"keyPacked":"FQE=","valuesPacked":"AmE="}}\n'

    with pytest.raises(ProtocolError, match=r"^line 3: valuesPacked"):
        decode(HARD, [packed(1, "a", delete=True), plain(2, "b"), wrong])
    with pytest.raises(ProtocolError, match=r"^line 3: keyPacked"):
        decode(HARD, [packed(1, "a"), plain(2, "b"), wrong.replace(b'FQE="', b'FgE=","exists":true,"delete":true')])
    with pytest.raises(ProtocolError, match=r"expected a Store: Expected `bool \| null`"):
        decode(HARD, [plain(1, "a", exists="yes")])


@pytest.mark.parametrize("hard_delete", [True, False])
def test_the_digest_has_all_keys_that_exist_and_no_other(hard_delete: bool) -> None:
    of = updated(hard_delete=hard_delete)
    lines = [
        plain(1, "a", exists=True),
        plain(2, "a"),
        packed(3, "a", exists=True),
        plain(4, "a", exists=True, delete=True),
        packed(5, "a", delete=True),
        json_line('"\\ud83d\\ude00"', "6"),
    ]
    expected = loads(of, [4], [1], [3])

    assert existing(of, *lines) == expected
    assert existing(of, *lines[::-1]) == expected
    assert sum_digests([existing(of, line) for line in lines]) == expected
    assert expected.count == 3


def test_lines_that_are_decoded_one_by_one_have_the_same_digest() -> None:
    half = b'{"store":{"exists":true,"binding":3,"key":["1"],"values":["x"],"doc":{"a":"\\ud800"}}}\n'

    assert existing(updated(), half, plain(2, "b", exists=True)) == loads(updated(), [1], [2])


def test_with_delta_updates_there_is_no_digest() -> None:
    assert not decode(binding(StringType()), [plain(1, "a", exists=True)]).existing_keys


TYPES: dict[PrimitiveType, list[Any]] = {
    LongType(): [0, 1, -1, 2**63 - 1, -(2**63)],
    StringType(): [
        "",
        "a",
        "b",
        "ab",
        "ba",
        "aa",
        "é",
        "\0",
        "\0\0",
        "x" * 1000,
        "x" * 999 + "y",
        "a" * 8 + "b" * 8,
        "b" * 8 + "a" * 8,
    ],
    BooleanType(): [True, False],
    DoubleType(): [0.0, 1.5, -1.5, 1e300],
    DecimalType(38, 2): [0, 1, "1.01", "-1.01", "12345678901234567890.12"],
    DateType(): ["2020-01-01", "2020-01-02"],
    TimestamptzType(): ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00.000001Z"],
    BinaryType(): ["", "YQ==", "Yg=="],
}


@pytest.mark.parametrize("column_type", TYPES, ids=str)
def test_different_keys_have_different_digests_and_equal_keys_equal_ones(column_type: PrimitiveType) -> None:
    of = updated(column_type)
    values = [*TYPES[column_type], None]
    digests = [loads(of, [value]) for value in values]

    assert len(set(digests)) == len(values)
    assert sum_digests(digests) == loads(of, *([value] for value in reversed(values)))
    for value, digest in zip(values, digests, strict=True):
        line = (
            json.dumps({"store": {"binding": INDEX, "key": [value], "values": ["a"], "exists": True}}).encode() + b"\n"
        )
        key = base64.b64encode(pack([value])).decode()
        packed_line = line.replace(json.dumps({"key": [value]}).encode()[1:-1], f'"keyPacked":"{key}"'.encode())
        if value is not None:
            assert b"keyPacked" in packed_line
            assert existing(of, line) == existing(of, packed_line) == digest


@pytest.mark.parametrize("column_type", [LongType(), DoubleType()], ids=str)
@pytest.mark.parametrize("zero", ["-0", "-0.0", "0"])
def test_every_zero_is_one_key(column_type: PrimitiveType, zero: str) -> None:
    of = updated(column_type)
    line = json_line('"a"', zero).replace(b'{"binding"', b'{"exists":true,"binding"')
    load = f'{{"load":{{"binding":{INDEX},"key":[{zero}]}}}}\n'.encode()

    assert existing(of, line) == digest_keys_table(keys_table_of_loads(of, parse_loads(numbered(load))[INDEX]))
    assert existing(of, line) == loads(of, [0])


def test_the_parts_of_a_key_have_an_order() -> None:
    of = updated(StringType(), StringType())
    keys = [["a", "b"], ["b", "a"], ["", "ab"], ["ab", ""], ["a", "a"], ["b", "b"]]

    assert len({loads(of, key) for key in keys}) == len(keys)
    assert loads(of, ["a", "a"], ["b", "b"]) != loads(of, ["a", "b"], ["b", "a"])


def test_random_sets_of_keys_of_one_size_differ() -> None:
    random = Random(1)
    of = updated(StringType(), LongType())
    sets = {frozenset((str(random.randrange(30)), random.randrange(30)) for _ in range(3)) for _ in range(300)}

    assert len({loads(of, *sorted(keys)) for keys in sets}) == len(sets)


def test_a_slice_of_a_keys_table_has_the_digest_of_its_keys() -> None:
    of = updated(StringType())
    table = keys_table_of_loads(
        of, parse_loads(numbered(b'{"load":{"binding":3,"key":["a"]}}\n{"load":{"binding":3,"key":["bc"]}}\n'))[INDEX]
    )

    assert digest_keys_table(table.slice(1)) == digest_keys_table(table.take(pa.array([1]))) == loads(of, ["bc"])
    assert digest_keys_table(table.slice(2)) == KeyDigest()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 64, 65, 200])
def test_a_text_has_one_hash_beside_texts_of_its_size_and_of_others(size: int) -> None:
    random = Random(size)
    texts = ["".join(random.choices("abc", k=size)) for _ in range(20)]
    of_one_size = hash_keys([pa.array(["x", *texts]).slice(1)])

    assert of_one_size.tolist() == [int(hash_keys([pa.array([text])])[0]) for text in texts]
    assert of_one_size.tolist() == hash_keys([pa.array([*texts, "another size" * 20])])[:-1].tolist()


def test_long_keys_are_hashed_in_parts_with_the_same_hashes_and_little_memory() -> None:
    column = pa.array([f"{number:08}" + "k" * (1000 - number % 3) for number in range(16_384)])
    expected = [hash_keys([column[begin : begin + 1000]]) for begin in range(0, len(column), 1000)]
    tracemalloc.start()
    hashes = hash_keys([column])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(hashes, np.concatenate(expected))
    assert peak < 2 * column.nbytes  # NumPy's arrays; hashed at once, they would have six times as much
