"""Materializes the documents of a file in one conversation: it publishes a task, and stores them in one transaction.

For standard updates, it loads each key of the documents as the runtime does, and stores the last document of each.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from connector.cli.conversation import Conversation, ConversationEndedError, shorten
from connector.cli.flow.documents import Document, DocumentFile, read_field, read_location
from connector.cli.flow.field_selection import FieldRules
from connector.cli.flow.flow_files import Task, TaskBinding
from connector.cli.flow.task_requests import make_apply, make_validate
from connector.cli.texts.health_texts import format_count
from connector.evolution.candidate import Candidate
from connector.evolution.new_column_rules import constrain_new_column
from connector.host.errors import UserError
from protocol import request, response
from protocol.flow import WHOLE_RANGE, Collection, Constraint, ConstraintType, FieldSelection, Json, Materialization

TASK: Final = "demo/materialize-iceberg"
LOADED: Final = '{"loaded"'
HIDDEN_CONFIG: Final = "{…}".encode()


@dataclass(frozen=True)
class Stored:
    """What the transaction has stored: rows, and how many of these have replaced older ones."""

    rows: int
    replaced: int


@dataclass(frozen=True)
class _LoadedKeys:
    """The keys of a file of documents, with the line of their last document, and those that the table has."""

    key: Sequence[str]
    lines: Mapping[str, int]
    found: frozenset[str]

    def select(self, documents: DocumentFile) -> Iterator[tuple[Document, bool]]:
        """Yield the last document of each key, and whether the table has a row of it."""
        for document in documents:
            key_text = json.dumps(documents.read_key(document, self.key))
            if self.lines[key_text] == document.line:
                yield document, key_text in self.found


def materialize(
    collection: Collection,
    resource: Json,
    documents: DocumentFile,
    config: Json,
    show: Callable[[str], None],
    way_out: str,
) -> Stored:
    """Materialize the documents into the table of a binding with this resource config. `way_out` is a sentence for the
    error if validate refuses them.

    Raises ConversationEndedError if the connector fails, and UserError if the documents do not fit the table.
    """
    task = Task(config, TASK, (TaskBinding(resource, FieldRules(), 0, lambda: collection),))

    def show_response(line: str) -> None:
        if not line.startswith(LOADED):  # there may be as many as documents
            show(f"← {line}")

    with Conversation(show_response, log_level="warn") as connector:

        def ask(kind: str, body: Json) -> Any:
            line = msgspec.json.encode({kind: body})
            show(f"→ {shorten(line.replace(msgspec.json.encode(config), HIDDEN_CONFIG))}")
            return connector.ask(line)

        apply = _make_apply(task, _validate(task, ask, way_out))
        ask("apply", apply)
        ask("open", request.Open(apply.materialization, range=WHOLE_RANGE))
        ask("acknowledge", {})
        if resource["delta_updates"]:
            ask("flush", {})
            versions: Iterable[tuple[Document, bool]] = ((document, False) for document in documents)
            replaced = 0
        else:
            loaded = _load_keys(connector, documents, collection.key, show)
            versions, replaced = loaded.select(documents), len(loaded.found)
        before = connector.lines
        for line in _make_stores(versions, documents, collection, apply.materialization.bindings[0].field_selection):
            connector.send(line)
        rows = connector.lines - before
        show(f"→ {format_count(rows, 'store request')}, from line {before + 1} of the input on")
        ask("startCommit", {"runtimeCheckpoint": {}})
        ask("acknowledge", {})
        if status := connector.finish():
            raise ConversationEndedError(status)
    return Stored(rows, replaced)


def require_recommended(collection: Collection, constraints: Mapping[str, Constraint]) -> FieldRules:
    """Return rules that select the fields that the connector recommends for a new table, at any depth.

    Flow itself selects no location within one that is selected already. The demo shows them all.
    """
    recommended = [
        each.projection.field
        for each in Candidate(collection, {}, delta_updates=True).fields
        if constrain_new_column(each).type is ConstraintType.LOCATION_RECOMMENDED
        and constraints[each.projection.field].type is not ConstraintType.FIELD_FORBIDDEN
    ]
    return FieldRules(recommended=False, require={field: {} for field in recommended})


def _validate(task: Task, ask: Callable[[str, Any], Any], way_out: str) -> response.Validated:
    last = Materialization(task.name)  # validate warns of a new task's rows. The demo says itself that it adds to them
    try:
        return msgspec.convert(ask("validate", make_validate(task, last)), response.Validated)
    except ConversationEndedError as error:
        if way_out:
            raise UserError(f"{error} {way_out}") from error
        raise


def _make_apply(task: Task, validated: response.Validated) -> request.Apply:
    [binding], [answer] = task.bindings, validated.bindings
    selecting = replace(binding, rules=require_recommended(binding.collection, answer.constraints))
    return make_apply(replace(task, bindings=(selecting,)), validated)


def _load_keys(
    connector: Conversation, documents: DocumentFile, key: Sequence[str], show: Callable[[str], None]
) -> _LoadedKeys:
    """Load the keys of all documents. Raises ConversationEndedError if the connector ends."""
    lines = {json.dumps(documents.read_key(document, key)): document.line for document in documents}
    for key_text in lines:
        connector.send(b'{"load":{"key":%s}}\n' % key_text.encode())
    show(f"→ {format_count(len(lines), 'load request')}")
    show('→ {"flush":{}}')
    connector.send(b'{"flush":{}}\n')
    found = [json.dumps([read_location(loaded, ptr) for ptr in key]) for loaded in _receive_loaded(connector)]
    show(f"← {format_count(len(found), 'loaded response')}")
    return _LoadedKeys(key, lines, frozenset(found))


def _receive_loaded(connector: Conversation) -> Iterator[Json]:
    """Yield the loaded documents, until all keys were looked up."""
    while line := connector.receive():
        [(kind, answer)] = msgspec.json.decode(line).items()
        if kind == "flushed":
            return
        yield answer["doc"]
    raise ConversationEndedError(connector.finish())


def _make_stores(
    versions: Iterable[tuple[Document, bool]],
    documents: DocumentFile,
    collection: Collection,
    selection: FieldSelection,
) -> Iterator[bytes]:
    """Yield a store request for each document. `versions` says of each whether the table has a row of its key."""
    projections = {each.field: each for each in collection.projections}
    now = datetime.now(UTC)
    for document, exists in versions:
        body = {
            "key": documents.read_key(document, collection.key),
            "values": [read_field(document.value, projections[field], now) for field in selection.values],
            "doc": msgspec.Raw(document.text),
            **({"exists": True} if exists else {}),
        }
        yield msgspec.json.encode({"store": body}) + b"\n"
