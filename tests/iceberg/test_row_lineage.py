"""Tables of format version 3: each row has an id, which it keeps, as DuckDB reads it."""

from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import LongType, StringType

from connector.evolution.changes import plan_changes
from connector.evolution.table_change import NewColumn, Owner, SetAsideColumn, StartBackfill, TableChange, Target
from connector.iceberg.commits import commit
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.rewrite_manifests import rewrite_manifests
from connector.iceberg.metadata.table_updates import find_next_row_id
from connector.iceberg.tables import evolve, find
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.bindings import MATERIALIZATION
from support.foreign_deletes import delete_position
from support.staged_files import stage
from support.tables import alterer, foreign_table, local_catalog, upgrade_to_version_3

PATH = TableIdentifier("shop", "orders")
V0, V1 = (Owner(MATERIALIZATION, f"orders.v{backfill}") for backfill in (0, 1))
WRITER, NEXT_WRITER = (WriterId(MATERIALIZATION, owner.state_key, WHOLE_RANGE.key_range) for owner in (V0, V1))
ID = NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True)
MERGE_3 = {"commit.manifest.min-count-to-merge": "3"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return local_catalog(tmp_path)


def fit(catalog: Catalog, *columns: NewColumn, **changed: Any) -> list[TableChange]:
    location = f"{catalog.properties['warehouse']}/shop/orders"
    target = Target(
        PATH, **{"owner": V0, "columns": columns or (ID,), "properties": MERGE_3, "replaces": False, **changed}
    )
    return evolve(catalog, PATH, location, partial(plan_changes, target=target), alterer().alter)


def land(catalog: Catalog, *ids: int, writer: WriterId = WRITER) -> StagedCommit:
    staged = stage(catalog, PATH, writer, *ids)
    commit.commit_all_or_raise(catalog, [staged])
    return staged


def row_ids(table: Table, connection: duckdb.DuckDBPyConnection) -> dict[int, tuple[int, int]]:
    """By the value of `id`: the row's id, and the sequence number of its last change."""
    query = f"SELECT id, _row_id, _last_updated_sequence_number FROM iceberg_scan('{table.metadata_location}')"
    found = connection.sql(query).fetchall()
    assert len({row_id for _, row_id, _ in found}) == len(found), "each row has its own"
    return {number: (row_id, sequence_number) for number, row_id, sequence_number in found}


def assert_ids_continue(table: Table) -> None:
    """Each snapshot begins where the one before has ended, and the table goes on after the last one."""
    first = 0
    for snapshot in table.metadata.snapshots:
        assert snapshot.first_row_id == first
        assert snapshot.added_rows is not None
        first += snapshot.added_rows
    assert find_next_row_id(table) == first


def test_a_new_table_has_the_version_that_its_binding_wants(catalog: Catalog) -> None:
    [_, created] = fit(catalog, format_version=3)
    assert created.description == "create table shop.orders ('id' long not null), format version 3"
    table = catalog.load_table(PATH)
    assert (table.metadata.format_version, find_next_row_id(table)) == (3, 0)
    assert table.properties["commit.manifest.min-count-to-merge"] == "3"
    assert fit(catalog, format_version=2) == [], "an existing table keeps its version"


def test_rows_keep_their_ids_when_manifests_are_merged(
    catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    fit(catalog, format_version=3)
    two_rows = stage(catalog, PATH, WRITER, 1, 2)
    commit.commit_all_or_raise(catalog, [two_rows, stage(catalog, PATH, WRITER, 3, prev=two_rows.next)])
    seen = row_ids(catalog.load_table(PATH), duckdb_reader)
    assert seen == {1: (0, 1), 2: (1, 1), 3: (2, 1)}, "of two files in one manifest"
    for ids in ((4, 5, 6), (7,), (8, 9), (10,)):
        land(catalog, *ids)
        found = row_ids(catalog.load_table(PATH), duckdb_reader)
        assert found.items() >= seen.items()
        seen = found
    table = catalog.load_table(PATH)
    snapshot = table.current_snapshot()
    assert snapshot
    assert len(snapshot.manifests(table.io)) < 5, "some were merged"
    assert_ids_continue(table)
    assert seen[10][1] == snapshot.sequence_number


def test_a_repeated_attempt_gives_no_id_twice(
    catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer is faster: the ids of the first attempt are its own now."""
    fit(catalog, format_version=3)
    other = WriterId("acme/other", "orders.v0", WHOLE_RANGE.key_range)
    mine, theirs = stage(catalog, PATH, WRITER, 1, 2), stage(catalog, PATH, other, 3)
    send = catalog.commit_table

    def commit_after_others(*args: Any) -> Any:
        monkeypatch.undo()
        commit.commit_all_or_raise(catalog, [theirs])
        return send(*args)

    monkeypatch.setattr(catalog, "commit_table", commit_after_others)
    commit.commit_all_or_raise(catalog, [mine])
    table = catalog.load_table(PATH)
    assert row_ids(table, duckdb_reader) == {3: (0, 1), 1: (1, 2), 2: (2, 2)}
    assert_ids_continue(table)


def test_a_table_that_another_engine_upgrades_is_written_as_version_3(
    catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """In the middle of a session. Its rows get ids with the next commit, and its position deletes still hold."""
    foreign_table(catalog, PATH, properties=MERGE_3)
    land(catalog, 1, 2)
    land(catalog, 3)
    files = [task.file for task in catalog.load_table(PATH).scan().plan_files()]
    delete_position(catalog.load_table(PATH), next(file.file_path for file in files if file.record_count == 1), 0)
    staged = stage(catalog, PATH, WRITER, 4)
    upgrade_to_version_3(catalog, PATH)
    commit.commit_all_or_raise(catalog, [staged])
    table = catalog.load_table(PATH)
    found = row_ids(table, duckdb_reader)
    assert sorted(found) == [1, 2, 4]
    snapshot = table.metadata.snapshots[-1]
    assert found[4][1] == snapshot.sequence_number
    assert (snapshot.first_row_id, snapshot.added_rows) == (0, find_next_row_id(table))
    land(catalog, 5)
    land(catalog, 6)
    assert row_ids(catalog.load_table(PATH), duckdb_reader).items() > found.items()


def test_a_backfill_gives_its_rows_new_ids(catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    fit(catalog, format_version=3)
    land(catalog, 1, 2)
    assert [type(change) for change in fit(catalog, owner=V1, replaces=True)] == [StartBackfill]
    land(catalog, 1, 2, 3, writer=NEXT_WRITER)
    table = catalog.load_table(PATH)
    assert {row_id for row_id, _ in row_ids(table, duckdb_reader).values()} == {2, 3, 4}
    assert_ids_continue(table)


def test_properties_columns_and_maintenance_leave_the_ids_alone(
    catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    fit(catalog, format_version=3, properties={})
    for number in range(4):
        land(catalog, number)
    before = row_ids(catalog.load_table(PATH), duckdb_reader)
    kept = {"history.expire.max-snapshot-age-ms": "0", "history.expire.min-snapshots-to-keep": "1"}
    catalog.commit_table(catalog.load_table(PATH), (), (SetPropertiesUpdate(updates=kept),))
    fit(catalog, ID, NewColumn("note", "note", StringType(), required=False, doc="", is_indispensable=False))
    next_row_id = find_next_row_id(catalog.load_table(PATH))
    assert expire_snapshots(catalog, PATH) > 0
    assert find_next_row_id(catalog.load_table(PATH)) == next_row_id
    assert rewrite_manifests(catalog, PATH, V0).groups
    assert row_ids(catalog.load_table(PATH), duckdb_reader) == before


@pytest.mark.parametrize(("has_rows", "kept_aside"), [(True, True), (False, False)])
def test_a_column_whose_conversion_would_change_row_ids_is_kept(
    catalog: Catalog, has_rows: bool, kept_aside: bool
) -> None:
    columns = [NewColumn("qty", "qty", type_, False, "", False, former="qty") for type_ in (LongType(), StringType())]
    fit(catalog, ID, columns[0], format_version=3)
    if has_rows:
        land(catalog, 1)
    changes = fit(catalog, ID, columns[1])
    assert any(isinstance(change, SetAsideColumn) for change in changes) is kept_aside
    table = find(catalog, PATH).table
    assert table
    assert table.schema.find_field("qty").field_type == StringType()
