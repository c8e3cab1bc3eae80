"""The task's tables, the other engines that write to them, and the oracle for what they must hold."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyiceberg.table import Table

from crash import foreign
from crash.engines import Engines
from crash.lakes import Lake
from crash.ledger import TABLES, Entry, compare, expected, visible
from crash.metadata import check_metadata


class Tables:
    """The tables of a lake, and the rows that others than the connector have added to each."""

    def __init__(self, lake: Lake) -> None:
        self.others: Final[dict[str, list[Entry]]] = {table: [] for table in TABLES}
        self._lake = lake
        self._replaced: tuple[str, ...] = ()

    def table(self, name: str) -> Table:
        return self._lake.open_catalog().load_table((self._lake.namespace, name))

    def check(self, committed: int, tables: Sequence[str] = TABLES, *, complete: bool) -> None:
        """Every row, given how many documents the log has read; without `complete` the last may still be missing."""
        for table in tables:
            wanted = expected(table, 0 if table in self._replaced else committed, self.others[table])
            compare(table, visible(self.table(table)), wanted, complete=complete)

    def audit(self, committed: int, engines: Engines) -> int:
        """What every engine reads, and what it reads it by; how many rows each has compared."""
        rows = 0
        for name in TABLES:
            table, wanted = self.table(name), expected(name, committed, self.others[name])
            for engine, read in engines.for_tables(self._lake.s3).items():
                compare(f"{name}, read by {engine}", read(table), wanted, complete=True)
            check_metadata(table)
            rows += wanted.total()
        return rows

    def append(self, table: str) -> None:
        foreign.append(self.table(table), foreign.APPENDED)
        self.others[table] += foreign.APPENDED

    @contextmanager
    def replaced(self, table: str) -> Iterator[None]:
        """The table is dropped and created again; in the end the old one is brought back."""
        catalog, path = self._lake.open_catalog(), (self._lake.namespace, table)
        old = catalog.load_table(path)
        catalog.drop_table(path)
        catalog.create_table(path, old.schema(), location=f"{old.location()}_replaced")
        self._replaced = (table,)
        yield
        self._replaced = ()
        catalog.drop_table(path)
        catalog.register_table(path, old.metadata_location)
