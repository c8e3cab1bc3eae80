"""After many small transactions and the compactions between them, a reader reads hardly more than in a table that has
the same rows, written once.

This is `scripts/bench year`, shortened and without Spark: the same three kinds of tables, and ratios that are no times.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table

from connector.encoding.parquet.file_options import TARGET_SIZE
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.maintenance.background_compaction import COMMITS, RUN
from connector.iceberg.maintenance.compact_table import TableCompactor
from support.bindings import PATH
from support.rows.staged_rows import staged
from support.rows.updated_rows import land, make_table, row, values_of
from support.tables.compacting import compact_here
from support.tables.local_tables import local_catalog

TRANSACTIONS: Final = 100
CHANGES: Final = 4  # rows of each
KEYS: Final = 200  # of the tables with updates, at the beginning
RECENT: Final = 20
LOOKUPS: Final = 20
# As in production: a file of the target size has the rows of some dozens of transactions.
PROPERTIES: Final = {TARGET_SIZE: str(128 << 10), "flow.compaction.bytes-per-commit": "64"}
# For each byte of the table that was written once. Up to 30 % of a file's rows may be deleted.
MOST_BYTES: Final = 1.5
MOST_FILES: Final = 16  # of a scan or a lookup; without compaction there are a hundred
ALL: Final = AlwaysTrue()

# Chooses the keys of a transaction, after so many.
Choose: TypeAlias = Callable[[Random, int], list[int]]


def append(_: Random, number: int) -> list[int]:
    return [KEYS + CHANGES * number + each for each in range(CHANGES)]


def update_any(random: Random, _: int) -> list[int]:
    return random.sample(range(KEYS), CHANGES)


def update_recent(random: Random, number: int) -> list[int]:
    newest = KEYS + 2 * number
    return [newest, newest + 1, *random.sample(range(newest - RECENT, newest), CHANGES - 2)]


@dataclass(frozen=True)
class Reading:
    """The data and delete files that a reader opens, and their bytes."""

    files: int
    size: int

    @classmethod
    def of(cls, table: Table, *conditions: str | BooleanExpression) -> "Reading":
        found = [
            file
            for condition in conditions
            for scan in table.scan(condition).plan_files()
            for file in (scan.file, *scan.delete_files)
        ]
        return cls(len(found), sum(file.file_size_in_bytes for file in found))


@pytest.mark.parametrize("choose", [append, update_any, update_recent])
def test_readers_read_hardly_more_than_of_a_table_that_was_written_once(
    catalog: Catalog, tmp_path: Path, choose: Choose
) -> None:
    random = Random(7)
    make_table(catalog)
    set_properties(catalog)
    compactor = TableCompactor(catalog, compact_here, catalog.load_table)
    land(catalog, {key: make_value(key) for key in range(KEYS)})
    for number in range(TRANSACTIONS):
        land(catalog, {key: make_value(KEYS * (number + 1) + key) for key in choose(random, number)})
        if number % COMMITS == 0:
            compactor.compact(PATH, RUN)
    ours, once = catalog.load_table(PATH), write_once(catalog, tmp_path / "once")
    lookups = [f"id == {key}" for key in random.sample(list(values_of(catalog)), LOOKUPS)]
    for conditions in [ALL], lookups:
        read = Reading.of(ours, *conditions)
        assert read.size <= MOST_BYTES * Reading.of(once, *conditions).size
        assert read.files <= MOST_FILES * len(conditions)


def make_value(number: int) -> Any:
    """A text of about a kilobyte, which does not get smaller when it is compressed."""
    return f"{number} {Random(number).randbytes(500).hex()}"


def set_properties(catalog: Catalog) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(PROPERTIES)


def write_once(catalog: Catalog, warehouse: Path) -> Table:
    """The same rows, in another catalog, in the order of their keys."""
    copies = local_catalog(warehouse)
    make_table(copies)
    set_properties(copies)
    commit_all_or_raise(copies, [staged(copies, *(row(*each) for each in values_of(catalog).items()))])
    return copies.load_table(PATH)
