"""The name of a table in its catalog."""

from typing import NamedTuple


class TableIdentifier(NamedTuple):
    """A namespace of one level, and the name of a table in it. Catalogs take it as a pair, and so does the state."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"
