"""What is said of a runtime that breaks the protocol, kept in a file to be reviewed: where, what, and what was
expected."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from connector.config.endpoint_config import EndpointConfig
from connector.driver import serve
from connector.session.backlog import Limit
from connector.session.committer import Committer
from connector.session.loads import TransactionLoads
from connector.session.open_tables import OpenedTables, open_tables
from connector.session.recovery import Recovered
from connector.session.transactions import Session
from fixtures.collection import encode
from protocol import request, response
from protocol.flow import KEY_END, Range
from protocol.lifecycle import Lifecycle
from protocol.lines import RequestParser
from protocol.protocol_error import ProtocolError
from protocol.stdio import RequestReader, Wire
from support.layouts import MadeLayouts
from support.snapshots import check_text

SPEC: Final = b'{"spec":{}}\n'

WAREHOUSE: Final = "/a/directory/of/the/test"
LOCAL: Final = {"namespace": "shop", "catalog": {"catalog_type": "Local", "warehouse": WAREHOUSE}}
BINDING: Final = {
    "resourceConfig": {"table": "orders"},
    "resourcePath": ["shop", "orders"],
    "collection": {"name": "acme/orders"},
    "fieldSelection": {"keys": ["id"]},
}


def apply_to(binding: Mapping[str, object]) -> bytes:
    return encode({"apply": {"materialization": {"name": "acme/task", "config": LOCAL, "bindings": [binding]}}}) + b"\n"


INPUTS: Final[Mapping[str, Sequence[bytes]]] = {
    "out of order at first": [b'{"flush":{}}\n'],
    "out of order": [SPEC, b'{"store":{"key":[1]}}\n'],
    "no JSON": [SPEC, b"{spec\n"],
    "no object": [b"[]\n"],
    "broken off": [b'{"spec":{'],
    "half of a surrogate pair": [b'{"validate":{"name":"\\ud800"}}\n'],
    "broken off after an empty line": [SPEC, b"\n", b'{"open":{"version":'],
    "no message but a space": [SPEC, b"\x0c\n"],
    "no message": [b'{"speck":{}}\n'],
    "several messages": [b'{"spec":{},"validate":{}}\n'],
    "another type": [b'{"open":{"version":5}}\n'],
    "not UTF-8": [b'{"validate":{"name":"\xff"}}\n'],
    "a field that does not exist": [apply_to(BINDING)],
    "a resource path of one element": [apply_to({**BINDING, "resourcePath": ["orders"]})],
    "a resource path of three elements": [apply_to({**BINDING, "resourcePath": ["lake", "shop", "orders"]})],
    "a resource path with a blank element": [apply_to({**BINDING, "resourcePath": [" ", "orders"]})],
    "no resource path": [apply_to({**BINDING, "resourcePath": None})],
    "a collection that does not exist": [
        encode({"validate": {"config": LOCAL, "bindings": [{"resourceConfig": {"table": "orders"}}]}}) + b"\n"
    ],
    "a byte order mark": [b"\xef\xbb\xbf" + SPEC],
    "UTF-16": [SPEC.decode().encode("utf-16")],
    "nested beyond measure": [b'{"validate":{"config":' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n"],
}


@pytest.mark.parametrize("name", INPUTS)
def test_what_is_wrong_with_the_input_is_said_by_line(name: str, tmp_path: Path) -> None:
    check_text("protocol_errors", name, complaint(INPUTS[name], tmp_path))


def complaint(lines: Sequence[bytes], directory: Path) -> str:
    (directory / "stdin").write_bytes(b"".join(lines).replace(WAREHOUSE.encode(), bytes(directory)))
    stdin, stdout = os.open(directory / "stdin", os.O_RDONLY), os.open(directory / "stdout", os.O_WRONLY | os.O_CREAT)
    reader = RequestReader(stdin)
    with pytest.raises(ProtocolError) as error:
        serve(reader, Wire(stdout))
    # Until its thread has read the end. Otherwise it would read from the next file that gets the descriptor.
    assert reader.wait_for((), 60.0)
    for descriptor in (stdin, stdout):
        os.close(descriptor)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a load", b'{"load":{"key":[1]}}\n'),
        ("a load of no binding", b'{"load":{"binding":1,"key":[1]}}\n'),
        ("a load of a negative binding", b'{"load":{"binding":-1,"key":[1]}}\n'),
    ],
)
def test_a_load_that_no_table_answers_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: bytes
) -> None:
    @contextmanager
    def opened(_: request.Open) -> Iterator[OpenedTables]:
        unused: Any = None
        recovered = Recovered((), ())
        yield OpenedTables(EndpointConfig(namespace="shop"), unused, unused, (), recovered, unused)

    @contextmanager
    def started(*_: Any) -> Iterator[Session]:
        """A session without tables needs nothing that writes files."""
        committer = Committer(lambda *_, **__: [], Limit(commits=0, size=0))
        no_spark: Any = None
        loads = TransactionLoads(no_spark, tmp_path / "loads", {}, MadeLayouts((), bindings=1))
        jobs: Any = SimpleNamespace(start_loading=lambda _: loads)
        yield Session((), (), committer, jobs)

    monkeypatch.setattr("connector.rpc.open.handle_open", opened)
    monkeypatch.setattr("connector.rpc.open.start_session", started)
    check_text("protocol_errors", name, complaint([b'{"open":{}}\n', b'{"acknowledge":{}}\n', line], tmp_path))


@pytest.mark.parametrize(
    ("name", "key_range"),
    [
        ("a key range that ends before it begins", Range(5, 3, 0, KEY_END)),
        ("a key range that begins below 0", Range(-1, 3, 0, KEY_END)),
        ("a key range of more than 32 bits", Range(0, KEY_END + 1, 0, KEY_END)),
    ],
)
def test_a_key_range_that_no_shard_can_have_is_named(name: str, key_range: Range) -> None:
    """A state with such a range would be refused by every later session."""
    unused: Any = None
    opening = open_tables(request.Open(range=key_range), EndpointConfig(namespace="shop"), (), unused)
    with pytest.raises(ProtocolError) as error, opening:
        pass
    check_text("protocol_errors", name, str(error.value))


def test_input_that_ends_too_early_is_named() -> None:
    lifecycle = Lifecycle()
    lifecycle.check_request(request.Open())
    lifecycle.check_response(response.Opened())
    with pytest.raises(ProtocolError) as error:
        lifecycle.check_end()
    check_text("protocol_errors", "input that ends", str(error.value))


def test_a_line_that_is_too_long_is_named() -> None:
    [numbered] = RequestParser(longest_line=1 << 20).receive(b"x" * (2 << 20))
    check_text("protocol_errors", "too long", str(numbered.request))
