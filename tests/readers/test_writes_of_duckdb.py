"""DuckDB writes to the connector's tables: its rows are found and updated, and what it deletes stays deleted."""

import json
import random
from collections.abc import Iterable
from typing import Any, Final

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import TOTAL_DATA_FILES, TOTAL_DELETE_FILES, TOTAL_RECORDS

from connector.config.catalog import RestCatalog
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.commits import delete_files
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.table_identifier import TableIdentifier
from support.rows.updated_rows import DOCUMENT, stage_updates, values_of
from support.servers.rest_catalog import RestCatalogServer
from support.tables.altered_tables import ID
from support.tables.compacting import EAGER, compact

pytestmark = pytest.mark.catalog

NAMESPACE: Final = "by_duckdb"


class Written:
    """A table of documents, its values by id, and its two writers."""

    def __init__(self, server: RestCatalogServer, reader: duckdb.DuckDBPyConnection, name: str, version: int) -> None:
        self.catalog: Catalog = open_rest(RestCatalog(server.uri, str(server.warehouse)), {})
        self.path = TableIdentifier(NAMESPACE, name)
        self.catalog.create_namespace_if_not_exists(NAMESPACE)
        self.catalog.create_table(self.path, Schema(ID, DOCUMENT), properties={**EAGER, "format-version": str(version)})
        self.expected: dict[int, Any] = {}
        self._lake = reader.cursor()
        where = f"ENDPOINT '{server.uri}', AUTHORIZATION_TYPE 'none'"
        self._lake.sql(f"ATTACH '{server.warehouse}' AS {name} (TYPE iceberg, {where})")
        self._name = f"{name}.{NAMESPACE}.{name}"

    def land(self, values: dict[int, Any], removed: Iterable[int] = ()) -> None:
        staged = stage_updates(self.catalog, values, removed, path=self.path)
        commit_all_or_raise(self.catalog, [staged])
        self.expected = {id_: each for id_, each in (self.expected | values).items() if id_ not in set(removed)}

    def insert(self, values: dict[int, Any]) -> None:
        rows = ", ".join(f"({id_}, '{_document(id_, value)}')" for id_, value in values.items())
        self._lake.sql(f"INSERT INTO {self._name} VALUES {rows}")
        self.expected |= values

    def update(self, id_: int, value: Any) -> None:
        self._lake.sql(f"UPDATE {self._name} SET doc = '{_document(id_, value)}' WHERE id = {id_}")
        self.expected[id_] = value

    def delete(self, *ids: int) -> None:
        self._lake.sql(f"DELETE FROM {self._name} WHERE id IN ({', '.join(map(str, ids))})")
        self.expected = {id_: each for id_, each in self.expected.items() if id_ not in ids}

    def totals(self) -> dict[str, str | None]:
        snapshot = self.catalog.load_table(self.path).current_snapshot()
        assert snapshot
        assert snapshot.summary
        return {name: snapshot.summary[name] for name in (TOTAL_DATA_FILES, TOTAL_DELETE_FILES, TOTAL_RECORDS)}

    def read_with_duckdb(self) -> dict[int, Any]:
        rows = self._lake.sql(f"SELECT id, doc FROM {self._name}").fetchall()
        found = {id_: json.loads(document)["value"] for id_, document in rows}
        assert len(found) == len(rows), "two rows for a key"
        return found


def _document(id_: int, value: Any) -> str:
    return json.dumps({"id": id_, "value": value})


def test_both_update_and_delete_the_rows_of_each_other(
    rest_catalog: RestCatalogServer, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    table = Written(rest_catalog, duckdb_reader, "updated", 2)
    table.land(dict.fromkeys(range(20), "a"))
    table.insert(dict.fromkeys(range(100, 120), "duck"))
    chance = random.Random(0)
    for number in range(6):
        ids = chance.sample(sorted(table.expected), 8)
        table.land(dict.fromkeys(ids[3:], number), removed=ids[:3])
        first, second, *others = chance.sample(sorted(table.expected), 4)
        table.update(first, f"duck {number}")
        table.delete(*others)
        table.insert({second + 1000 * (number + 1): "duck"})
        assert values_of(table.catalog, table.path) == dict(sorted(table.expected.items()))
    before = compact(table.catalog, table.path)
    assert before.files_after < before.files_before
    assert values_of(table.catalog, table.path) == dict(sorted(table.expected.items()))
    assert table.read_with_duckdb() == table.expected


def test_totals_that_duckdb_counts_wrong_are_counted_again(
    rest_catalog: RestCatalogServer, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    table = Written(rest_catalog, duckdb_reader, "counted", 3)
    table.land({1: "a", 2: "a", 3: "a"})
    table.land({1: "b"})
    table.delete(2)
    assert table.totals() == {TOTAL_DATA_FILES: "2", TOTAL_DELETE_FILES: "2", TOTAL_RECORDS: "4"}
    table.insert({100: "duck"})
    table.land({4: "c"})
    assert table.totals() == {TOTAL_DATA_FILES: "4", TOTAL_DELETE_FILES: "1", TOTAL_RECORDS: "6"}
    assert table.read_with_duckdb() == table.expected


def test_deletions_by_duckdb_keep_the_vectors_of_other_data_files(
    rest_catalog: RestCatalogServer, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    table = Written(rest_catalog, duckdb_reader, "vectors", 3)
    for number in range(3):
        table.land(dict.fromkeys(range(10 * number, 10 * number + 10), "a"))
    chance = random.Random(0)
    for number in range(4):
        ids = chance.sample(sorted(table.expected), 6)
        table.land(dict.fromkeys(ids[2:], number), removed=ids[:2])
        first, *others = chance.sample(sorted(table.expected), 3)
        table.update(first, f"duck {number}")
        table.delete(*others)
        table.insert({1000 + number: "duck"})
        assert values_of(table.catalog, table.path) == dict(sorted(table.expected.items()))
    assert table.read_with_duckdb() == table.expected


def test_a_deletion_by_duckdb_brings_rows_back_if_a_puffin_file_has_several_vectors_as_the_page_says(
    rest_catalog: RestCatalogServer, duckdb_reader: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once DuckDB keeps the other vectors of the file, commits need not divide them, and docs/reading.md should say
    so."""
    monkeypatch.setattr(delete_files, "MOST_VECTOR_FILES", 1)
    table = Written(rest_catalog, duckdb_reader, "shared_vectors", 3)
    table.land({1: "a", 2: "a"})
    table.land({3: "a", 4: "a"})
    table.land({1: "b", 3: "b"})
    table.delete(2)
    with pytest.raises(AssertionError, match="two rows for a key"):
        values_of(table.catalog, table.path)
    table.land({3: "c"})
    assert values_of(table.catalog, table.path) == table.expected
