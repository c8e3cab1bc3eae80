"""Other engines read a table whose columns were converted, renamed and set aside, as it is and as it was."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType, TimestamptzType

from connector.evolution.table_change import NewColumn
from support.altered_tables import ID, PATH, append, fit, table_of, wanted
from support.foreign_deletes import delete_equal, delete_position
from support.readers import duckdb_rows
from support.spark_sql import spark_rows
from support.tables import local_catalog

AT = "2024-01-02T03:04:05Z"
ROWS = [(1, 10, 0.5, AT), (2, 20, None, None), (3, None, -1.5, AT), (4, 40, 2.0, AT)]
EXPECTED = [(1, "10", "0.5"), (3, None, "-1.5"), (4, "40", "2.0"), (2, "22", "2")]


def row(number: int, qty: Any, price: Any, at: Any) -> dict[str, Any]:
    return {"id": number, "qty": qty, "price": price, "at": at, "day": number}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A table of two files, with a row of each deleted by another engine before its columns were altered."""
    catalog = local_catalog(tmp_path)
    price, at = NestedField(3, "price", DoubleType()), NestedField(4, "at", StringType())
    table_of(catalog, ID, NestedField(2, "qty", LongType()), price, at, NestedField(5, "day", LongType()))
    append(catalog, *(row(*values) for values in ROWS[:2]))
    append(catalog, *(row(*values) for values in [*ROWS[2:], (5, 50, 5.0, AT)]))
    files = [task.file.file_path for task in catalog.load_table(PATH).scan(row_filter="id = 5").plan_files()]
    delete_position(catalog.load_table(PATH), files[0], 2)
    delete_equal(catalog.load_table(PATH), 2)  # hides the row that is there, none that comes later
    fit(
        catalog,
        wanted("id", LongType()),
        wanted("qty", StringType()),
        NewColumn("price", "cost", StringType(), False, "", False, former="price"),
        wanted("at", TimestamptzType()),
        wanted("day", DateType()),
    )
    append(catalog, {"id": 2, "qty": "22", "cost": "2", "at": None, "day_before_date": None, "day": None})
    return catalog


def test_duckdb_reads_a_converted_table(catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    rows = duckdb_rows(duckdb_reader, catalog.load_table(PATH).metadata_location, "id")
    assert sorted((row["id"], row["qty"], row["cost"]) for row in rows) == sorted(EXPECTED, key=lambda each: each[0])
    assert [row["day_before_date"] for row in rows] == [1, None, 3, 4]


@pytest.mark.spark
def test_java_reads_a_converted_table(catalog: Catalog, tmp_path: Path, spark_reader_jars: Path) -> None:
    _, second, *_ = catalog.load_table(PATH).snapshots()
    rows, pruned, before, columns = spark_rows(
        spark_reader_jars,
        tmp_path,
        "SELECT id, qty, cost FROM local.shop.orders ORDER BY coalesce(day_before_date, 9)",
        f"SELECT id FROM local.shop.orders WHERE at = TIMESTAMP '{AT}' AND cost = '-1.5'",
        f"SELECT id, qty, price FROM local.shop.orders VERSION AS OF {second.snapshot_id} ORDER BY id",
        "DESCRIBE local.shop.orders",
    )
    assert [(row["id"], row["qty"], row["cost"]) for row in rows] == EXPECTED
    assert [row["id"] for row in pruned] == [3]
    assert [(row["id"], row["qty"], row["price"]) for row in before] == [*(each[:3] for each in ROWS), (5, 50, 5.0)]
    assert [(row["col_name"], row["data_type"]) for row in columns][:6] == [
        ("id", "bigint"),
        ("qty", "string"),
        ("cost", "string"),
        ("at", "timestamp"),
        ("day_before_date", "bigint"),
        ("day", "date"),
    ]
