"""Every answer of every fixture conversation is the one that was recorded.

Golden files are written anew where the environment has UPDATE_SNAPSHOTS.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.generate import conversations
from support.engines.spark_sql import IN_ITS_WORKER
from support.rows.conversations import IN_IMAGE_IN_CI, Conversation
from support.sessions.connector_process import Answer
from support.sessions.containers import IMAGE
from support.snapshots import are_updated

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).with_name("golden")
NAMES = sorted(name.removesuffix(".jsonl") for name in conversations())
RANDOM = re.compile(r"\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})\b")  # UUIDs and fence values
each_conversation = pytest.mark.parametrize(
    ("launch", "name"),
    [
        *(pytest.param("process", name, marks=IN_ITS_WORKER) for name in NAMES),
        *(pytest.param("image", name, marks=IMAGE) for name in IN_IMAGE_IN_CI),
        *(
            pytest.param("image", name, marks=(*IMAGE, pytest.mark.slow))
            for name in NAMES
            if name not in IN_IMAGE_IN_CI
        ),
    ],
    indirect=["launch"],
    scope="session",
)


@each_conversation
def test_every_answer_is_the_recorded_one(name: str, fixture_conversations: dict[str, Conversation]) -> None:
    conversation = fixture_conversations[name]
    assert conversation.outcome.status == 0, conversation.outcome.log
    answers = redacted(conversation)
    golden = GOLDEN / f"{name}.jsonl"
    if are_updated():
        golden.write_text("".join(f"{answer}\n" for answer in answers))
    assert [json.loads(answer) for answer in answers] == list(map(json.loads, golden.read_text().splitlines()))


@each_conversation
def test_a_staged_file_is_as_large_as_its_descriptor_says(
    name: str, fixture_conversations: dict[str, Conversation]
) -> None:
    answers = fixture_conversations[name].outcome.answers
    described = [file for answer in answers for file in files(answer)]
    assert described
    assert [file["size"] for file in described] == [
        Path(file["path"].removeprefix("file://")).stat().st_size for file in described
    ]
    assert all(0 < column[1] < file["size"] for file in described for column in file["columns"])


def redacted(conversation: Conversation) -> list[str]:
    """Without what differs from run to run or between versions of libraries; what is random is numbered in the order
    of its appearance, so that a fence value is still known when it comes again."""
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        kind = "uuid" if "-" in match[0] else "fence"
        return numbers.setdefault(match[0], f"<{kind} {len(numbers) + 1}>")

    texts = []
    for answer in conversation.outcome.answers:
        text = json.dumps({answer.kind: without_sizes(answer)}, ensure_ascii=False)
        texts.append(RANDOM.sub(numbered, text.replace(str(conversation.directory), "<directory>")))
    return texts


def without_sizes(answer: Answer) -> Any:
    """The spec's schemas have tests of their own."""
    if answer.kind == "spec":
        return {"protocol": answer.body["protocol"]}
    body = json.loads(json.dumps(answer.body))
    for entry in entries(Answer(answer.kind, body)):
        if "located" in entry:
            location, rows, _ = entry["located"]
            entry["located"] = [location, rows, "<snapshot>"]
    for file in files(Answer(answer.kind, body)):
        file["size"] = "<size>"
        for column in file["columns"]:
            column[1] = "<size>"
    return body


def files(answer: Answer) -> Iterator[Any]:
    """The data files that a startedCommit names."""
    for entry in entries(answer):
        yield from entry["files"]


def entries(answer: Answer) -> Iterator[Any]:
    """The entries of a startedCommit, one for each table."""
    if answer.kind == "startedCommit" and "state" in answer.body:
        for ranges in answer.body["state"]["updated"]["bindingStates"].values():
            for by_next in ranges.values():
                yield from by_next.values()
