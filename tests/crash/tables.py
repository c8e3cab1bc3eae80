"""The task's tables, the other engines that write to them, and the oracle for what they must hold."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.table import Table

from crash import foreign
from crash.balances import check_progress, expected_balances
from crash.engines import Engines
from crash.lakes import Lake
from crash.ledger import (
    BALANCES,
    BALANCES_REJECTED,
    REJECTED,
    TABLES,
    Entry,
    PromiseBrokenError,
    compare,
    expected,
    visible,
)
from crash.metadata import check_metadata


class Tables:
    """The tables of a lake, and the rows that others than the connector have added to each."""

    def __init__(self, lake: Lake) -> None:
        self.others: Final[dict[str, list[Entry]]] = {table: [] for table in TABLES}
        self._lake = lake
        self._replaced: tuple[str, ...] = ()
        self._before: dict[str, Counter[Entry]] = {}  # what tables have until the first commit of their backfill

    def table(self, name: str) -> Table:
        return self._lake.open_catalog().load_table((self._lake.namespace, name))

    def check(self, committed: int, tables: Sequence[str] = TABLES, *, complete: bool) -> None:
        """Every row, given how many documents the log has read; without `complete` the last may still be missing."""
        for table in tables:
            found = visible(self.table(table))
            if self._awaits_rows(table, found, committed, complete=complete):
                continue
            if table == BALANCES:
                check_progress(found, committed, self.others[table])
            if table != BALANCES or complete:
                wanted = self._expected(table, 0 if table in self._replaced else committed)
                compare(table, found, wanted, complete=complete)

    def audit(self, committed: int, engines: Engines) -> int:
        """What every engine reads, and what it reads it by; how many rows each has compared."""
        rows = 0
        for name in TABLES:
            table, wanted = self.table(name), self._expected(name, committed)
            for engine, read in engines.for_tables(self._lake.s3).items():
                compare(f"{name}, read by {engine}", read(table), wanted, complete=True)
            check_metadata(table)
            rows += wanted.total()
        return rows

    def count_deleted(self, name: str, paths: Sequence[str]) -> Counter[str]:
        """How many rows of these data files are deleted by their positions, of those that are still in a table."""
        table, counts = self.table(name), Counter[str]()
        for scan in table.scan().plan_files():
            for delete in scan.delete_files if scan.file.file_path in paths else ():
                with table.io.new_input(delete.file_path).open() as file:
                    named = pq.read_table(file, columns=["file_path"])["file_path"].to_pylist()
                counts[scan.file.file_path] += named.count(scan.file.file_path)
        return counts

    def has_files(self, name: str, paths: Sequence[str]) -> bool:
        """Whether some of these data files are still in a table."""
        return any(scan.file.file_path in paths for scan in self.table(name).scan().plan_files())

    def append(self, table: str) -> None:
        foreign.append(self.table(table), foreign.APPENDED)
        self.others[table] += foreign.APPENDED

    def begin_backfill(self) -> None:
        """The user backfills every binding: what others have added goes with the rows of before."""
        self._before = {table: visible(self.table(table)) for table in TABLES}
        for others in self.others.values():
            others.clear()

    def _awaits_rows(self, table: str, found: Counter[Entry], committed: int, *, complete: bool) -> bool:
        """Whether a table still has all rows of before its backfill, and may have them: the log has no rows of the
        backfill, or the last transactions may still be on their way. Rejected rows go with apply."""
        before, is_rejected = self._before.get(table), table in (REJECTED, BALANCES_REJECTED)
        if before is None:
            return False
        if found == before and not (complete and (committed or is_rejected)):
            return True
        if not is_rejected:
            if not committed:
                compare(f"{table}, before the first commit of its backfill", found, before, complete=True)
            if not found:
                raise PromiseBrokenError(f"{table}: lost: every row of before the backfill, and no other is there")
        del self._before[table]
        return False

    def _expected(self, table: str, committed: int) -> Counter[Entry]:
        rows_at = expected_balances if table == BALANCES else partial(expected, table)
        return rows_at(committed, self.others[table])

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
