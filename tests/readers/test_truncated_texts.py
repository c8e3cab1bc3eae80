"""Engines look for texts in partitions by their first characters. docs/reading.md says which rows they leave out."""

from typing import Any, Final

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import NestedField, StringType

from connector.iceberg.commits.commit import commit_all_or_raise
from support.bindings import PATH
from support.engines.spark_sql import MetadataFiles
from support.rows.staged_rows import staged
from support.tables.altered_tables import ID, filled_table

BY_TWO: Final = PartitionSpec(PartitionField(2, 1000, TruncateTransform(2), "name_trunc_2"))
EQUAL: Final[Any] = EqualTo
NAMES: Final = ("हिन्दी", "cafe\u0301", "e\u0301t\u0301", "caf\u00e9", "\U0001f600\U0001f600!")


@pytest.fixture
def location(catalog: Catalog) -> str:
    """The metadata file of a table with a partition for each name."""
    filled_table(catalog, ID, NestedField(2, "name", StringType()), spec=BY_TWO)
    commit_all_or_raise(catalog, [staged(catalog, *({"id": id_, "name": name} for id_, name in enumerate(NAMES)))])
    return catalog.load_table(PATH).metadata_location


def test_duckdb_still_counts_characters_with_their_marks(
    location: str, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """Once it counts code points, docs/reading.md need not say so."""

    def find(name: str) -> list[tuple[int]]:
        return duckdb_reader.sql("SELECT id FROM iceberg_scan($1) WHERE name = $2", params=[location, name]).fetchall()

    assert [find(name) for name in NAMES] == [[], [(1,)], [], [(3,)], [(4,)]]


@pytest.mark.usefixtures("location")
def test_pyiceberg_finds_them(catalog: Catalog) -> None:
    found = [catalog.load_table(PATH).scan(row_filter=EQUAL("name", name)).to_arrow() for name in NAMES]
    assert [each["id"].to_pylist() for each in found] == [[0], [1], [2], [3], [4]]


@pytest.mark.spark
def test_spark_finds_them(location: str, spark_files: MetadataFiles) -> None:
    with spark_files.table(location) as table:
        queries = [f"SELECT id FROM {table} WHERE name = '{name}'" for name in NAMES]
        assert [[row["id"] for row in rows] for rows in spark_files.spark.rows(*queries)] == [[0], [1], [2], [3], [4]]
