"""Translates the errors of a client library into errors of the connector.

Each client has one table, in the module that uses the client. An entry of a table says which errors it is for, which
error of ours they become, and the sentence that the user reads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from connector.host.errors import ConnectorError

Matcher: TypeAlias = Callable[[Exception], bool]
ReadFacts: TypeAlias = Callable[[Exception], Mapping[str, object]]


class Entry(NamedTuple):
    """The errors that one sentence explains. The sentence has a placeholder for each fact, such as {answer}."""

    matches: Matcher
    kind: type[ConnectorError]
    sentence: str


ErrorTable: TypeAlias = tuple[Entry, ...]


def is_a(*types: type[Exception], saying: Sequence[str] = ("",), read: Callable[[Any], str] = str) -> Matcher:
    """Match the errors of these types whose text, as `read` returns it, contains at least one of the words."""
    return lambda error: isinstance(error, types) and any(words in read(error) for words in saying)


@contextmanager
def translate(table: ErrorTable, read_facts: ReadFacts) -> Iterator[None]:
    """Raise what the first entry that matches an error makes of it. An error that no entry matches stays as it is.

    `read_facts` returns the values of the placeholders. Quotations of a server's answer must be redacted by it if they
    are cut.
    """
    try:
        yield
    except Exception as error:
        entry = next((entry for entry in table if entry.matches(error)), None)
        if entry is None:
            raise
        raise entry.kind(entry.sentence.format(**read_facts(error))) from error
