"""Engines that are not ours look for rows in partitions by doubles. docs/reading.md says which rows they leave out.

The connector corrects how PyIceberg reads doubles. Users have it without the correction, and so have these programs.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, NestedField

from connector.iceberg.commits.commit import commit_all_or_raise
from support.bindings import PATH
from support.engines.spark_sql import MetadataFiles
from support.rows.staged_rows import staged
from support.tables.altered_tables import ID, filled_table

BY_PRICE: Final = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "price"))
PRICES: Final = (0.5, 0.1, 1e300)  # 32 bits can only have the first of them
ALL: Final = [[0], [1], [2]]
ONLY_THE_FIRST: Final[list[list[int]]] = [[0], [], []]

PYICEBERG: Final = """
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable
table = StaticTable.from_metadata(location)
found = [table.scan(row_filter=EqualTo("price", price)).to_arrow() for price in prices]
answer = [rows["id"].to_pylist() for rows in found]
"""
POLARS: Final = """
import os
os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
import polars
found = [polars.scan_iceberg(location).filter(polars.col("price") == price).collect() for price in prices]
answer = [rows["id"].to_list() for rows in found]
"""
WITHOUT_A_CONDITION: Final = """
from pyiceberg.table import StaticTable
answer = sorted(StaticTable.from_metadata(location).scan().to_arrow()["id"].to_pylist())
"""
DELETE: Final = """
from pyiceberg.catalog.sql import SqlCatalog
SqlCatalog("local", uri=f"sqlite:///{location}/catalog.db").load_table("shop.orders").delete("id = 3")
answer = None
"""


def run(program: str, location: str | Path) -> Any:
    """Run a program where nothing imports the connector. Returns its answer."""
    before = "import json, sys\nlocation, prices = sys.argv[1], json.loads(sys.argv[2])"
    after = "assert 'connector' not in sys.modules\nprint(json.dumps(answer))"
    command = [sys.executable, "-c", f"{before}\n{program}\n{after}", str(location), json.dumps(PRICES)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


@pytest.fixture
def location(catalog: Catalog) -> str:
    """The metadata file of a table with a partition for each price."""
    filled_table(catalog, ID, NestedField(2, "price", DoubleType()), spec=BY_PRICE)
    rows = [{"id": number, "price": price} for number, price in enumerate([*PRICES, -1.0])]
    commit_all_or_raise(catalog, [staged(catalog, *rows)])
    return catalog.load_table(PATH).metadata_location


def find_by_duckdb(connection: duckdb.DuckDBPyConnection, location: str) -> list[list[int]]:
    def find(price: float) -> Sequence[tuple[int]]:
        query = "SELECT id FROM iceberg_scan($1) WHERE price = $2::DOUBLE"
        return connection.sql(query, params=[location, price]).fetchall()

    return [[id_ for (id_,) in find(price)] for price in PRICES]


@pytest.mark.parametrize("program", [PYICEBERG, POLARS], ids=["PyIceberg", "polars"])
def test_pyiceberg_still_leaves_out_rows_of_partitions_by_doubles(location: str, program: str) -> None:
    """Once it does not, docs/reading.md need not say so."""
    assert run(program, location) == ONLY_THE_FIRST
    assert run(WITHOUT_A_CONDITION, location) == [0, 1, 2, 3]


def test_duckdb_finds_them_until_pyiceberg_writes_to_the_table(
    location: str, catalog: Catalog, tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    assert find_by_duckdb(duckdb_reader, location) == ALL
    run(DELETE, tmp_path)
    assert find_by_duckdb(duckdb_reader, catalog.load_table(PATH).metadata_location) == ONLY_THE_FIRST


@pytest.mark.spark
def test_spark_finds_them(location: str, spark_files: MetadataFiles) -> None:
    with spark_files.table(location) as table:
        queries = [f"SELECT id FROM {table} WHERE price = {price!r}D" for price in PRICES]
        assert [[row["id"] for row in rows] for rows in spark_files.spark.rows(*queries)] == ALL


@pytest.mark.spark
def test_spark_still_takes_zeros_of_both_signs_for_two_values(
    catalog: Catalog, spark_files: MetadataFiles, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    filled_table(catalog, ID, NestedField(2, "price", DoubleType()), spec=BY_PRICE)
    commit_all_or_raise(catalog, [staged(catalog, {"id": 1, "price": -0.0}, {"id": 2, "price": 0.0})])
    location = catalog.load_table(PATH).metadata_location
    found = duckdb_reader.sql("SELECT id FROM iceberg_scan($1) WHERE price = 0.0::DOUBLE", params=[location]).fetchall()
    assert sorted(found) == [(1,), (2,)]
    with spark_files.table(location) as table:
        queries = [f"SELECT id FROM {table} WHERE price {condition}" for condition in ("= 0.0D", ">= 0.0D", "< 0.0D")]
        assert [[row["id"] for row in rows] for rows in spark_files.spark.rows(*queries)] == [[2], [2], [1]]
