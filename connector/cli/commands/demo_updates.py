"""The runtime's part of standard updates: it loads each key of the documents, and stores the last document of each."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from connector.cli.conversation import Conversation, ConversationEndedError
from connector.cli.flow.documents import Document, DocumentFile, read_location
from protocol.flow import Json

LOADED: Final = '{"loaded"'


@dataclass(frozen=True)
class LoadedKeys:
    """The keys of a file of documents, with the line of their last document, and those that the table has."""

    key: Sequence[str]
    lines: Mapping[str, int]
    found: frozenset[str]

    def select(self, documents: DocumentFile) -> Iterator[tuple[Document, bool]]:
        """Yield the last document of each key, and whether the table has a row of it."""
        for document in documents:
            of_key = json.dumps(documents.read_key(document, self.key))
            if self.lines[of_key] == document.line:
                yield document, of_key in self.found


def load_keys(
    connector: Conversation, documents: DocumentFile, key: Sequence[str], show: Callable[[str], None]
) -> LoadedKeys:
    """Load the keys of all documents. Raises ConversationEndedError if the connector ends."""
    lines = {json.dumps(documents.read_key(document, key)): document.line for document in documents}
    for of_key in lines:
        connector.send(b'{"load":{"key":%s}}\n' % of_key.encode())
    show(f"→ {len(lines)} load requests")
    show('→ {"flush":{}}')
    connector.send(b'{"flush":{}}\n')
    found = [json.dumps([read_location(loaded, ptr) for ptr in key]) for loaded in _receive_loaded(connector)]
    show(f"← {len(found)} loaded responses")
    return LoadedKeys(key, lines, frozenset(found))


def _receive_loaded(connector: Conversation) -> Iterator[Json]:
    """Yield the loaded documents, until all keys were looked up."""
    while line := connector.receive():
        [(kind, answer)] = msgspec.json.decode(line).items()
        if kind == "flushed":
            return
        yield answer["doc"]
    raise ConversationEndedError(connector.finish())
