"""The engines and servers that other tests rely on work on tables that PyIceberg wrote."""

import re
from contextlib import closing
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from support.engines.readers import as_json, duckdb_rows, readers_catalog
from support.engines.spark_sql import SparkSql
from support.pages import opening_lines
from support.repository import REPOSITORY
from support.servers.rest_catalog import RestCatalogServer

SHIPPED = {"id": 1, "status": "shipped", "field with spaces": "a"}
ORDERS = pa.Table.from_pylist([SHIPPED, {"id": 2, "status": "open", "field with spaces": None}])
AT = datetime(2026, 11, 21, tzinfo=UTC)
TYPED = pa.table(
    {
        "at": pa.array([1_700_000_000_123_456, -1], pa.timestamp("us", "UTC")),
        "day": pa.array([0, None], pa.date32()),
        "number": [float("nan"), float("-inf")],
        "bytes": [b"\x00\xff", b""],
    }
)


def orders_in(catalog: Catalog) -> Table:
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", ORDERS.schema)
    table.append(ORDERS)
    return table


def test_pyiceberg_opens_the_embedded_catalog_as_the_page_says(tmp_path: Path) -> None:
    orders_in(readers_catalog(tmp_path))
    *lines, scan = opening_lines("PyIceberg", tmp_path).strip().splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    with closing(names["catalog"]):
        assert eval(scan, names).to_pylist() == [SHIPPED]


def test_duckdb_reads_a_table_from_its_metadata_file_as_the_page_says(
    tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    table = orders_in(readers_catalog(tmp_path))
    assert duckdb_rows(duckdb_reader, table.metadata_location, "id") == ORDERS.to_pylist()
    install, query = opening_lines("DuckDB", tmp_path).strip().splitlines()
    assert install == "INSTALL iceberg; LOAD iceberg;", "which it has from PyPI here"
    query = query.replace("/absolute/path/to/….metadata.json", table.metadata_location)
    assert sorted(duckdb_reader.sql(query).fetchall()) == [("open", 1), ("shipped", 1)]


NEWEST_ROWS = re.findall(
    r"```sql\n(SELECT \* EXCLUDE .*?);\n```", (REPOSITORY / "docs/reading.md").read_text(), re.DOTALL
)


def test_the_newest_row_of_each_key_is_found_as_documented(
    tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """Key 3 has a row from before `_meta/op` was selected."""
    rows = [
        {"id": 1, "qty": 5, "_meta/op": "c", "flow_published_at": AT},
        {"id": 1, "qty": 7, "_meta/op": "u", "flow_published_at": AT + timedelta(microseconds=1)},
        {"id": 2, "qty": 1, "_meta/op": "c", "flow_published_at": AT + timedelta(seconds=2)},
        {"id": 2, "qty": None, "_meta/op": "d", "flow_published_at": AT + timedelta(seconds=3)},
        {"id": 3, "qty": 9, "_meta/op": None, "flow_published_at": AT},
    ]
    updates = pa.Table.from_pylist(rows)
    catalog = readers_catalog(tmp_path)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", updates.schema)
    for row in reversed(range(len(rows))):
        table.append(updates.slice(row, 1))
    [query] = NEWEST_ROWS
    query = query.replace("FROM orders", f"FROM iceberg_scan('{table.metadata_location}')")
    assert sorted(duckdb_reader.sql(query).project("id, qty").fetchall()) == [(1, 7), (3, 9)]


@pytest.mark.spark
def test_spark_finds_the_newest_row_of_each_key_as_documented(spark_reader: SparkSql) -> None:
    [query] = NEWEST_ROWS
    for written, in_spark in ("EXCLUDE", "EXCEPT"), ('"', "`"):
        query = query.replace(written, in_spark)
    query = query.replace(
        "FROM orders",
        "FROM VALUES (1, 'c', 1), (1, 'u', 2), (2, 'd', 1), (3, NULL, 1) AS t(id, `_meta/op`, flow_published_at)",
    )
    [found] = spark_reader.rows(f"SELECT id, `_meta/op` FROM ({query}) ORDER BY id")
    assert found == [{"id": 1, "_meta/op": "u"}, {"id": 3, "_meta/op": None}]


@pytest.mark.spark
def test_spark_opens_the_embedded_catalog_as_the_page_says(
    tmp_path: Path, spark_reader: SparkSql, spark_reader_jars: Path
) -> None:
    catalog = readers_catalog(tmp_path)
    orders_in(catalog)
    catalog.create_table("shop.typed", TYPED.schema).append(TYPED)
    lines = opening_lines("Spark", tmp_path)
    spark = spark_reader.new_session()
    spark.change_settings(dict(re.findall(r"--conf (\S+?)=(\S+)", lines)))
    rows, typed, counts = spark.rows(
        *re.findall(r"-e '(.*)'", lines),
        "SELECT * FROM local.shop.typed ORDER BY at DESC",
        "SELECT count(*) AS n FROM local.shop.orders.snapshots",
    )
    assert sorted(rows, key=itemgetter("id")) == ORDERS.to_pylist()
    assert typed == [as_json(row) for row in TYPED.to_pylist()]
    assert counts == [{"n": 1}]
    named = {name.replace(":", "-") for name in re.findall(r"(?<=[ ,:])[-_.\w]+:\d+\.\d+[.\d]*", lines)}
    assert named
    assert named <= {jar.stem for jar in spark_reader_jars.glob("*.jar")}, "the versions that are tried here"


@pytest.mark.catalog
def test_the_rest_catalog_keeps_tables_in_its_warehouse(rest_catalog: RestCatalogServer) -> None:
    catalog = RestCatalog("rest", uri=rest_catalog.uri)
    catalog.create_namespace("readers")
    table = catalog.create_table("readers.things", ORDERS.schema)
    table.append(ORDERS)
    assert Path(table.location().removeprefix("file://")).is_relative_to(rest_catalog.warehouse)
    assert catalog.load_table("readers.things").scan().to_arrow().sort_by("id").equals(table.scan().to_arrow())
