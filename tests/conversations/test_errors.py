"""Whatever is wrong ends the process with one clear last record, and nothing of its transaction in any table.

That a container of the image gives the same answers is shown by the golden conversations."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from fixtures.collection import NAMESPACE, Collection, Field, Json
from fixtures.conversation import Row, commit, line, opening, store
from support.rows.conversations import Conversation, hold_conversations
from support.sessions.connector_process import Outcome, run_conversation
from support.snapshots import check_text

pytestmark = pytest.mark.xdist_group("errors")  # one process of the tests holds the conversations

JSON_LOG = {"LOG_FORMAT": "json"}
SECRET = "only-the-endpoint-may-see-this"


def table(name: str) -> Collection:
    return Collection(
        f"acmeCo/{name}",
        name,
        (
            Field("id", "/id", ("integer",), exists="MUST", is_key=True),
            Field("blob", "/blob", ("string",), string={"contentEncoding": "base64"}),
            Field("name", "/name", ("string",), exists="MUST"),
            Field("quantity", "/quantity", ("integer",)),
        ),
    )


TABLES = (table("first"), table("second"))
FIRST, SECOND = range(2)


def good(binding: int, key: int = 1) -> bytes:
    return store(TABLES[binding], Row(binding, {"id": key, "blob": "AA==", "name": "x", "quantity": 1}), packed=False)


def bad(**fields: Json) -> bytes:
    document = {"id": 7, "name": "x", **fields}
    return store(TABLES[SECOND], Row(SECOND, document), packed=False)


def spelled(binding: Json = SECOND, **members: Json) -> bytes:
    return line("store", {"binding": binding, **members})


class Fault(NamedTuple):
    """What is sent in the middle of the second transaction, and what is said about it."""

    lines: tuple[bytes, ...]
    message: str  # a pattern


# A transaction that is committed, and one that has rows for both tables when the fault comes.
BEFORE = [
    *opening("faults", TABLES),
    *(line("flush", {}), good(FIRST), good(SECOND), *commit("faults", 1)),
    *(line("flush", {}), good(FIRST, 2), good(SECOND, 2)),
]
COMMIT = tuple(commit("faults", 2))
AT_FAULT = f"line {len(BEFORE) + 1}: "

FAULTS = {
    "base64 that is none": Fault(
        (bad(blob="no base64"), *COMMIT), AT_FAULT + r"table shop\.second, field 'blob', key \[7\]: \"no base64\" "
    ),
    "too few values": Fault(
        (spelled(key=[7], values=["AA==", "x"]), *COMMIT), AT_FAULT + "the Store has 2 elements in values, expected 3"
    ),
    "a binding that does not exist": Fault(
        (spelled(binding=2, key=[7], values=[None, "x", 1]), *COMMIT), AT_FAULT + "store names binding 2"
    ),
    "a line that is broken off": Fault(
        (b'{"store":{"binding":1,"key":[7\n', *COMMIT), AT_FAULT + "the line ends within its JSON, after 30 bytes"
    ),
    "input that ends after a Store": Fault((), "input ended after store: expected store or startCommit"),
    "a state that was reset": Fault(
        (line("startCommit", {"runtimeCheckpoint": {}, "statePatches": [{}, None]}),), AT_FAULT + ".*reset"
    ),
}


# The process ends as with the others. tests/protocol and tests/encoding show what is said.
WITHOUT_CI = {"too few values", "a line that is broken off", "input that ends after a Store"}
each_fault = pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[pytest.mark.slow] * (name in WITHOUT_CI)) for name in FAULTS]
)


@pytest.fixture(scope="module")
def conversations(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Conversation]:
    """Every fault in a session of its own."""
    left_out = set() if request.config.getoption("--all") else WITHOUT_CI
    lines = {name: [*BEFORE, *fault.lines] for name, fault in FAULTS.items() if name not in left_out}
    return hold_conversations(lines, tmp_path_factory.mktemp("faults"), JSON_LOG)


@pytest.mark.spark
@each_fault
def test_a_fault_in_the_middle_of_a_transaction_is_one_clear_last_record(
    fault: str, conversations: dict[str, Conversation]
) -> None:
    said = last_message(conversations[fault].outcome)
    assert re.match(FAULTS[fault].message, said)
    check_text("session_errors", fault, said)


@pytest.mark.spark
@each_fault
def test_nothing_of_the_transaction_is_answered_or_becomes_visible(
    fault: str, conversations: dict[str, Conversation]
) -> None:
    answered = ["flushed", "startedCommit", "acknowledged", "flushed"]
    assert conversations[fault].outcome.kinds[5:] == answered
    for collection in TABLES:
        found = conversations[fault].table(NAMESPACE, collection.table)
        assert found.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist() == [1]
        assert len(found.snapshots()) == 1


def test_a_message_out_of_order_is_an_error_that_names_its_line_and_what_was_expected(tmp_path: Path) -> None:
    outcome = run_conversation([line("spec", {}), b"\n", line("flush", {})], tmp_path, JSON_LOG)
    assert outcome.kinds == ["spec"]
    assert last_message(outcome) == "line 3: flush may not follow spec: expected spec, validate, apply or open"


def test_a_broken_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    outcome = run_conversation([line("spec", {}), b'{"spec":{},\n', line("spec", {})], tmp_path, JSON_LOG)
    assert outcome.kinds == ["spec"]
    assert last_message(outcome) == "line 2: the line ends within its JSON, after 11 bytes"


@pytest.mark.parametrize("lines", [[], [line("spec", {}), b"\n"], [line("spec", {})[:-1]]], ids=len)
def test_input_that_ends_between_requests_is_no_error(lines: list[bytes], tmp_path: Path) -> None:
    outcome = run_conversation(lines, tmp_path, JSON_LOG)
    assert (outcome.status, outcome.kinds, outcome.log) == (0, ["spec"] * any(lines), "")


def test_everything_wrong_with_a_config_is_said_at_once_and_no_secret_with_it(tmp_path: Path) -> None:
    config = {
        "namespace": "with.dot",
        "regoin": "eu-west-1",
        "upload_interval": "PT5H",
        "aws_secret_access_key": [SECRET],
        "catalog": {"catalog_type": "Iceberg REST Server", "uri": "https://example.com", "credential": {"key": SECRET}},
    }
    binding = TABLES[FIRST].validate_binding() | {"resourceConfig": {"table": 5}}
    outcome = run_conversation([validate(config, binding)], tmp_path, JSON_LOG)
    message = last_message(outcome)
    wrong = {"/namespace", "/regoin", "/upload_interval", "/aws_secret_access_key", "/catalog/credential"}
    assert {*wrong, "bindings[0] /table"} <= {problem.partition(": ")[0] for problem in message.splitlines()}
    assert "region" in message
    assert SECRET not in outcome.log


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_another_codec_than_json_is_refused(log_format: str, tmp_path: Path) -> None:
    outcome = run_conversation([], tmp_path, {"LOG_FORMAT": log_format, "FLOW_RUNTIME_CODEC": "proto"})
    assert outcome.status == 1
    said = "FLOW_RUNTIME_CODEC is 'proto', but this connector speaks only json."
    assert said in outcome.last_log_line
    check_text("session_errors", "another codec", said)


@pytest.mark.parametrize(("variable", "value"), [("LOG_FORMAT", "xml"), ("LOG_LEVEL", "loud")])
def test_an_unknown_way_to_log_is_refused_in_one_line(variable: str, value: str, tmp_path: Path) -> None:
    outcome = run_conversation([line("spec", {})], tmp_path, {variable: value})
    assert (outcome.status, outcome.kinds) == (1, [])
    assert outcome.log.splitlines() == [outcome.last_log_line]
    assert f"{variable} is {value!r}" in outcome.last_log_line


def test_text_for_people_ends_in_the_same_sentence(tmp_path: Path) -> None:
    outcome = run_conversation([line("flush", {})], tmp_path, {"LOG_FORMAT": "text"})
    assert outcome.status == 1
    assert outcome.last_log_line.endswith(
        "error line 1: flush may not come first: expected spec, validate, apply or open"
    )


def validate(config: Json, binding: Json) -> bytes:
    return line(
        "validate", {"name": "acmeCo/faults", "connectorType": "IMAGE", "config": config, "bindings": [binding]}
    )


def last_message(outcome: Outcome) -> str:
    """What the last record says; all of the log are records, and the process has failed."""
    assert outcome.status == 1, outcome.log
    records = list(map(json.loads, outcome.log.splitlines()))
    assert all({"ts", "level", "msg"} <= record.keys() for record in records)
    assert [record for record in records if record["level"] == "error"] == records[-1:]
    return str(records[-1]["msg"])
