"""Other engines read a table whose columns were converted, widened, renamed and set aside, as it is and as it was."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import DateType, DecimalType, DoubleType, LongType, NestedField, StringType, TimestamptzType

from connector.evolution.target import NewColumn
from support.bindings import PATH
from support.engines.foreign_deletes import delete_equal, delete_position
from support.engines.readers import duckdb_rows
from support.engines.spark_sql import SparkSql, spark_rows
from support.tables.altered_tables import ID, append, filled_table, fit, wanted

AT = "2024-01-02T03:04:05Z"
ROWS = [(1, 10, 0.5, AT), (2, 20, None, None), (3, None, -1.5, AT), (4, 40, 2.0, AT)]
EXPECTED = [(1, "10", "0.5"), (3, None, "-1.5"), (4, "40", "2"), (2, "22", "2")]
DECIMALS = [
    (1, "-1.25", "1.10", "1000.0000"),
    (3, "-3.25", "3.10", "3000.0000"),
    (4, "-4.25", "4.10", "4000.0000"),
    (2, "9999999999999999.99", "-" + "9" * 36 + ".99", "0.0001"),
]


def row(number: int, qty: Any, price: Any, at: Any) -> dict[str, Any]:
    decimals = {"fee": Decimal(f"-{number}.25"), "tax": Decimal(f"{number}.10"), "total": 1000 * number}
    return {"id": number, "qty": qty, "price": price, "at": at, "day": number, **decimals}


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """A table of two files, with a row of each deleted by another engine before its columns were altered."""
    price, at = NestedField(3, "price", DoubleType()), NestedField(4, "at", StringType())
    fee, tax = (NestedField(number, name, DecimalType(9, 2)) for number, name in ((6, "fee"), (7, "tax")))
    day, total = (NestedField(number, name, LongType()) for number, name in ((5, "day"), (8, "total")))
    filled_table(catalog, ID, NestedField(2, "qty", LongType()), price, at, day, fee, tax, total)
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
        wanted("fee", DecimalType(18, 2)),
        wanted("total", DecimalType(20, 4)),
    )
    # Its files have 64 and 32 bits for these.
    fit(catalog, wanted("id", LongType()), wanted("fee", DecimalType(20, 2)), wanted("tax", DecimalType(38, 2)))
    decimals = dict(zip(("fee", "tax", "total"), map(Decimal, DECIMALS[-1][1:]), strict=True))
    append(catalog, {"id": 2, "qty": "22", "cost": "2", "at": None, "day_before_date": None, "day": None, **decimals})
    return catalog


def test_duckdb_reads_a_converted_table(catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    rows = duckdb_rows(duckdb_reader, catalog.load_table(PATH).metadata_location, "id")
    assert sorted((row["id"], row["qty"], row["cost"]) for row in rows) == sorted(EXPECTED, key=lambda each: each[0])
    assert [row["day_before_date"] for row in rows] == [1, None, 3, 4]
    assert sorted((row["id"], *(str(row[name]) for name in ("fee", "tax", "total"))) for row in rows) == sorted(
        DECIMALS
    )


@pytest.mark.spark
def test_java_reads_a_converted_table(catalog: Catalog, tmp_path: Path, spark_reader: SparkSql) -> None:
    _, second, *_ = catalog.load_table(PATH).snapshots()
    rows, decimals, pruned, before, columns = spark_rows(
        spark_reader,
        tmp_path,
        "SELECT id, qty, cost FROM local.shop.orders ORDER BY coalesce(day_before_date, 9)",
        "SELECT id, string(fee), string(tax), string(total) FROM local.shop.orders "
        "ORDER BY coalesce(day_before_date, 9)",
        f"SELECT id FROM local.shop.orders WHERE at = TIMESTAMP '{AT}' AND cost = '-1.5' AND fee = -3.25 "
        "AND total = 3000",
        f"SELECT id, qty, price FROM local.shop.orders VERSION AS OF {second.snapshot_id} ORDER BY id",
        "DESCRIBE local.shop.orders",
    )
    assert [(row["id"], row["qty"], row["cost"]) for row in rows] == EXPECTED
    assert [tuple(row.values()) for row in decimals] == DECIMALS
    assert [row["id"] for row in pruned] == [3]
    assert [(row["id"], row["qty"], row["price"]) for row in before] == [*(each[:3] for each in ROWS), (5, 50, 5.0)]
    assert [(row["col_name"], row["data_type"]) for row in columns][:9] == [
        ("id", "bigint"),
        ("qty", "string"),
        ("cost", "string"),
        ("at", "timestamp"),
        ("day_before_date", "bigint"),
        ("fee", "decimal(20,2)"),
        ("tax", "decimal(38,2)"),
        ("total", "decimal(20,4)"),
        ("day", "date"),
    ]
