"""Documents are read from a file line by line. An error names the file, the line, and what to change."""

import io
import sys
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from connector.cli.flow.documents import DocumentFile, open_documents, read_field, read_location
from connector.cli.flow.projections import PUBLISHED_AT
from connector.host.errors import UserError
from fixtures.collection import meta
from protocol.flow import Json, Projection
from support.snapshots import check_text

NOW: Final = datetime(2026, 11, 22, 8, tzinfo=UTC)
DEEP: Final = b'{"a":' + b"[" * 100_000


def documents(text: bytes) -> DocumentFile:
    return DocumentFile("orders.jsonl", BytesIO(text))


def test_documents_have_the_numbers_of_their_lines_and_blank_lines_are_ignored() -> None:
    read = documents(b'{"id":1}\n\n  {"id": 1.10}  \r\n{"id":"\xc3\xa4"}\n{"id":"\\ud83d\\ude00"}')
    assert [(each.line, each.text, each.value) for each in read] == [
        (1, b'{"id":1}', {"id": 1}),
        (3, b'{"id": 1.10}', {"id": 1.1}),
        (4, b'{"id":"\xc3\xa4"}', {"id": "ä"}),
        (5, rb'{"id":"\ud83d\ude00"}', {"id": "😀"}),
    ]
    assert len([*read]) == 4, "it can be read again"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("documents: a line that is not JSON", b'{"id":2,}'),
        ("documents: a line that is not UTF-8", b'{"id":"\xff"}'),
        ("documents: a line that is not an object", b"[1]"),
        ("documents: a line with a constant that JSON does not have", b'{"id":NaN}'),
        ("documents: a line with a number that is too large", b'{"id":-1e400}'),
        ("documents: a line that is nested too deeply", DEEP),
        ("documents: a line that is nested too deeply", b'{"a":' + b"[" * 300 + b"]" * 300 + b"}"),
        ("documents: a line with half of a surrogate pair", rb'{"id":"\ud83d"}'),
    ],
)
def test_a_line_that_is_no_document_is_named(name: str, line: bytes) -> None:
    with pytest.raises(UserError) as error:
        list(documents(b'{"id":1}\n' + line + b"\n"))
    check_text("cli_errors", name, str(error.value))


def test_a_key_is_read_from_its_locations() -> None:
    read = documents(b'{"a/b":{"~":7},"c":[1],"d":true}\n')
    [document] = read
    assert read.read_key(document, ["/a~1b/~0", "/d"]) == [7, True]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("documents: a document without its key", b""),
        ("documents: a document whose key is null", b'"id":null'),
        ("documents: a document whose key is a fraction", b'"id":1.5'),
        ("documents: a document whose key is an object", b'"id":{}'),
        ("documents: a document whose key is an array", b'"id":[1]'),
    ],
)
def test_a_document_without_a_usable_key_is_named(name: str, value: bytes) -> None:
    read = documents(b'{"id":1}\n{' + value + b"}\n")
    _, second = read
    with pytest.raises(UserError) as error:
        read.read_key(second, ["/id"])
    check_text("cli_errors", name, str(error.value))


def test_a_location_within_something_else_than_an_object_has_no_value() -> None:
    assert read_location({"a": [1], "b": "text"}, "/a/0") is None
    assert read_location({"a": [1], "b": "text"}, "/b/c") is None


def test_a_file_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error, open_documents(str(tmp_path)):
        pass
    check_text("cli_errors", "documents: a file that cannot be read", str(error.value), {str(tmp_path): "DIRECTORY"})


def test_a_dash_reads_stdin_which_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(BytesIO(b'{"id":1}\n{"id":2}')))
    with open_documents("-") as read:
        assert [each.value for each in read] == [each.value for each in read] == [{"id": 1}, {"id": 2}]
        assert read.name == "stdin"


def test_a_closed_stdin_has_no_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError) as error, open_documents("-"):
        pass
    check_text("cli_errors", "documents: a closed stdin", str(error.value))


@pytest.mark.parametrize(
    ("metadata", "published"),
    [
        (None, "2026-11-22T08:00:00.000000Z"),
        ({"uuid": "not a UUID"}, "2026-11-22T08:00:00.000000Z"),
        ({"uuid": 7}, "2026-11-22T08:00:00.000000Z"),
        ({"uuid": "0f8fad5b-d9cb-469f-a165-70867728950e"}, "2026-11-22T08:00:00.000000Z"),
        (meta(datetime(2025, 11, 2, 8, 59, 29, 644134, tzinfo=UTC)), "2025-11-02T08:59:29.644134Z"),
    ],
)
def test_a_document_was_published_when_its_uuid_says_so_and_otherwise_now(metadata: Json, published: str) -> None:
    document = {"customer": {"city": "Lima"}, "tags": [1], "_meta": metadata}
    fields = [Projection("/customer/city", "customer/city"), PUBLISHED_AT, Projection("/tags", "tags")]
    assert [read_field(document, field, NOW) for field in fields] == ["Lima", published, [1]]
