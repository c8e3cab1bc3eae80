"""Hundreds of random transactions with standard updates leave one row for each key, also while compactions and other
transactions meet them. This is without Spark: `tests/process/test_updates.py` has the whole connector, with fewer
transactions."""

import json
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec

from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.state import StagedCommit
from support.bindings import PATH
from support.engines.readers import duckdb_connection
from support.rows.updated_rows import BY_PART, make_table, stage_updates, values_of
from support.tables.compacting import EAGER, compact

TRANSACTIONS: Final = 120
WITH_ALL: Final = 240
KEYS: Final = 2_000
CHECKED_EVERY: Final = 60
COMPACTED_EVERY: Final = 12


@pytest.mark.parametrize(
    "spec",
    [
        # The random transactions of test_row_deletes.py are without partitions, too.
        pytest.param(None, id="without partitions", marks=pytest.mark.slow),
        pytest.param(BY_PART, id="with partitions"),
    ],
)
def test_hundreds_of_random_transactions_leave_one_row_for_each_key(
    catalog: Catalog, tmp_path: Path, spec: PartitionSpec | None, pytestconfig: pytest.Config
) -> None:
    random = Random(11)
    make_table(catalog, spec, **EAGER)
    model: dict[int, str] = {}
    pending: list[StagedCommit] = []

    def stage(number: int) -> StagedCommit:
        keys = random.sample(range(KEYS), random.choice((1, 10, 100)))
        removed = {key for key in keys if random.random() < 0.2}
        values = {key: f"{random.choice('abc')}{number}" for key in keys if key not in removed}
        staged = stage_updates(catalog, values, removed, after=pending)
        # Loads find the rows of waiting transactions, too.
        assert staged.located
        assert staged.located.rows == sum(key in model for key in keys)
        for key in removed:
            model.pop(key, None)
        model.update(values)
        return staged

    def commit_pending() -> None:
        if pending:
            commit_all_or_raise(catalog, pending)
            pending.clear()

    for number in range(WITH_ALL if pytestconfig.getoption("--all") else TRANSACTIONS):
        pending.append(stage(number))
        if number % CHECKED_EVERY and random.random() < 0.3:
            continue  # it waits, and is committed with the next ones
        if number % COMPACTED_EVERY == 0:
            compact(catalog, PATH, commit_pending)
        commit_pending()
        if number % CHECKED_EVERY == 0:
            check(catalog, tmp_path, model)
    commit_pending()
    check(catalog, tmp_path, model)
    assert len(model) > KEYS / 2


def check(catalog: Catalog, directory: Path, model: dict[int, str]) -> None:
    expected: dict[int, Any] = dict(sorted(model.items()))
    assert values_of(catalog) == expected
    with duckdb_connection(directory / "extensions") as duckdb:
        location = catalog.load_table(PATH).metadata_location
        rows = duckdb.execute(f"SELECT id, doc FROM iceberg_scan('{location}') ORDER BY id").fetchall()
    assert [(key, json.loads(document)["value"]) for key, document in rows] == [*expected.items()]
