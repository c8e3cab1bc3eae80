"""However a runtime spells its Store lines, mixes bindings and cuts transactions, every row lands once in its table."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pytest

from fixtures.collection import NAMESPACE, Collection, Field, Json, encode
from fixtures.conversation import commit, line, opening
from fixtures.packed import pack
from support.engines.spark_sql import IN_ITS_WORKER
from support.rows.conversations import Conversation, hold_conversations
from support.sessions.connector_process import Launch
from support.tables.local_tables import list_changes

pytestmark = [
    pytest.mark.spark,
    IN_ITS_WORKER,
    # tests/image reads what containers have written.
    pytest.mark.parametrize("launch", ["process"], indirect=True, scope="session"),
]

BINDINGS = 11  # so that 1 also begins another binding's number
WITHOUT_DOCUMENT = 2
TABLES = tuple(
    Collection(
        f"acmeCo/t{number}",
        f"t{number}",
        (
            Field("id", "/id", ("integer",), exists="MUST", is_key=True),
            Field("shape", "/shape", ("string",), exists="MUST"),
        ),
    )
    for number in range(BINDINGS)
)
ROWS = 6


@dataclass(frozen=True)
class Stored:
    """A document on its way to a binding, as the members of its Store."""

    binding: int
    document: Json

    @property
    def members(self) -> dict[str, Json]:
        key, values = [self.document["id"]], [self.document["shape"]]
        binding = {"binding": self.binding} if self.binding else {}
        document = {} if self.binding == WITHOUT_DOCUMENT else {"doc": self.document}
        return {**binding, "key": key, "values": values, **document}

    @property
    def row(self) -> tuple[int, Json]:
        """The binding's number and the columns of the row."""
        document = {} if self.binding == WITHOUT_DOCUMENT else {"flow_document": encode(self.document).decode()}
        return self.binding, {**self.document, **document}


def usual(stored: Stored) -> bytes:
    return line("store", stored.members)


def binding_last(stored: Stored) -> bytes:
    members = {name: value for name, value in stored.members.items() if name != "binding"}
    return line("store", {**members, "binding": stored.binding})


def backwards(stored: Stored) -> bytes:
    return line("store", dict(reversed(stored.members.items())))


def with_unknown_members(stored: Stored) -> bytes:
    return line("store", {"$internal": {"binding": 5}, **stored.members, "hint": [1, {"store": None}]})


def with_defaults(stored: Stored) -> bytes:
    return line("store", {"binding": 0, "exists": False, "delete": False, "keyPacked": "", **stored.members})


def spaced(stored: Stored) -> bytes:
    members = b" ,\t".join(encode(name) + b" : " + encode(value) for name, value in stored.members.items())
    return b' \t{ "store" : { ' + members + b" } }\r\n"


def between_blank_lines(stored: Stored) -> bytes:
    return b"\n \t\r\n" + usual(stored) + b"\n"


def packed(stored: Stored) -> bytes:
    return _packed(stored, "key", "values")


def packed_by_turns(stored: Stored) -> bytes:
    return _packed(stored, *((), ("key", "values"), ("key",), ("values",))[stored.document["id"] % 4])


def _packed(stored: Stored, *halves: str) -> bytes:
    members = {name: value for name, value in stored.members.items() if name not in halves}
    return line("store", members | {f"{half}Packed": b64encode(pack(stored.members[half])).decode() for half in halves})


@dataclass(frozen=True)
class Shape:
    """A transaction: the bindings of its Stores in turn, and how each is spelled."""

    bindings: Sequence[int]
    spelling: Callable[[Stored], bytes] = usual

    @property
    def touched(self) -> list[int]:
        return sorted(set(self.bindings))


SHAPES: Mapping[str, Shape] = {
    "one binding after the other": Shape([0] * ROWS + [1] * ROWS),
    "no store": Shape([]),
    "bindings interleaved": Shape([0, 1, 10] * ROWS),
    "bindings that begin alike": Shape([1] * ROWS + [10] * ROWS + [1] * ROWS),
    "bindings that begin alike, interleaved": Shape([10, 1] * ROWS),
    "binding last": Shape([1] * ROWS + [0, 10] * ROWS, binding_last),
    "members backwards": Shape([0, 0, 3, 3, 10, 1] * ROWS, backwards),
    "unknown members": Shape([0, 1] * ROWS, with_unknown_members),
    "defaults spelled out": Shape([0] * ROWS, with_defaults),
    "white space": Shape([0, 1, 1, 10] * ROWS, spaced),
    "blank lines": Shape([0, 0, 1] * ROWS, between_blank_lines),
    "packed": Shape([0, 1, 1, 10] * ROWS, packed),
    "plain and packed by turns": Shape([0, 0, 0, 1] * ROWS, packed_by_turns),
    "no store again": Shape([]),
    "no document": Shape([WITHOUT_DOCUMENT] * ROWS + [3, WITHOUT_DOCUMENT] * ROWS),
    "a few bindings": Shape([3, 7]),
    "every binding": Shape([*range(BINDINGS)] * 2),
}


def stores(shape: str) -> list[Stored]:
    return [Stored(binding, {"id": number, "shape": shape}) for number, binding in enumerate(SHAPES[shape].bindings)]


def without_document(request: bytes) -> bytes:
    """The binding that leaves the root document out of its selection."""
    message = json.loads(request)
    for body in message.values():
        if "materialization" in body:
            del body["materialization"]["bindings"][WITHOUT_DOCUMENT]["fieldSelection"]["document"]
    return encode(message) + b"\n"


def lines() -> Iterator[bytes]:
    yield from map(without_document, opening("shapes", TABLES))
    for number, (name, shape) in enumerate(SHAPES.items(), start=1):
        yield line("flush", {})
        yield from map(shape.spelling, stores(name))
        yield from commit("shapes", number)


@pytest.fixture(scope="module")
def conversation(launch: Launch, tmp_path_factory: pytest.TempPathFactory) -> Conversation:
    """All shapes in one session, piped at once."""
    return hold_conversations({"shapes": list(lines())}, tmp_path_factory.mktemp("shapes"), launch=launch)["shapes"]


@pytest.fixture(scope="module")
def rows(conversation: Conversation) -> list[tuple[int, Json]]:
    """Every table's rows: the binding's number, and the columns."""
    return [
        (binding, row)
        for binding in range(BINDINGS)
        for row in conversation.table(NAMESPACE, f"t{binding}").scan().to_arrow().to_pylist()
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_lands_once_in_its_table(shape: str, rows: list[tuple[int, Json]]) -> None:
    wanted = [stored.row for stored in stores(shape)]
    found = [(binding, row) for binding, row in rows if row["shape"] == shape]
    assert sorted(found, key=str) == sorted(wanted, key=str)


def test_a_piped_conversation_is_answered_in_order_and_ends_well(conversation: Conversation) -> None:
    assert conversation.outcome.status == 0, conversation.outcome.log
    transactions = [["flushed", "startedCommit", "acknowledged"]] * len(SHAPES)
    opened = ["spec", "validated", "applied", "opened", "acknowledged"]
    assert conversation.outcome.kinds == [*opened, *chain.from_iterable(transactions)]


def test_state_names_the_tables_that_got_rows_and_no_others(conversation: Conversation) -> None:
    for kind in ("startedCommit", "acknowledged"):
        answers = [answer.body for answer in conversation.outcome.answers if answer.kind == kind][-len(SHAPES) :]
        for body, shape in zip(answers, SHAPES.values(), strict=True):
            state_keys = set(body["state"]["updated"]["bindingStates"]) if "state" in body else set()
            assert state_keys == {TABLES[binding].open_binding()["stateKey"] for binding in shape.touched}


def test_a_transaction_leaves_a_snapshot_only_in_tables_that_it_gave_rows(conversation: Conversation) -> None:
    tables = [conversation.table(NAMESPACE, f"t{binding}") for binding in range(BINDINGS)]
    snapshots = [len(list_changes(table)) for table in tables]
    assert snapshots == [sum(binding in shape.touched for shape in SHAPES.values()) for binding in range(BINDINGS)]
