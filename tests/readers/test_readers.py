"""The engines and servers that other tests rely on work on tables that PyIceberg wrote."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from support.readers import as_json, duckdb_rows, local_catalog
from support.rest_catalog import RestCatalogServer
from support.spark_sql import spark_rows

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "field with spaces": ["a", None]})
TYPED = pa.table(
    {
        "at": pa.array([1_700_000_000_123_456, -1], pa.timestamp("us", "UTC")),
        "day": pa.array([0, None], pa.date32()),
        "number": [float("nan"), float("-inf")],
        "bytes": [b"\x00\xff", b""],
    }
)


def test_duckdb_reads_a_table_from_its_metadata_file(tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    catalog = local_catalog(tmp_path)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.things", ROWS.schema)
    table.append(ROWS)
    assert duckdb_rows(duckdb_reader, table.metadata_location, "id") == ROWS.to_pylist()


@pytest.mark.spark
def test_spark_reads_a_table_of_the_embedded_catalog(tmp_path: Path, spark_reader_jars: Path) -> None:
    catalog = local_catalog(tmp_path)
    catalog.create_namespace("shop")
    catalog.create_table("shop.things", ROWS.schema).append(ROWS)
    catalog.create_table("shop.typed", TYPED.schema).append(TYPED)
    rows, typed, counts = spark_rows(
        spark_reader_jars,
        tmp_path,
        "SELECT * FROM local.shop.things ORDER BY id",
        "SELECT * FROM local.shop.typed ORDER BY at DESC",
        "SELECT count(*) AS n FROM local.shop.things.snapshots",
    )
    assert rows == [{"id": 1, "field with spaces": "a"}, {"id": 2, "field with spaces": None}]
    assert typed == [as_json(row) for row in TYPED.to_pylist()]
    assert counts == [{"n": 1}]


@pytest.mark.catalog
def test_the_rest_catalog_keeps_tables_in_its_warehouse(rest_catalog: RestCatalogServer) -> None:
    catalog = RestCatalog("rest", uri=rest_catalog.uri)
    catalog.create_namespace("readers")
    table = catalog.create_table("readers.things", ROWS.schema)
    table.append(ROWS)
    assert Path(table.location().removeprefix("file://")).is_relative_to(rest_catalog.warehouse)
    assert catalog.load_table("readers.things").scan().to_arrow().sort_by("id").equals(table.scan().to_arrow())
