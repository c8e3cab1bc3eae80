"""The queries of docs/freshness.md find what the connector wrote, in the engines that the tests have."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestamptzType

from connector.iceberg.commits.commit import commit_all_or_raise
from support.bindings import PATH
from support.engines.readers import readers_catalog
from support.engines.spark_sql import SparkSql, spark_rows
from support.pages import freshness_queries
from support.rows.staged_rows import staged

SCHEMA: Final = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "flow_published_at", TimestamptzType(), required=False),
)
NEWEST: Final = "2026-11-22T12:00:02.000000Z"
EXPECTED: Final = [
    # upserted, deleted, first, last, offsets
    ("1", "0", "2026-11-22T12:00:00.000000Z", "2026-11-22T12:00:00.000000Z", '{"acmeCo/orders/pivot=00":9}'),
    ("2", "0", "2026-11-22T12:00:01.000000Z", NEWEST, None),
]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A table with two commits of the connector, and one of another engine after them."""
    catalog = readers_catalog(tmp_path)
    catalog.create_namespace(PATH.namespace)
    catalog.create_table(PATH, SCHEMA)
    for offsets, seconds in (("", (2, 1)), ('{"acmeCo/orders/pivot=00":9}', (0,))):
        rows = [{"id": each, "flow_published_at": datetime(2026, 11, 22, 12, 0, each, tzinfo=UTC)} for each in seconds]
        commit_all_or_raise(catalog, [replace(staged(catalog, *rows), published_column_id=2, offsets=offsets)])
    table = catalog.load_table(PATH)
    table.append(pa.Table.from_pylist([{"id": 5}], schema=table.schema().as_arrow()))
    return catalog


def test_duckdb_finds_the_freshness(catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    location = catalog.load_table(PATH).metadata_location.removeprefix("file://")
    newest, commits = (
        each.replace("/absolute/path/to/….metadata.json", location) for each in freshness_queries("DuckDB")
    )
    assert duckdb_reader.sql(f"SELECT newest, age > INTERVAL 0 SECOND FROM ({newest})").fetchall() == [(NEWEST, True)]
    assert [row[1:] for row in duckdb_reader.sql(commits).fetchall()] == EXPECTED


@pytest.mark.spark
def test_spark_finds_the_freshness(catalog: Catalog, tmp_path: Path, spark_reader: SparkSql) -> None:
    assert catalog.table_exists(PATH)
    newest, commits = (each.replace("lake.shop.orders", f"local.{PATH}") for each in freshness_queries("Spark"))
    first: list[Any]
    first, found = spark_rows(
        spark_reader, tmp_path, f"SELECT newest, age > INTERVAL '0' SECOND AS aged FROM ({newest})", commits
    )
    assert first == [{"newest": NEWEST, "aged": True}]
    columns = ("upserted", "deleted", "first_published", "last_published", "offsets")
    assert [tuple(row[column] for column in columns) for row in found] == EXPECTED


def test_each_engine_has_the_same_queries() -> None:
    assert [len(freshness_queries(engine)) for engine in ("Spark", "Trino", "DuckDB")] == [2, 2, 2]
