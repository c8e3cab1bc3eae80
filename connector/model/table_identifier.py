"""The name of a table in its catalog. About fifty modules import it, and it imports none."""

from typing import NamedTuple


class TableIdentifier(NamedTuple):
    """A namespace of one level, and the name of a table in it. Catalogs and the state take it as a pair."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"
