"""Properties: the settings of a table, of a catalog's client, of a FileIO or of Spark."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

QUOTED_CHARACTERS: Final = 60  # of a value


class Properties(Mapping[str, str]):
    """Names with their values. They never change.

    A dict cannot be a key of a cache, and a MappingProxyType cannot be pickled for Spark's tasks. Properties can.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        """The names only: a value may be a secret."""
        return f"Properties of {', '.join(self._values) or 'nothing'}"


def read_number(properties: Mapping[str, str], name: str, default: int, least: int | None = None) -> int:
    """Return a property that is a whole number. ValueError if it is none, or less than the least one."""
    with demand(properties, name, "must be a whole number" + (f" from {least} upwards" if least is not None else "")):
        number = parse_whole_number(properties.get(name, str(default)))
        if least is not None and number < least:
            raise ValueError
    return number


@contextmanager
def demand(properties: Mapping[str, str], name: str, demanded: str) -> Iterator[None]:
    """Let a ValueError say what a property is, and what it must be."""
    try:
        yield
    except ValueError as error:
        value = properties[name]
        shown = value if len(value) <= QUOTED_CHARACTERS else f"{value[:QUOTED_CHARACTERS]} …"
        raise ValueError(f"{name} is {shown!r}; it {demanded}") from error


def parse_whole_number(text: str) -> int:
    """Return the number of a property, as other engines read it. ValueError if it is none for them: Python alone reads
    1_000, and ignores spaces."""
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise ValueError
    return int(text)
