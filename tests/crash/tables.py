"""The task's tables, the other engines that write to them, and the oracle for what they must hold."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from crash import foreign
from crash.ledger import TABLES, Entry, compare, expected, visible
from fixtures.collection import NAMESPACE
from support.readers import local_catalog


class Tables:
    """The tables of a warehouse, and the rows that others than the connector have added to each."""

    def __init__(self, warehouse: Path) -> None:
        self.others: Final[dict[str, list[Entry]]] = {table: [] for table in TABLES}
        self._warehouse = warehouse
        self._replaced: tuple[str, ...] = ()

    def table(self, name: str) -> Table:
        return self._catalog.load_table((NAMESPACE, name))

    def check(self, committed: int, tables: Sequence[str] = TABLES, *, complete: bool) -> None:
        """Every row, given how many documents the log has read; without `complete` the last may still be missing."""
        for table in tables:
            wanted = expected(table, 0 if table in self._replaced else committed, self.others[table])
            compare(table, visible(self._catalog, table), wanted, complete=complete)

    def append(self, table: str) -> None:
        foreign.append(self.table(table), foreign.APPENDED)
        self.others[table] += foreign.APPENDED

    @contextmanager
    def replaced(self, table: str) -> Iterator[None]:
        """The table is dropped and created again; in the end the old one is brought back."""
        catalog, path = self._catalog, (NAMESPACE, table)
        old = catalog.load_table(path)
        catalog.drop_table(path)
        catalog.create_table(path, old.schema())
        self._replaced = (table,)
        yield
        self._replaced = ()
        catalog.drop_table(path)
        catalog.register_table(path, old.metadata_location)

    @property
    def _catalog(self) -> Catalog:
        return local_catalog(self._warehouse)
