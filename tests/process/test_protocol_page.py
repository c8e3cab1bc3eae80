"""docs/protocol-by-hand.md is true: its lines work as it says, and the answers look as it shows."""

import json
import re
from pathlib import Path
from typing import Final

import pytest

from support.engines.readers import readers_catalog
from support.repository import REPOSITORY
from support.sessions.connector_process import ConnectorProcess

pytestmark = pytest.mark.spark

PAGE: Final = REPOSITORY / "docs" / "protocol-by-hand.md"
# A request, and the answer if it has one.
EXCHANGE: Final = re.compile(r"```json\n(.+)\n```\n(?:\n```text\n(.+)\n```\n)?")
STORE: Final = 6
ELLIPSIS: Final = "…"


def exchanges() -> list[tuple[str, str]]:
    return EXCHANGE.findall(PAGE.read_text())


def has_form(answer: str, form: str) -> bool:
    """Whether the answer is as the page shows it, where an ellipsis stands for any text."""
    return re.fullmatch(".+?".join(map(re.escape, form.split(ELLIPSIS))), answer) is not None


def rows_in(directory: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = (
        readers_catalog(directory / "warehouse").load_table("try.notes").scan().to_arrow().to_pylist()
    )
    return rows


def send(connector: ConnectorProcess, line: str) -> str:
    """Send a line, and return the answer as the connector wrote it."""
    connector.send(line.encode() + b"\n")
    answer = connector.receive()
    return json.dumps({answer.kind: answer.body}, separators=(",", ":"), ensure_ascii=False)


def test_the_lines_of_the_page_get_the_answers_of_the_page(tmp_path: Path) -> None:
    lines = exchanges()
    assert [next(iter(json.loads(request))) for request, _ in lines] == [
        "spec", "apply", "open", "acknowledge", "flush", "store", "startCommit", "acknowledge",
    ]  # fmt: skip
    with ConnectorProcess(tmp_path, {"LOG_LEVEL": "warn"}) as connector:
        for number, (request, form) in enumerate(lines, 1):
            if number == STORE:
                assert not form
                connector.send(request.encode() + b"\n")
            else:
                assert has_form(answer := send(connector, request), form), f"line {number}: {answer}"
        outcome = connector.finish()
    assert (outcome.status, outcome.log) == (0, "")
    assert rows_in(tmp_path) == [{"id": 1, "text": "hello"}]


@pytest.mark.slow  # test_recovery.py does the same by other means
def test_a_session_that_ends_too_early_is_finished_as_the_page_says(tmp_path: Path) -> None:
    _, apply, opening, acknowledge, flush, store, start_commit, _ = (request for request, _ in exchanges())
    with ConnectorProcess(tmp_path) as connector:
        for line in (apply, opening, acknowledge, flush):
            send(connector, line)
        connector.send(store.encode() + b"\n")
        state = json.loads(send(connector, start_commit))["startedCommit"]["state"]["updated"]
        assert connector.finish().status == 0
    assert rows_in(tmp_path) == []
    with ConnectorProcess(tmp_path) as connector:
        send(connector, json.dumps({"open": {**json.loads(opening)["open"], "state": state}}))
        assert has_form(send(connector, acknowledge), exchanges()[-1][1])
        assert rows_in(tmp_path) == [{"id": 1, "text": "hello"}]


def test_a_wrong_order_is_refused_as_the_page_says(tmp_path: Path) -> None:
    _, apply, opening, acknowledge, flush, *_ = (request for request, _ in exchanges())
    with ConnectorProcess(tmp_path) as connector:
        for line in (apply, opening, acknowledge, flush):
            send(connector, line)
        connector.send(flush.encode() + b"\n")
        outcome = connector.wait()
    assert outcome.status == 1
    assert "line 5: " in outcome.last_log_line
    assert "expected" in outcome.last_log_line


def test_a_form_is_not_that_of_another_answer() -> None:
    assert has_form('{"a":1,"b":[2]}', '{"a":…,"b":[…]}')
    assert not has_form('{"a":1,"c":[2]}', '{"a":…,"b":[…]}')
    assert not has_form('{"a":1,"b":[2]}}', '{"a":…,"b":[…]}')
