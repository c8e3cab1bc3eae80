"""What is said of a runtime that breaks the protocol, kept in a file to be reviewed: where, what, and what was expected."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from connector.driver import serve
from protocol import request, response
from protocol.errors import ProtocolError
from protocol.lifecycle import Lifecycle
from protocol.lines import RequestParser
from protocol.stdio import RequestReader, Wire
from support.snapshots import check_text

SNAPSHOTS: Final = Path(__file__).parents[1] / "snapshots" / "protocol_errors.json"
SPEC: Final = b'{"spec":{}}\n'

INPUTS: Final[Mapping[str, Sequence[bytes]]] = {
    "out of order at first": [b'{"flush":{}}\n'],
    "out of order": [SPEC, b'{"store":{"key":[1]}}\n'],
    "no JSON": [SPEC, b"{spec\n"],
    "no object": [b"[]\n"],
    "broken off": [b'{"spec":{'],
    "no message": [b'{"speck":{}}\n'],
    "several messages": [b'{"spec":{},"validate":{}}\n'],
    "another type": [b'{"open":{"version":5}}\n'],
    "not UTF-8": [b'{"validate":{"name":"\xff"}}\n'],
    "nested beyond measure": [b'{"validate":{"config":' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n"],
}


@pytest.mark.parametrize("name", INPUTS)
def test_what_is_wrong_with_the_input_is_said_by_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "stdin").write_bytes(b"".join(INPUTS[name]))
    stdin, stdout = os.open(tmp_path / "stdin", os.O_RDONLY), os.open(tmp_path / "stdout", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(ProtocolError) as error:
        serve(RequestReader(stdin), Wire(stdout))
    for descriptor in (stdin, stdout):
        os.close(descriptor)
    check_text(SNAPSHOTS, name, str(error.value), {})


def test_input_that_ends_too_early_is_named() -> None:
    lifecycle = Lifecycle()
    lifecycle.received(request.Open())
    lifecycle.sending(response.Opened())
    with pytest.raises(ProtocolError) as error:
        lifecycle.ended()
    check_text(SNAPSHOTS, "input that ends", str(error.value), {})


def test_a_line_that_is_too_long_is_named() -> None:
    [numbered] = RequestParser(longest_line=1 << 20).receive(b"x" * (2 << 20))
    check_text(SNAPSHOTS, "too long", str(numbered.request), {})
