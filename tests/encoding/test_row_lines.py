"""Lines: which are the binding's, and what is said of those that are wrong."""

import base64
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import BinaryType, LongType, StringType, TimestamptzType

from connector.encoding.lines.decoder import RowDecoder, Stray
from connector.encoding.lines.row_lines import Lines
from connector.host.errors import InvalidValueError
from connector.model.binding import Column
from encoding.store_lines import binding, column, decode, json_line, numbered, packed, plain
from fixtures.packed import pack
from protocol.protocol_error import ProtocolError
from support.snapshots import check_text

TEXT = binding(StringType())


def test_the_columns_are_the_bindings_with_their_ids_and_names_that_avro_takes() -> None:
    columns = (Column("a/b", "a/b", 7, StringType(), False), Column("1 é", "1 é", 9, TimestamptzType(), True))
    schema = RowDecoder(replace(TEXT, values=columns)).schema

    assert schema.names == ["id", "a_x2Fb", "_1_x20é"]
    assert schema.types == [pa.int64(), pa.string(), pa.timestamp("us", "UTC")]
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"1", b"7", b"9"]
    assert [field.nullable for field in schema] == [False, True, False]


def test_the_root_document_is_kept_byte_for_byte() -> None:
    line = b'{"store":{"binding":3,"key":[1],"values":[],"doc": {"b" : 1.10,"a":[ 1e2 ],"u":"\\u00e9"} }}\n'

    assert column(decode(binding(document=True), [line]), "flow_document") == ['{"b" : 1.10,"a":[ 1e2 ],"u":"\\u00e9"}']


def test_a_document_that_was_not_selected_is_left_out() -> None:
    assert decode(TEXT, [plain(1, "a", doc={"a": 1})]).batch.num_columns == 2


def test_a_document_that_is_missing_or_null_is_null() -> None:
    lines = [plain(1), plain(2, doc=None), packed(3), plain(4, doc={})]

    assert sorted(map(str, column(decode(binding(document=True), lines), "flow_document"))) == ["None"] * 3 + ["{}"]


def test_a_missing_document_is_an_error_where_it_is_required() -> None:
    with pytest.raises(InvalidValueError, match=r"line 2: .* field 'flow_document'"):
        decode(binding(document=True, required=True), [plain(1, doc={}), plain(2)])


def test_fields_come_in_any_order_with_unknown_ones_among_them_and_any_white_space() -> None:
    line = b' { "$internal":{}, "store" : {"doc":1, "values": [ "a" ],"new":[{}],"key":[ 5 ] ,"binding" :3} } \n'

    assert decode(TEXT, [line, plain(6, "b")]).batch.to_pylist() == [{"id": 5, "value0": "a"}, {"id": 6, "value0": "b"}]


@pytest.mark.parametrize("spelled", [b'"binding":0,', b'"binding":"0",', b'"binding":null,', b""])
def test_binding_0_may_be_left_out_null_or_a_string(spelled: bytes) -> None:
    line = b'{"store":{%b"key":[1],"values":["a"]}}\n' % spelled

    decoded = decode(binding(StringType(), index=0), [line, line])

    assert column(decoded) == ["a", "a"]
    assert not decoded.strays


def test_lines_of_another_binding_are_handed_back_and_not_decoded() -> None:
    other = b'{"store":{"binding":30,"key":["x","y"],"values":[]}}\n'
    first = b'{"store":{"key":[1],"values":["of binding 0"]}}\n'

    decoded = decode(TEXT, [plain(1, "a"), other, plain(2, "b"), first], first_line=10)

    assert column(decoded) == ["a", "b"]
    assert decoded.strays == [Stray(30, other[:-1], 11), Stray(0, first[:-1], 13)]


def test_a_block_of_nothing_but_another_bindings_lines_gives_no_rows() -> None:
    decoded = decode(TEXT, [b'{"store":{"binding":4,"key":[1,2,3]}}\n'] * 2)

    assert decoded.batch.num_rows == 0
    assert decoded.batch.schema.equals(RowDecoder(TEXT).schema)
    assert [stray.number for stray in decoded.strays] == [1, 2]


WRONG_LINES = {
    "another message": b'{"flush":{}}\n',
    "no JSON": b'{"store":{"binding":3,"key":[1],"values":["a"}}\n',
    "cut off": b'{"store":{"binding":3,"key":[1],"val\n',
    "two on a line": plain(1, "a")[:-1] + plain(2, "b"),
    "blank": b"\n",
    "no object": b"[]\n",
    "not UTF-8": b'{"store":{"binding":3,"key":["\xff"],"values":\xff}}\n',
    "a binding that is no number": b'{"store":{"binding":"three","key":[1],"values":["a"]}}\n',
    "too few values": plain(1),
    "too many values": plain(1, "a", "b"),
    "no key": b'{"store":{"binding":3,"values":["a"]}}\n',
    "neither form of the values": b'{"store":{"binding":3,"key":[1]}}\n',
    "another message beside it": plain(1, "a")[:-2] + b',"flush":{}}\n',
    "another message in front of it": b'{"flush":{},' + plain(1, "a")[1:],
    "twice": plain(1, "a")[:-2] + b"," + plain(2, "b")[1:],
    "twice, and half of a surrogate pair": plain(1, "a")[:-2] + b"," + json_line('"\\ud800"')[1:],
    "another message beside half of a surrogate pair": json_line('"\\ud800"')[:-2] + b',"flush":{}}\n',
    "nested beyond measure and not closed": json_line("[" * 100_000),
    "a key that is no array": b'{"store":{"binding":3,"key":1,"values":["a"]}}\n',
    "packed values that are not base64": b'{"store":{"binding":3,"key":[1],"valuesPacked":"?"}}\n',
    "packed values cut off": b'{"store":{"binding":3,"key":[1],"valuesPacked":"AmE="}}\n',
}


@pytest.mark.parametrize("name", WRONG_LINES)
@pytest.mark.parametrize("before", [0, 2])
def test_a_wrong_line_is_a_protocol_error_that_names_it(name: str, before: int) -> None:
    with pytest.raises(ProtocolError, match=rf"^line {100 + before}\b") as error:
        decode(TEXT, [plain(1, "a")] * before + [WRONG_LINES[name], packed(3, "c")], first_line=100)
    check_text("protocol_errors", f"a Store: {name}", str(error.value), {f"line {100 + before}": "line N"})


def test_a_second_message_on_a_line_is_not_taken_for_a_row_of_the_binding() -> None:
    of_another = plain(2, "b").replace(b'"binding":3', b'"binding":4')
    with pytest.raises(ProtocolError) as error:
        decode(TEXT, [plain(1, "a"), plain(1, "a")[:-1] + of_another], first_line=100)
    check_text("protocol_errors", "a Store: two on a line", str(error.value), {"line 101": "line N"})


def test_a_store_that_comes_twice_is_not_taken_for_the_store_of_a_blank_line() -> None:
    with pytest.raises(ProtocolError, match="line 1: the message store occurs 2 times"):
        decode(TEXT, [WRONG_LINES["twice"], b"\n"])


def test_each_version_of_a_document_that_is_stored_is_a_row() -> None:
    """With delta updates, a runtime may store a key several times: it does not combine what a capture keeps apart."""
    assert sorted(column(decode(TEXT, [plain(1, "a"), plain(1, "b"), packed(1, "a")]))) == ["a", "a", "b"]


@pytest.mark.parametrize(
    "values", [b'"\xff"', b'"\\n\xff"', b'{"a":"\xff"}'], ids=["string", "with an escape", "JSON text"]
)
def test_text_that_is_not_utf8_is_an_error(values: bytes) -> None:
    line = b'{"store":{"binding":3,"key":[1],"values":[' + values + b"]}}\n"

    with pytest.raises(InvalidValueError, match=r"line 2: .*'value0'.* is not valid UTF-8"):
        decode(TEXT, [plain(1, "a"), line])


def test_members_that_are_no_message_are_ignored() -> None:
    lines = [plain(1, "a"), b'{"new":{"store":1},"flush":null,"new":2,' + plain(2, "b")[1:]]

    assert sorted(column(decode(TEXT, lines))) == ["a", "b"]


def test_the_key_in_one_form_and_the_values_in_the_other_are_read() -> None:
    values = base64.b64encode(pack(["a"]))
    line = b'{"store":{"binding":3,"key":[1],"valuesPacked":"%b"}}\n' % values

    assert decode(TEXT, [line]).batch.to_pylist() == [{"id": 1, "value0": "a"}]


def test_a_line_in_both_forms_is_one_row() -> None:
    line = b'{"store":{"binding":3,"key":[1],"keyPacked":"FQE=","values":["a"],"valuesPacked":"AmEA"}}\n'

    assert decode(TEXT, [line]).batch.to_pylist() == [{"id": 1, "value0": "a"}]


def test_an_empty_list_beside_the_packed_form_is_as_good_as_none() -> None:
    line = b'{"store":{"binding":3,"key":[],"keyPacked":"FQE=","values":[],"valuesPacked":"AmEA"}}\n'

    assert decode(TEXT, [plain(2, "b"), line]).batch.num_rows == 2


def test_a_binding_without_values_may_leave_them_out() -> None:
    lines = [
        b'{"store":{"binding":3,"key":[1]}}\n',
        plain(2),
        packed(3),
        b'{"store":{"binding":3,"keyPacked":"FQQ="}}\n',
    ]

    assert sorted(column(decode(binding(), lines), "id")) == [1, 2, 3, 4]


def test_deletions_are_rows_as_they_were_sent() -> None:
    assert column(decode(TEXT, [plain(1, "d", delete=True, exists=True)])) == ["d"]


def test_what_a_decoder_learned_of_a_column_does_not_change_other_columns() -> None:
    decoder = RowDecoder(binding(LongType(), BinaryType(), StringType()))
    usual = json_line('1,"YQ==","x"')
    unusual = json_line('"1.0",null,{"a":1}')

    values = [row for lines in (usual, unusual, usual) for row in decoder.decode(numbered(lines)).batch.to_pylist()]

    assert values[0] == values[2] == {"id": 1, "value0": 1, "value1": b"a", "value2": "x"}
    assert values[1] == {"id": 1, "value0": 1, "value1": None, "value2": '{"a":1}'}


def test_numbers_are_those_of_the_lines_wherever_they_stood() -> None:
    """A block may hold runs of lines that others stood between."""
    other = plain(1, "b").replace(b'"binding":3', b'"binding":4')
    decoded = RowDecoder(TEXT).decode(Lines(plain(1, "a") + other + plain(2, "c"), [7, 30, 31].__getitem__))

    assert [stray.number for stray in decoded.strays] == [30]


def test_threads_that_decode_at_the_same_time_get_their_own_rows() -> None:
    has_decoded, other_has_decoded, is_done = Event(), Event(), Event()

    def decode_one(key: str, reached: Event, turn: Event) -> list[bytes | None]:
        """Decode a line, and give the other thread a turn before the row is taken."""

        def switch_threads(_: Any, event: str, function: Any) -> None:
            if event == "c_return" and function.__name__ == "decode_lines":
                sys.setprofile(None)
                reached.set()
                turn.wait(0.2)

        sys.setprofile(switch_threads)
        try:
            return [row.key_packed for row in Lines(packed(key), lambda _: 1).rows()]
        finally:
            sys.setprofile(None)

    def decode_other() -> list[bytes | None]:
        has_decoded.wait()
        return decode_one("other", other_has_decoded, is_done)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(decode_other)
        own = decode_one("own", has_decoded, other_has_decoded)
        is_done.set()
    assert (own, other.result()) == ([pack(["own"])], [pack(["other"])])
