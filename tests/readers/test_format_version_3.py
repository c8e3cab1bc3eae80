"""Other engines read tables of format version 3, write to them, and see the ids that their rows keep."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType, StringType, TimestamptzType

from connector.config.catalog import RestCatalog
from connector.encoding.live_rows.lineage_columns import ROW_ID_FIELD
from connector.evolution.plan_changes import plan_changes
from connector.evolution.target import NewColumn, Target
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.commits import commit
from connector.iceberg.perform_changes import evolve
from connector.model.state import FileList, WriterId
from connector.model.table_identifier import Owner, TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.engines import spark_catalogs
from support.engines.readers import polars_table
from support.engines.spark_sql import SparkSql, UnreadableError
from support.rows.staged_files import land, stage
from support.rows.updated_rows import stage_updates, values_of
from support.servers.rest_catalog import RestCatalogServer
from support.tables.compacting import EAGER, compact
from support.tables.local_tables import alterer, local_catalog
from support.tables.vectors import Listed, check_totals

pytestmark = [pytest.mark.spark, pytest.mark.catalog]

PATH = TableIdentifier("version3", "orders")
OWNER = Owner("acme/task", "orders.v1")
WRITER = WriterId(OWNER.materialization, OWNER.state_key, WHOLE_RANGE.key_range)
ID = NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True)
DOCUMENT = NewColumn("doc", "doc", StringType(), required=False, doc="", is_indispensable=False)
LINEAGE = "id, _row_id, _last_updated_sequence_number AS changed"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return local_catalog(tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module")
def spark(rest_catalog: RestCatalogServer, local: Catalog, spark_reader: SparkSql) -> SparkSql:
    warehouse = Path(local.properties["warehouse"].removeprefix("file://"))
    session = spark_reader.new_session()
    session.add_catalog("rest", spark_catalogs.rest(rest_catalog.uri))
    session.add_catalog("local", spark_catalogs.sqlite(warehouse, "catalog.db"))
    return session


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
    evolve(catalog, path, root and f"{root}/{'/'.join(path)}", partial(plan_changes, target=target), alterer())


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
        land(catalog, *ids, path=PATH, writer=WRITER)
    first = read()
    assert first.keys() == set(range(1, 9))
    spark.rows(f"INSERT INTO {name} VALUES (100), (101)")
    land(catalog, 9, path=PATH, writer=WRITER)
    second = read()
    assert second.items() >= first.items()
    spark.rows(f"REFRESH TABLE {name}", f"DELETE FROM {name} WHERE id = 2")
    spark.rows(f"UPDATE {name} SET id = 30 WHERE id = 3")
    deleted = read()
    for ids in (10,), (11, 12), (13,):  # their manifests are merged with those of Spark's rows
        land(catalog, *ids, path=PATH, writer=WRITER)
    last = read()
    assert last.items() >= deleted.items()
    assert set(range(1, 14)) - last.keys() == {2, 3}
    assert last[30][0] == first[3][0], "Spark has written the row again, with its id"


def test_rows_of_a_file_in_which_only_some_have_ids_are_read_as_the_page_says(
    local: Catalog, spark: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """As updates write them. Once DuckDB finds all rows by their ids, docs/reading.md should say so."""
    path = TableIdentifier(PATH.namespace, "some_ids")
    name = create(local, path)
    land(local, 1, 2, 3, path=path, writer=WRITER)
    staged = stage(local, path, WRITER, 4, 5, 6)
    assert not isinstance(staged.files, FileList)
    [file] = staged.files
    place = Path(file.path.removeprefix("file://"))
    with_ids = pq.read_table(place).append_column(ROW_ID_FIELD, pa.array([None, 1000, None], pa.int64()))
    pq.write_table(with_ids, place)
    written = msgspec.structs.replace(file, size=place.stat().st_size)
    commit.commit_all_or_raise(local, [replace(staged, files=(written,))])
    found = read_lineage(local, path, spark, duckdb_reader)
    assert {number: row_id for number, (row_id, _) in found.items()} == {1: 0, 2: 1, 3: 2, 4: 3, 5: 1000, 6: 5}
    location = local.load_table(path).metadata_location
    by_duckdb = {}
    for number, (row_id, _) in found.items():
        [by_spark] = spark.rows(f"SELECT id FROM {name} WHERE _row_id = {row_id}")
        assert [row["id"] for row in by_spark] == [number]
        query = f"SELECT id FROM iceberg_scan('{location}') WHERE _row_id = {row_id}"
        by_duckdb[number] = [number for (number,) in duckdb_reader.sql(query).fetchall()]
    assert by_duckdb == {1: [1], 2: [2], 3: [3], 4: [], 5: [5], 6: []}


def test_rows_keep_their_ids_when_the_connector_and_spark_rewrite_them_in_turn(
    local: Catalog, spark: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """Each takes the ids from the files of the other."""
    path = TableIdentifier(PATH.namespace, "compacted")
    name = create(local, path)
    read = partial(read_lineage, local, path, spark, duckdb_reader)
    for number in range(3):
        land(local, 2 * number, 2 * number + 1, path=path, writer=WRITER)
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
        land(local, number, path=path, writer=WRITER)
    before = read()
    assert compact(local, path).rows == len(before)
    assert read() == before
    land(local, 50, path=path, writer=WRITER)
    before = read()
    evolve_columns(local, path, replace(ID, type=StringType(), former="id"))
    assert read() == {str(number): row for number, row in before.items()}, "also when their keys become texts"


def make_updated_table(catalog: Catalog, path: TableIdentifier, format_version: int) -> None:
    root = catalog.properties["warehouse"] if catalog.name == "local" else None
    properties = {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"}
    target = Target(path, OWNER, (ID, DOCUMENT), properties, replaces=False, format_version=format_version)
    location = root and f"{root}/{'/'.join(path)}"
    evolve(catalog, path, location, partial(plan_changes, target=target), alterer())


class Updated:
    """A table with standard updates, its rows as a dictionary, and the engines that read them."""

    def __init__(self, catalog: Catalog, path: TableIdentifier, spark: SparkSql, duckdb: Any, version: int) -> None:
        self._catalog, self._path, self._spark, self._duckdb = catalog, path, spark, duckdb
        self.name = f"{catalog.name}.{'.'.join(path)}"
        self.expected: dict[int, Any] = {}
        make_updated_table(catalog, path, version)

    def land(self, values: dict[int, Any], removed: Sequence[int] = ()) -> None:
        staged = stage_updates(self._catalog, values, removed, path=self._path, writer=WRITER)
        commit.commit_all_or_raise(self._catalog, [staged])
        self.expected |= values
        self.expected = {key: value for key, value in self.expected.items() if key not in removed}

    def delete_in_spark(self, *ids: int) -> None:
        self._spark.rows(f"DELETE FROM {self.name} WHERE id IN ({', '.join(map(str, ids))})")
        self.expected = {key: value for key, value in self.expected.items() if key not in ids}

    def summary(self) -> dict[str, str]:
        snapshot = self._catalog.load_table(self._path).current_snapshot()
        assert snapshot
        assert snapshot.summary
        return snapshot.summary.additional_properties

    def list_files(self) -> Listed:
        return Listed.of(self._catalog, self._path)

    def check(self) -> None:
        """All engines read the expected rows, and the summary counts what the manifests list."""
        expected = {str(key): value for key, value in sorted(self.expected.items())}
        location = self._catalog.load_table(self._path).metadata_location
        _, by_spark = self._spark.rows(f"REFRESH TABLE {self.name}", f"SELECT id, doc FROM {self.name}")
        by_duckdb = self._duckdb.sql(f"SELECT id, doc FROM iceberg_scan('{location}')").fetchall()
        by_polars = polars_table(location, {}, reader=None).to_pylist()
        assert self._values([(row["id"], row["doc"]) for row in by_spark]) == expected
        assert self._values(by_duckdb) == expected
        assert self._values([(row["id"], row["doc"]) for row in by_polars]) == expected
        assert values_of(self._catalog, self._path) == dict(sorted(self.expected.items()))
        check_totals(self._catalog, self._path)
        self.list_files()

    def _values(self, rows: Sequence[tuple[int, str]]) -> dict[str, Any]:
        found = {str(number): json.loads(document)["value"] for number, document in sorted(rows)}
        assert len(found) == len(rows), "two rows for a key"
        return found


def test_engines_agree_on_updated_rows_and_delete_others_before_and_after_the_connector(
    catalog: Catalog, spark: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    table = Updated(catalog, TableIdentifier(PATH.namespace, "updated"), spark, duckdb_reader, 3)
    for number in range(3):
        table.land({100 * number + each: "a" for each in range(20)})
    table.land({0: "b", 1: "b", 100: "b"}, removed=[2])
    table.land({3: "c", 0: "c"})
    table.check()
    table.delete_in_spark(4, 101, 200)
    by_spark = table.summary()
    assert {name: by_spark[name] for name in ("added-delete-files", "added-dvs", "removed-dvs")} == {
        "added-delete-files": "3", "added-dvs": "3", "removed-dvs": "2",
    }  # fmt: skip
    assert "added-position-delete-files" not in by_spark, "as the connector counts them"
    table.check()
    table.land({5: "d", 102: "d", 201: "d"}, removed=[6])
    table.check()
    table.delete_in_spark(7)
    chance = random.Random(0)
    for number in range(4):
        ids = chance.sample(sorted(table.expected), 12)
        table.land(dict.fromkeys(ids[3:], number), removed=ids[:3])
    table.check()


def test_a_table_that_spark_upgrades_in_mid_life_keeps_its_deletes(
    catalog: Catalog, spark: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    table = Updated(catalog, TableIdentifier(PATH.namespace, "upgraded"), spark, duckdb_reader, 2)
    for number in range(10):
        table.land({100 * number + each: "a" for each in range(5)})
    table.land({100 * number: "b" for number in range(10)})
    table.land({1: "b"}, removed=[2])
    assert len(table.list_files().others) == 2, "one of many data files, and one of its own"
    spark.rows(f"REFRESH TABLE {table.name}", f"ALTER TABLE {table.name} SET TBLPROPERTIES ('format-version' = '3')")
    table.check()
    table.land({3: "c"})
    assert not table.list_files().others
    table.check()
    table.delete_in_spark(101)
    table.land({102: "d"})
    table.check()


def test_a_table_that_spark_upgrades_while_a_commit_is_on_its_way_gets_the_next_attempt(
    catalog: Catalog, spark: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Updated(catalog, TableIdentifier(PATH.namespace, "overtaken"), spark, duckdb_reader, 2)
    table.land({1: "a", 2: "a"})
    send = type(catalog).commit_table

    def send_after_an_upgrade(*what: Any) -> Any:
        monkeypatch.undo()
        spark.rows(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('format-version' = '3')")
        return send(*what)

    monkeypatch.setattr(type(catalog), "commit_table", send_after_an_upgrade)
    table.land({1: "b"})
    assert len(table.list_files().vectors) == 1
    table.check()


def test_spark_and_duckdb_refuse_a_table_with_nanoseconds_as_the_page_says(
    local: Catalog, spark: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """Once they read it, docs/reading.md and docs/columns.md should say so."""
    path = TableIdentifier(PATH.namespace, "nanoseconds")
    at = NewColumn("at", "at", TimestamptzType(), required=False, doc="", is_indispensable=False)
    target = Target(path, OWNER, (ID, at), {}, replaces=False, format_version=3, keeps_nanoseconds=True)
    location = f"{local.properties['warehouse']}/version3/nanoseconds"
    evolve(local, path, location, partial(plan_changes, target=target), alterer())
    with pytest.raises(UnreadableError, match="timestamptz_ns"):
        spark.rows(f"SELECT id FROM local.{'.'.join(path)}")
    with pytest.raises(duckdb.Error, match="timestamptz_ns"):
        duckdb_reader.sql(f"SELECT id FROM iceberg_scan('{local.load_table(path).metadata_location}')").fetchall()
