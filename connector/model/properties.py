"""Properties: the settings of a table, of a catalog's client, of a FileIO or of Spark."""

import re
from collections.abc import Iterator, Mapping


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


def parse_whole_number(text: str) -> int:
    """Return the number of a property, as other engines read it. ValueError if it is none for them: Python alone reads
    1_000, and ignores spaces."""
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise ValueError
    return int(text)
