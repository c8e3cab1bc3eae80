"""Other engines read a table whose manifests we have folded, with their own deletes applied as before."""

from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog import Catalog

from support.bindings import PATH
from support.engines.foreign_deletes import delete_equal, delete_position
from support.engines.readers import duckdb_rows
from support.engines.spark_sql import SparkSql, spark_rows
from support.rows.staged_files import land
from support.tables.local_tables import foreign_table

COUNT = "commit.manifest.min-count-to-merge"


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """A table that was folded more than once while other engines deleted rows of it."""
    foreign_table(catalog, PATH, properties={COUNT: "3"})
    land(catalog, 1, 2)
    second = land(catalog, 3, 4)
    assert isinstance(second.files, tuple)
    delete_equal(catalog.load_table(PATH), 2)  # hides the row that is there, none that comes later
    delete_position(catalog.load_table(PATH), second.files[0].path, 1)  # of id 4
    land(catalog, 2, 5)
    land(catalog, 4, 6)
    land(catalog, 7)
    table = catalog.load_table(PATH)
    snapshot = table.current_snapshot()
    assert snapshot
    assert sum(manifest.existing_files_count or 0 for manifest in snapshot.manifests(table.io)) == 4
    return catalog


def test_duckdb_applies_deletes_to_folded_files(catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    rows = duckdb_rows(duckdb_reader, catalog.load_table(PATH).metadata_location, "id")
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.spark
def test_java_applies_deletes_to_folded_files(catalog: Catalog, tmp_path: Path, spark_reader: SparkSql) -> None:
    snapshots = [snapshot.snapshot_id for snapshot in catalog.load_table(PATH).snapshots()]
    rows, before, entries, appended = spark_rows(
        spark_reader,
        tmp_path,
        "SELECT id FROM local.shop.orders ORDER BY id",
        f"SELECT id FROM local.shop.orders VERSION AS OF {snapshots[3]} ORDER BY id",
        "SELECT status, sequence_number FROM local.shop.orders.entries WHERE data_file.content = 0 ORDER BY 2",
        f"SELECT data_file.record_count AS rows FROM local.shop.orders.entries WHERE snapshot_id = {snapshots[-1]}",
    )
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [row["id"] for row in before] == [1, 3]
    assert [row["sequence_number"] for row in entries] == [1, 2, 5, 6, 7]
    assert [row["status"] for row in entries] == [0, 0, 0, 0, 1]
    assert [row["rows"] for row in appended] == [1]
