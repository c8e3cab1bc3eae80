import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import request
from protocol.codec import decode_request
from protocol.lines import Numbered, RequestParser
from protocol.protocol_error import ProtocolError
from protocol.request import Load, Request, Store


def parsed(blocks: Iterable[bytes]) -> list[Numbered]:
    parser = RequestParser()
    return [numbered for block in blocks for numbered in parser.receive(block)] + list(parser.end())


def stores(requests: Iterable[Numbered]) -> list[Store]:
    return [numbered.request for numbered in requests if isinstance(numbered.request, Store)]


def loads(requests: Iterable[Numbered]) -> list[Load]:
    return [numbered.request for numbered in requests if isinstance(numbered.request, Load)]


def runs(*blocks: bytes) -> list[tuple[int, int, int]]:
    """Binding, first line and count of every run of stores."""
    return [(store.binding, store.first_line, store.count) for store in stores(parsed(blocks))]


def flattened(requests: Iterable[Numbered]) -> Iterator[tuple[int, int, bytes | Request | ProtocolError]]:
    """Line by line: its number, its binding and its bytes if it is a Load or a Store, else 0 and what it is.

    A run of Loads may have several bindings: that of a line is its own."""
    for line, size, message in requests:
        if isinstance(message, Load | Store):
            assert line == message.first_line
            assert size == message.size
            text = b"".join(message.pieces)
            assert text.endswith(b"\n")
            assert isinstance(message, Load) == bool(re.match(rb'\s*{\s*"load"', text))
            lines = text.splitlines(keepends=True)
            assert len(lines) == message.count
            for index, one in enumerate(lines):
                own = decode_request(one)
                assert isinstance(own, Load | Store)
                of_line = message.binding if isinstance(message, Store) else own.binding
                yield message.first_line + index, of_line, one
        else:
            yield line, 0, message


def store_line(binding: int | None, key: int = 1) -> bytes:
    fields = {"key": [key], "values": [{"binding": 7}, 'a "store":{"binding":5, \n'], "doc": {"a": ""}}
    return json.dumps({"store": fields if binding is None else {"binding": binding, **fields}}).encode() + b"\n"


def test_stores_of_one_binding_are_one_run() -> None:
    lines = [store_line(3, key) for key in range(1000)]
    (store,) = stores(parsed([b"".join(lines)]))
    assert (store.binding, store.first_line, store.count) == (3, 1, 1000)
    assert [bytes(piece) for piece in store.pieces] == [b"".join(lines)]


def test_loads_of_one_binding_are_one_run() -> None:
    lines = [store_line(3, key).replace(b'{"store"', b'{"load"') for key in range(1000)]
    (first, second) = loads(parsed([b"".join([*lines, store_line(3), *lines])]))
    assert (first.binding, first.first_line, first.count) == (3, 1, 1000)
    assert (second.binding, second.first_line, second.count) == (3, 1002, 1000)
    assert [bytes(piece) for piece in first.pieces] == [b"".join(lines)]


def test_adjacent_loads_are_one_run_whatever_their_bindings() -> None:
    """They are decoded together: a run for each of them takes fifty times as long, and a hundred times the memory."""
    lines = [store_line(key % 3, key).replace(b'{"store"', b'{"load"') for key in range(100)]
    (load,) = loads(parsed([b"".join(lines)]))
    assert (load.binding, load.first_line, load.count) == (0, 1, 100)
    assert b"".join(load.pieces) == b"".join(lines)


def test_a_run_is_not_copied() -> None:
    block = store_line(3) * 10
    (store,) = stores(parsed([block]))
    (piece,) = store.pieces
    assert isinstance(piece, memoryview)
    assert piece.obj is block


def test_a_binding_that_begins_like_another_is_another() -> None:
    assert runs(store_line(1) * 2 + store_line(10) * 3 + store_line(1)) == [(1, 1, 2), (10, 3, 3), (1, 6, 1)]


def test_interleaved_bindings_keep_their_order() -> None:
    assert runs((store_line(4) + store_line(5)) * 2) == [(4, 1, 1), (5, 2, 1), (4, 3, 1), (5, 4, 1)]


def test_a_binding_left_out_is_0() -> None:
    assert runs(store_line(None) * 3 + store_line(2) + store_line(0) + store_line(None)) == [
        (0, 1, 3),
        (2, 4, 1),
        (0, 5, 2),
    ]


@pytest.mark.parametrize(
    "text",
    [
        b'{"store":{"binding":12,"key":[1]}}\n',
        b'{"store":{"binding":"12","key":[1]}}\n',
        b' {\t"store" : { "binding" : 12 , "key": [1]}} \r\n',
        b'{"store":{"key":[1],"binding":12}}\n',
        b'{"store":{"doc":{"binding":1},"binding":"12"}}\n',
        b'{"store":{"binding":12}}\n',
        b'{"$internal":{},"store":{"binding":12,"key":[1]}}\n',
        b'{"\\u0073tore":{"binding":12}}\n',
    ],
)
def test_a_store_is_recognized_however_it_is_written(text: bytes) -> None:
    assert runs(text * 3) == [(12, 1, 3)]
    assert b"".join(stores(parsed([text * 3]))[0].pieces) == text * 3


def test_a_binding_that_comes_late_is_only_noticed_on_the_first_line_of_a_run() -> None:
    late = b'{"store":{"key":[1],"binding":2}}\n'
    assert runs(late + store_line(None).replace(b" ", b"") + late) == [(2, 1, 1), (0, 2, 2)]


@pytest.mark.parametrize("text", [b'{"store":{"binding":0}}\n', b'{"store":{"binding":null,"key":[1]}}\n'])
def test_a_first_line_without_a_usable_beginning_decides_for_itself_alone(text: bytes) -> None:
    assert runs(text + b'{"store":{"binding":6,"key":[1]}}\n') == [(0, 1, 1), (6, 2, 1)]


def test_blank_lines_are_skipped_but_counted() -> None:
    text = b"\n \t\r\n" + store_line(1) + b"\n" + store_line(1) + b'\r\n{"flush":{}}\n\n'
    requests = parsed([text])
    assert runs(text) == [(1, 3, 1), (1, 5, 1)]
    assert [numbered.line for numbered in requests] == [3, 5, 7]


def test_a_last_line_needs_no_newline() -> None:
    line = b'{"load":{"binding":3}}'
    assert parsed([b'{"flush":{}}\n' + line])[1:] == [Numbered(2, 23, Load(3, 2, 1, (line + b"\n",)))]
    assert runs(store_line(1) + store_line(1)[:-1]) == [(1, 1, 1), (1, 2, 1)]


def test_a_last_line_that_is_cut_off_is_an_error() -> None:
    (store, broken) = parsed([store_line(1) + store_line(1)[:-10]])
    assert isinstance(store.request, Store)
    assert isinstance(broken.request, ProtocolError)
    assert str(broken.request).startswith("line 2: the line ends within its JSON, after ")


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_an_error_stands_behind_what_came_before_it_and_names_its_line(size: int) -> None:
    text = b"\n" + store_line(1) * 2 + b'{"flush":{}} {}\n' + store_line(1)
    requests = parsed(text[at : at + size] for at in range(0, len(text), size))
    broken = next(index for index, numbered in enumerate(requests) if isinstance(numbered.request, ProtocolError))
    assert sum(store.count for store in stores(requests[:broken])) == 2
    assert str(requests[broken].request).startswith("line 4: not a JSON object")


def test_lines_that_span_blocks_do_not_add_up_to_a_long_one() -> None:
    parser = RequestParser(longest_line=20)
    blocks = [b'{"flush":', b'{}}\n{"flush":', b'{}}\n{"flush":', b"{}}\n"]
    assert [numbered.line for block in blocks for numbered in parser.receive(block)] == [1, 2, 3]


def test_a_line_that_never_ends_is_an_error() -> None:
    parser = RequestParser(longest_line=1 << 20)
    assert parser.receive(b'{"flush":{}}\n' + b"x" * (1 << 20)) == [Numbered(1, 13, request.Flush())]
    (broken,) = parser.receive(b"x")
    assert str(broken.request) == "line 2: longer than 1 MiB"


opaque = st.sampled_from([None, 2**70, "", 'x\n"}}', {"a": None, "binding": 3}, [None, {"store": {"binding": 1}}]])
texts = st.text('ab"\\\n{é', max_size=4)
patches = st.lists(opaque, max_size=2).map(tuple)
messages = st.one_of(
    st.builds(request.Spec, texts, opaque),
    st.builds(request.Apply, version=texts, state=opaque),
    st.builds(request.Open, version=texts, state=opaque),
    st.builds(request.Acknowledge, patches),
    st.builds(request.Flush, patches),
    st.builds(request.StartCommit, opaque, patches),
)
line_ends = st.sampled_from(["\n", "\n", "\n", "\r\n", " \n"])
Line = tuple[bytes, tuple[int, bytes | Request] | None]


@st.composite
def message_lines(draw: st.DrawFn) -> Line:
    message = draw(messages)
    name = type(message).__name__
    fields = draw(st.permutations(list(msgspec.to_builtins(message).items())))
    envelope = draw(st.permutations([(name[0].lower() + name[1:], dict(fields)), ("$internal", {"x": None})]))
    return written(draw, dict(envelope)), (0, message)


@st.composite
def run_lines(draw: st.DrawFn, late: bool) -> Line:
    """A binding comes first, and may be left out if it is 0; or it comes late, where all of them do."""
    binding = draw(st.integers(1, 12) if late else st.sampled_from([0, 0, 1, 2, 10]))
    fields: list[tuple[str, Any]] = draw(st.permutations([("key", [1]), ("values", [draw(opaque)]), ("exists", True)]))
    stated = [("binding", draw(st.sampled_from([binding, str(binding)])))]
    if binding == 0 and draw(st.booleans()):
        stated = []
    kind = draw(st.sampled_from(["load", "store", "store"]))
    text = written(draw, {kind: dict(fields + stated if late else stated + fields)})
    return text, (binding, text)


def written(draw: st.DrawFn, value: object) -> bytes:
    separators = draw(st.sampled_from([(",", ":"), (",", ":"), (", ", ": "), (" ,", "\t: ")]))
    return (json.dumps(value, separators=separators) + draw(line_ends)).encode()


blank_lines = line_ends.map(lambda end: (end.encode(), None))
conversations = st.booleans().flatmap(
    lambda late: st.lists(st.one_of(run_lines(late), run_lines(late), message_lines(), blank_lines), max_size=12)
)


@given(conversations, st.data())
def test_any_conversation_cut_anywhere_is_the_same_requests(lines: list[Line], data: st.DataObject) -> None:
    text = b"".join(line for line, _ in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    blocks = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    expected = [(number, *meant) for number, (_, meant) in enumerate(lines, start=1) if meant]
    assert list(flattened(parsed(blocks))) == expected
    assert list(flattened(parsed(text[at : at + 1] for at in range(len(text))))) == expected


@given(conversations)
def test_every_line_of_a_run_decodes_to_the_binding_of_its_run(lines: list[Line]) -> None:
    for _, binding, text in flattened(parsed([b"".join(line for line, _ in lines)])):
        if isinstance(text, bytes):
            alone = decode_request(text)
            assert isinstance(alone, Load | Store)
            assert alone.binding == binding
