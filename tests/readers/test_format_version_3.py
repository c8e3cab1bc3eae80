"""Other engines read tables of format version 3, write to them, and see the ids that their rows keep."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType, StringType, TimestamptzType

from connector.config.catalog import RestCatalog
from connector.evolution.changes import plan_changes
from connector.evolution.table_change import NewColumn, Owner, Target
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.commits import commit
from connector.iceberg.tables import evolve
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from protocol.flow import WHOLE_RANGE
from support import spark_catalogs
from support.compacting import EAGER, compact
from support.rest_catalog import RestCatalogServer
from support.spark_sql import SparkSql, UnreadableError, spark_sql
from support.staged_files import stage
from support.tables import alterer, local_catalog

pytestmark = [pytest.mark.spark, pytest.mark.catalog]

PATH = TableIdentifier("version3", "orders")
OWNER = Owner("acme/task", "orders.v1")
WRITER = WriterId(OWNER.materialization, OWNER.state_key, WHOLE_RANGE.key_range)
ID = NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True)
LINEAGE = "id, _row_id, _last_updated_sequence_number AS changed"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return local_catalog(tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module")
def spark(
    rest_catalog: RestCatalogServer, local: Catalog, spark_reader_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSql]:
    warehouse = Path(local.properties["warehouse"].removeprefix("file://"))
    settings = {
        **spark_catalogs.settings("rest", spark_catalogs.rest(rest_catalog.uri)),
        **spark_catalogs.settings("local", spark_catalogs.sqlite(warehouse, "catalog.db")),
    }
    with spark_sql(spark_reader_jars, settings, tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(params=["rest", "local"])
def catalog(request: pytest.FixtureRequest, rest_catalog: RestCatalogServer, local: Catalog) -> Catalog:
    """One whose server writes the metadata, and one whose client does."""
    if request.param == "local":
        return local
    return open_rest(RestCatalog(rest_catalog.uri, str(rest_catalog.warehouse)), {})


def create(catalog: Catalog, path: TableIdentifier) -> str:
    """Make a table, and return its name for Spark."""
    evolve_columns(catalog, path, ID)
    return f"{catalog.name}.{'.'.join(path)}"


def evolve_columns(catalog: Catalog, path: TableIdentifier, *columns: NewColumn) -> None:
    root = catalog.properties["warehouse"] if catalog.name == "local" else None
    properties = {"commit.manifest.min-count-to-merge": "3", "write.delete.mode": "merge-on-read", **EAGER}
    target = Target(path, OWNER, columns, properties, replaces=False, format_version=3)
    evolve(catalog, path, root and f"{root}/{'/'.join(path)}", partial(plan_changes, target=target), alterer().alter)


def land(catalog: Catalog, path: TableIdentifier, *ids: int) -> None:
    commit.commit_all_or_raise(catalog, [stage(catalog, path, WRITER, *ids)])


def read_lineage(
    catalog: Catalog, path: TableIdentifier, spark: SparkSql, reader: duckdb.DuckDBPyConnection
) -> dict[Any, tuple[int, int]]:
    """By the value of `id`: the row's id, and the sequence number of its last change. All engines see the same."""
    name, location = f"{catalog.name}.{'.'.join(path)}", catalog.load_table(path).metadata_location
    _, rows = spark.rows(f"REFRESH TABLE {name}", f"SELECT {LINEAGE} FROM {name}")
    found = {row["id"]: (row["_row_id"], row["changed"]) for row in rows}
    assert len({row_id for row_id, _ in found.values()}) == len(rows), "each row has its own id"
    by_duckdb = reader.sql(f"SELECT {LINEAGE} FROM iceberg_scan('{location}')").fetchall()
    assert {number: (row_id, changed) for number, row_id, changed in by_duckdb} == found
    assert sorted(catalog.load_table(path).scan().to_arrow()["id"].to_pylist()) == sorted(found)
    return found


def test_rows_have_the_same_ids_in_all_engines_while_spark_appends_updates_and_deletes_others(
    catalog: Catalog, spark: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    name = create(catalog, PATH)
    read = partial(read_lineage, catalog, PATH, spark, duckdb_reader)
    for ids in (1, 2, 3), (4, 5), (6,), (7, 8):
        land(catalog, PATH, *ids)
    first = read()
    assert first.keys() == set(range(1, 9))
    spark.rows(f"INSERT INTO {name} VALUES (100), (101)")
    land(catalog, PATH, 9)
    second = read()
    assert second.items() >= first.items()
    spark.rows(f"REFRESH TABLE {name}", f"DELETE FROM {name} WHERE id = 2")
    spark.rows(f"UPDATE {name} SET id = 30 WHERE id = 3")
    deleted = read()
    for ids in (10,), (11, 12), (13,):  # their manifests are merged with those of Spark's rows
        land(catalog, PATH, *ids)
    last = read()
    assert last.items() >= deleted.items()
    assert set(range(1, 14)) - last.keys() == {2, 3}
    assert last[30][0] == first[3][0], "Spark has written the row again, with its id"


def test_rows_keep_their_ids_when_the_connector_and_spark_rewrite_them_in_turn(
    local: Catalog, spark: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """Each takes the ids from the files of the other."""
    path = TableIdentifier(PATH.namespace, "compacted")
    name = create(local, path)
    read = partial(read_lineage, local, path, spark, duckdb_reader)
    for number in range(3):
        land(local, path, 2 * number, 2 * number + 1)
    spark.rows(f"INSERT INTO {name} VALUES (100), (101)")
    appended = read()
    assert compact(local, path).files_after == 1
    assert read() == appended
    refresh = f"REFRESH TABLE {name}"
    spark.rows(refresh, f"UPDATE {name} SET id = 20 WHERE id = 2", f"DELETE FROM {name} WHERE id = 5")
    updated = read()
    assert updated[20][0] == appended[2][0], "Spark has found the id in the new file"
    options = "'rewrite-all', 'true', 'delete-file-threshold', '1'"
    spark.rows(f"CALL local.system.rewrite_data_files(table => '{name}', options => map({options}))")
    assert read() == updated
    for number in range(30, 42):  # as many as make a file that is three times as large as Spark's
        land(local, path, number)
    before = read()
    assert compact(local, path).rows == len(before)
    assert read() == before
    land(local, path, 50)
    before = read()
    evolve_columns(local, path, replace(ID, type=StringType(), former="id"))
    assert read() == {str(number): row for number, row in before.items()}, "also when their keys become texts"


def test_spark_and_duckdb_refuse_a_table_with_nanoseconds_as_the_page_says(
    local: Catalog, spark: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """Once they read it, docs/reading.md and docs/columns.md should say so."""
    path = TableIdentifier(PATH.namespace, "nanoseconds")
    at = NewColumn("at", "at", TimestamptzType(), required=False, doc="", is_indispensable=False)
    target = Target(path, OWNER, (ID, at), {}, replaces=False, format_version=3, keeps_nanoseconds=True)
    location = f"{local.properties['warehouse']}/version3/nanoseconds"
    evolve(local, path, location, partial(plan_changes, target=target), alterer().alter)
    with pytest.raises(UnreadableError, match="timestamptz_ns"):
        spark.rows(f"SELECT id FROM local.{'.'.join(path)}")
    with pytest.raises(duckdb.Error, match="timestamptz_ns"):
        duckdb_reader.sql(f"SELECT id FROM iceberg_scan('{local.load_table(path).metadata_location}')").fetchall()
