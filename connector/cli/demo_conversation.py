"""Materializes the documents of a file in one conversation: it publishes a task, and stores them in one transaction."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from connector.cli.conversation import Conversation, ConversationEndedError, shorten
from connector.cli.documents import DocumentFile
from connector.cli.field_selection import SelectedFields, select_fields
from protocol.flow import WHOLE_RANGE, Collection, Json

TASK: Final = "demo/materialize-iceberg"


def materialize(
    collection: Collection, table: str, documents: DocumentFile, config: Json, show: Callable[[str], None]
) -> int:
    """Materialize the documents into the table, and return their number.

    Raises ConversationEndedError if the connector fails, and UserError if the documents do not fit the table.
    """
    task = {"name": TASK, "connectorType": "IMAGE", "config": config}
    binding = {"resourceConfig": {"table": table}, "collection": msgspec.to_builtins(collection)}
    with Conversation(lambda line: show(f"← {line}"), log_level="warn") as connector:

        def ask(kind: str, body: Json) -> Any:
            request = msgspec.json.encode({kind: body})
            show(f"→ {shorten(request)}")
            return connector.ask(request)

        [validated] = ask("validate", {**task, "bindings": [binding]})["bindings"]
        selected = select_fields(collection, validated["projectionConstraints"])
        bound = _bind(binding, validated["resourcePath"], selected)
        materialization = {"materialization": {**task, "bindings": [bound]}, "version": "1"}
        ask("apply", materialization)
        ask("open", {**materialization, "range": msgspec.to_builtins(WHOLE_RANGE)})
        ask("acknowledge", {})
        ask("flush", {})
        before = connector.lines
        for line in _make_stores(documents, collection.key, selected):
            connector.send(line)
        rows = connector.lines - before
        show(f"→ {rows} store requests, from line {before + 1} of the input on")
        ask("startCommit", {"runtimeCheckpoint": {}})
        ask("acknowledge", {})
        if status := connector.finish():
            raise ConversationEndedError(status)
    return rows


def _bind(binding: dict[str, Any], resource_path: Sequence[str], selected: SelectedFields) -> dict[str, Any]:
    return {
        **binding,
        "resourcePath": resource_path,
        "fieldSelection": msgspec.to_builtins(selected.selection),
        "deltaUpdates": True,
        "stateKey": quote("/".join(resource_path), safe="") + ".v0",
    }


def _make_stores(documents: DocumentFile, key: Sequence[str], selected: SelectedFields) -> Iterator[bytes]:
    now = datetime.now(UTC)
    for document in documents:
        body = {
            "key": documents.read_key(document, key),
            "values": selected.read_values(document.value, now),
            "doc": msgspec.Raw(document.text),
        }
        yield msgspec.json.encode({"store": body}) + b"\n"
