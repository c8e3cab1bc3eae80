"""Tables of format version 3, through the real process and Spark: rows have ids, also after a crash."""

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from pyiceberg.table import Table

from connector.iceberg.metadata.table_updates import find_next_row_id
from fixtures.conversation import CONFIG
from support.readers import local_catalog, polars_table
from support.runtime import LEDGER, Runtime

pytestmark = pytest.mark.spark

SETTINGS = {"delta_updates": True, "partition_by": "truncate(100, id)", "on_invalid": "quarantine"}
LEDGERS = [
    replace(LEDGER, settings=SETTINGS),
    replace(LEDGER, name="acmeCo/second", table="second", settings={"delta_updates": True, "format_version": 2}),
]


def table(directory: Path, name: str) -> Table:
    return local_catalog(directory / "warehouse").load_table(f"shop.{name}")


def test_each_row_has_one_id_and_is_there_once(tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    runtime = Runtime(tmp_path, LEDGERS, {**CONFIG, "advanced": {"format_version": 3}})
    runtime.apply()
    with runtime.open() as session:
        session.transaction(*({"id": number, "note": "a"} for number in range(250)))
        session.stage_and_die(*({"id": number, "note": "b"} for number in range(250, 300)))
    with runtime.open() as session:
        session.transaction({"id": 300, "note": "c"})
        assert session.finish().status == 0

    ledger = table(tmp_path, "ledger")
    versions = {
        name: table(tmp_path, name).metadata.format_version for name in ("ledger", "ledger__rejected", "second")
    }
    assert versions == {"ledger": 3, "ledger__rejected": 3, "second": 2}
    query = f"SELECT id, _row_id FROM iceberg_scan('{ledger.metadata_location}') ORDER BY id"
    rows = duckdb_reader.sql(query).fetchall()
    assert [number for number, _ in rows] == list(range(301))
    assert {row_id for _, row_id in rows} == set(range(301))
    assert find_next_row_id(ledger) == 301
    assert sorted(polars_table(ledger.metadata_location, {})["id"].to_pylist()) == list(range(301))
