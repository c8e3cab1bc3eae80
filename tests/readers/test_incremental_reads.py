"""Jobs that read only what has changed since their last run: with Spark, as docs/reading.md says."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema

from connector.iceberg.commits.commit import commit_all_or_raise
from support.bindings import PATH
from support.engines.spark_sql import SparkSql, UnreadableError, spark_rows
from support.rows.staged_rows import staged
from support.rows.updated_rows import DOCUMENT, land, row
from support.tables.altered_tables import ID
from support.tables.compacting import EAGER, compact
from support.tables.expiring_tables import head
from support.tables.local_tables import local_catalog

pytestmark = pytest.mark.spark

NAME: Final = f"local.{PATH}"


def make_table(directory: Path, format_version: int) -> Catalog:
    catalog = local_catalog(directory)
    catalog.create_namespace(PATH.namespace)
    properties = {**EAGER, "format-version": str(format_version)}
    catalog.create_table(PATH, Schema(ID, DOCUMENT), f"{catalog.properties['warehouse']}/orders", properties=properties)
    return catalog


def read(spark: SparkSql, directory: Path, query: str) -> list[Any]:
    [rows] = spark_rows(spark, directory, query)
    return sorted((each["id"], json.loads(each["doc"])["value"]) for each in rows)


def added_since(spark: SparkSql, directory: Path, snapshot: int) -> list[Any]:
    return read(spark, directory, f"SELECT id, doc FROM {NAME} WITH (`start-snapshot-id` = '{snapshot}')")


def test_added_rows_are_read_across_compactions(tmp_path: Path, spark_reader: SparkSql) -> None:
    catalog = make_table(tmp_path, 2)
    commit_all_or_raise(catalog, [staged(catalog, row(1, "a"))])
    before = head(catalog)
    for number in (2, 3):
        commit_all_or_raise(catalog, [staged(catalog, row(number, "a"))])
    assert compact(catalog, PATH).commits == 1
    commit_all_or_raise(catalog, [staged(catalog, row(1, "b"))])
    assert added_since(spark_reader, tmp_path, before) == [(1, "b"), (2, "a"), (3, "a")]


@pytest.mark.parametrize("version", [2, 3])
def test_what_reads_appended_snapshots_misses_updates(tmp_path: Path, spark_reader: SparkSql, version: int) -> None:
    """Once Spark reads them, docs/reading.md should say so."""
    catalog = make_table(tmp_path, version)
    land(catalog, {1: "a", 9: "a"})
    before = head(catalog)
    land(catalog, {1: "b", 2: "b"})
    land(catalog, {3: "c"})
    assert added_since(spark_reader, tmp_path, before) == [(3, "c")]
    view = f"CALL local.system.create_changelog_view(table => '{PATH}', changelog_view => 'changes', options => "
    with pytest.raises(UnreadableError, match="Delete files are currently not supported in changelog scans"):
        spark_rows(spark_reader, tmp_path, f"{view}map('start-snapshot-id', '{before}'))", "SELECT * FROM changes")


def test_rows_of_version_3_say_which_commit_has_changed_them(tmp_path: Path, spark_reader: SparkSql) -> None:
    catalog = make_table(tmp_path, 3)
    land(catalog, {1: "a", 2: "a", 3: "a"})
    query = f"SELECT id, doc, _last_updated_sequence_number AS number FROM {NAME}"
    [rows] = spark_rows(spark_reader, tmp_path, query)
    changes = f"{query} WHERE _last_updated_sequence_number > {max(each['number'] for each in rows)}"
    assert read(spark_reader, tmp_path, changes) == []
    land(catalog, {1: "b", 4: "b"}, removed=[2])
    land(catalog, {5: "c"})
    assert read(spark_reader, tmp_path, changes) == [(1, "b"), (4, "b"), (5, "c")]
    assert compact(catalog, PATH).commits == 1
    assert read(spark_reader, tmp_path, changes) == [(1, "b"), (4, "b"), (5, "c")]
