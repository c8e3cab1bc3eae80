"""Half of a surrogate pair, and what is nested very deep, are JSON that msgspec refuses. Each is a matter of its own
field."""

from dataclasses import replace
from typing import Final

import pytest
from pyiceberg.types import LongType, StringType

from connector.encoding.lines import row_lines
from connector.encoding.lines.decoder import RowDecoder
from connector.host.errors import InvalidValueError
from connector.model.binding import Binding, Column
from connector.model.invalid_values import OnInvalid, Treated, Treatment
from encoding.store_lines import binding, column, decode, json_line, numbered, plain
from support.snapshots import check_text

TEXT: Final = binding(StringType())
REASON: Final = "has half of a surrogate pair, which is no character"
HALVES: Final = [r'"\ud800"', r'"a\udc00b"', r'"\ud800\u0041"', r'"\udc00\ud800"', r'"\ud83d\ude00\uD83D"']
DEEP: Final = '{"a":[' * 2000 + "]}" * 2000


def with_policy(of: Binding, policy: OnInvalid) -> Binding:
    return replace(of, on_invalid=policy)


def with_text_key(of: Binding) -> Binding:
    return replace(of, keys=(Column("id", "id", 1, StringType(), True),))


@pytest.mark.parametrize("half", HALVES)
def test_half_of_a_pair_stops_and_names_field_key_and_line(half: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        decode(TEXT, [json_line('"a"'), json_line(half, key="7")], first_line=10)
    assert str(error.value).startswith(f"line 11: table shop.orders, field 'value0', key [7]: {half} {REASON}. ")
    check_text("value_errors", "half of a surrogate pair", str(error.value), {half: "VALUE"})


@pytest.mark.parametrize("half", HALVES)
def test_half_of_a_pair_becomes_null_where_the_policy_says_so(half: str) -> None:
    lines = [json_line('"a"', key="1"), json_line(half, key="2"), json_line(r'"\ud83d\ude00"', key="3")]

    decoded = decode(with_policy(TEXT, OnInvalid.NULL), lines)

    assert decoded.batch.to_pylist() == [
        {"id": 1, "value0": "a"},
        {"id": 2, "value0": None},
        {"id": 3, "value0": "\N{GRINNING FACE}"},
    ]
    assert [*decoded.treated] == [("value0", Treatment.NULLED, Treated(1, f"key [2]: {half} {REASON}"))]


@pytest.mark.parametrize("half", HALVES)
def test_the_row_is_rejected_as_it_was_sent_where_the_policy_says_so(half: str) -> None:
    lines = [json_line('"a"', key="1"), json_line(half, key="2")]

    decoded = decode(with_policy(TEXT, OnInvalid.QUARANTINE), lines)

    assert column(decoded, "id") == [1]
    [row] = decoded.rejected
    assert (row.reason, row.field, row.key, row.document) == (REASON, "value0", "[2]", f'{{"id":2,"value0":{half}}}')


@pytest.mark.parametrize("policy", [OnInvalid.STOP, OnInvalid.NULL])
def test_half_of_a_pair_in_the_key_stops(policy: OnInvalid) -> None:
    with pytest.raises(
        InvalidValueError, match=r'line 1: .*field \'id\', key \["\\ud800"\]: "\\ud800" has half'
    ) as error:
        decode(with_policy(with_text_key(TEXT), policy), [json_line('"a"', key=r'"\ud800"')])
    assert error.value.never_null == "part of the key"


def test_a_row_whose_key_has_half_of_a_pair_is_rejected_with_that_key() -> None:
    lines = [json_line('"a"', key=r'"\ud800"'), json_line('"b"', key='"k"')]

    decoded = decode(with_policy(with_text_key(TEXT), OnInvalid.QUARANTINE), lines)

    assert decoded.batch.to_pylist() == [{"id": "k", "value0": "b"}]
    assert [(row.field, row.key) for row in decoded.rejected] == [("id", r'["\ud800"]')]


@pytest.mark.parametrize(
    "json",
    [r'{"\ud800":["\udc00"]}', r'[ "\ud800" ]', DEEP, "[" * 100_000 + "]" * 100_000],
    ids=["object", "array", "deep", "deeper"],
)
def test_json_text_is_kept_byte_for_byte(json: str) -> None:
    line = json_line(json)[:-3] + b',"doc": %b}}\n' % json.encode()

    [row] = decode(binding(StringType(), document=True), [line]).batch.to_pylist()

    assert row == {"id": 1, "value0": json, "flow_document": json}


ESCAPES: Final = [
    r'{"a\\":"\ud800"}',
    r'["\\ud800","\ud800"]',
    r'["\\\ud800","\\\\ud800"]',
    r'["\n\uDBFF\"\udfff\\","\ud83d\ude00","\ud83d\\ude00"]',
    r'{"\ud800":"\ud7ff"}',
]


@pytest.mark.parametrize("json", ESCAPES)
def test_lines_are_not_split_for_half_of_a_pair_which_takes_ninety_times_as_long(
    json: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(row_lines, "parse_members")
    halves = [json_line(f"{half},{number}", key=f"{number}") for number, half in enumerate(HALVES)]
    decoded = decode(
        with_policy(binding(StringType(), LongType()), OnInvalid.NULL),
        [*halves, json_line(f"{json},5"), plain(6, "b", 6)],
    )

    assert column(decoded) == [None] * 5 + [json, "b"]
    assert [*decoded.treated] == [("value0", Treatment.NULLED, Treated(5, f"key [0]: {HALVES[0]} {REASON}"))]


@pytest.mark.parametrize("json", [*ESCAPES, *HALVES])
def test_a_control_character_beside_it_is_kept(json: str) -> None:
    document = '{"\x7f":"\x7fud800","value":VALUE}'.replace("VALUE", json)
    lines = [json_line(document), json_line('"\x7f\\\\"', key="2")]

    assert column(decode(TEXT, lines)) == [document, "\x7f\\"]


@pytest.mark.parametrize("json", [r'"\ud800"', DEEP], ids=["half", "deep"])
def test_no_number_is_made_of_it(json: str) -> None:
    decoded = decode(with_policy(binding(LongType()), OnInvalid.NULL), [json_line(json), json_line("7", key="2")])

    assert column(decoded) == [None, 7]


@pytest.mark.parametrize("json", [r'"\ud800"', r'{"\ud800":1}', DEEP], ids=["half", "name", "deep"])
@pytest.mark.parametrize(
    "where",
    ["in the line", "beside a message that is null", "in the Store", "in a document that was not selected"],
)
def test_it_does_not_disturb_where_no_column_has_it(json: str, where: str) -> None:
    line = {
        "in the line": b'{"new":%b,' % json.encode() + plain(1, "a")[1:],
        "beside a message that is null": b'{"load":null,"new":%b,' % json.encode() + plain(1, "a")[1:],
        "in the Store": b'{"store":{"new":%b,' % json.encode() + plain(1, "a")[len(b'{"store":{') :],
        "in a document that was not selected": plain(1, "a")[:-3] + b',"doc":%b}}\n' % json.encode(),
    }[where]

    assert decode(TEXT, [line, plain(2, "b")]).batch.to_pylist() == [{"id": 1, "value0": "a"}, {"id": 2, "value0": "b"}]


@pytest.mark.parametrize("half", HALVES)
def test_lines_of_another_binding_are_handed_back(half: str) -> None:
    stray = json_line(half).replace(b'"binding":3', b'"binding":4')

    decoded = decode(TEXT, [plain(1, "a"), stray])

    assert [(stray.binding, stray.number) for stray in decoded.strays] == [(4, 2)]


def test_later_batches_are_read_as_before() -> None:
    decoder = RowDecoder(with_policy(binding(StringType(), LongType()), OnInvalid.NULL))
    batches = [[json_line(r'"\ud800",1')], [json_line('"a",2'), json_line(f"{DEEP},3")], [json_line('"b",4')]]

    rows = [decoder.decode(numbered(b"".join(lines))).batch.to_pylist() for lines in batches]

    assert [[(row["value0"], row["value1"]) for row in batch] for batch in rows] == [
        [(None, 1)],
        [("a", 2), (DEEP, 3)],
        [("b", 4)],
    ]
