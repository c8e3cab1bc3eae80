"""Tables of format version 3: each row has an id, which it keeps, as DuckDB reads it."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField, StringType

from connector.config.terms import parse_sort_by
from connector.evolution.arrangement_terms import ArrangementTerms
from connector.evolution.binding_settings import NO_TERMS, BindingSettings
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import ConvertColumn, SetAsideColumn, StartBackfill, TableChange, describe_change
from connector.evolution.target import NewColumn, Target
from connector.iceberg.commits import commit
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.rewrite_manifests import rewrite_manifests
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.table_updates import find_next_row_id, new_snapshot
from connector.iceberg.perform_changes import evolve
from connector.iceberg.table_view import ViewFactory
from connector.model.state import WriterId
from connector.model.table_identifier import Owner
from protocol.flow import WHOLE_RANGE
from support.bindings import MATERIALIZATION, PATH
from support.engines.foreign_deletes import delete_position
from support.engines.readers import polars_table
from support.rows import staged_files
from support.rows.staged_files import stage
from support.snapshots import check_text
from support.tables.compacting import EAGER, compact
from support.tables.found_tables import find
from support.tables.local_tables import ID_ONLY, alterer, foreign_table, upgrade_to_version_3
from support.tables.planted_faults import do_first, plant

V0, V1 = (Owner(MATERIALIZATION, f"orders.v{backfill}") for backfill in (0, 1))
WRITER, NEXT_WRITER = (WriterId(MATERIALIZATION, owner.state_key, WHOLE_RANGE.key_range) for owner in (V0, V1))
land = partial(staged_files.land, writer=WRITER)
ID = NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True)
MERGE_3 = {"commit.manifest.min-count-to-merge": "3"}


def fit(catalog: Catalog, *columns: NewColumn, **changed: Any) -> list[TableChange]:
    location = f"{catalog.properties['warehouse']}/shop/orders"
    target = Target(
        PATH, **{"owner": V0, "columns": columns or (ID,), "properties": MERGE_3, "replaces": False, **changed}
    )
    return evolve(catalog, PATH, location, partial(plan_changes, target=target), alterer())


def row_ids(table: Table, connection: duckdb.DuckDBPyConnection) -> dict[Any, tuple[int, int]]:
    """By the value of `id`: the row's id, and the sequence number of its last change."""
    query = f"SELECT id, _row_id, _last_updated_sequence_number FROM iceberg_scan('{table.metadata_location}')"
    found = connection.sql(query).fetchall()
    assert len({row_id for _, row_id, _ in found}) == len(found), "each row has its own"
    return {number: (row_id, sequence_number) for number, row_id, sequence_number in found}


def files(catalog: Catalog) -> list[str]:
    """The paths of data files, those with the most rows first."""
    found = [task.file for task in catalog.load_table(PATH).scan().plan_files()]
    return [file.file_path for file in sorted(found, key=lambda file: -file.record_count)]


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
    assert describe_change(created, PATH) == "create table shop.orders ('id' long not null), format version 3"
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
    assert seen == {1: (0, 1), 2: (1, 1), 3: (2, 2)}, "of two transactions in one manifest"
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


def test_a_repeated_attempt_gives_no_id_twice(catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    """Another writer is faster: the ids of the first attempt are its own now."""
    fit(catalog, format_version=3)
    other = WriterId("acme/other", "orders.v0", WHOLE_RANGE.key_range)
    mine, theirs = stage(catalog, PATH, WRITER, 1, 2), stage(catalog, PATH, other, 3)
    plant(catalog, [do_first(lambda: commit.commit_all_or_raise(catalog, [theirs]))])
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
    delete_position(catalog.load_table(PATH), files(catalog)[1], 0)
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


@pytest.mark.parametrize(
    ("merge", "manifests"),
    [(lambda catalog: land(catalog, 4), 2), (lambda catalog: rewrite_manifests(catalog, PATH, V0), 1)],
    ids=["transaction", "maintenance"],
)
def test_rows_keep_ids_that_they_get_between_two_attempts_of_a_merge(
    catalog: Catalog,
    duckdb_reader: duckdb.DuckDBPyConnection,
    merge: Callable[[Catalog], object],
    manifests: int,
) -> None:
    """The first attempt sees version 2. Then another engine upgrades the table and commits: the manifests stay."""
    foreign_table(catalog, PATH, properties=MERGE_3)
    land(catalog, 1, 2)
    land(catalog, 3)
    given = dict[int, tuple[int, int]]()

    def upgrade() -> None:
        upgrade_to_version_3(catalog, PATH)
        table = catalog.load_table(PATH)
        catalog.commit_table(table, (), new_snapshot(table, SnapshotWriter().keep_files(table, WRITER, {})))
        given.update(row_ids(catalog.load_table(PATH), duckdb_reader))

    plant(catalog, [do_first(upgrade)])
    merge(catalog)
    table = catalog.load_table(PATH)
    assert sorted(given) == [1, 2, 3]
    assert row_ids(table, duckdb_reader).items() >= given.items()
    snapshot = table.current_snapshot()
    assert snapshot
    assert len(snapshot.manifests(table.io)) == manifests, "two were merged"


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


@pytest.mark.parametrize("sorting", ["", "id desc"], ids=["in order", "sorted"])
def test_compactions_leave_the_ids_alone(
    catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection, sorting: str
) -> None:
    """Also those of files that were compacted before, and while a transaction commits."""
    arrangement = ArrangementTerms(sort_by=parse_sort_by(sorting)) if sorting else NO_TERMS
    settings = BindingSettings(arrangement=arrangement)
    fit(catalog, format_version=3, properties={**MERGE_3, **EAGER}, settings=settings)
    seen: dict[int, tuple[int, int]] = {}
    for first in (0, 20, 40):
        for number in range(first, first + 8, 2):
            land(catalog, number, number + 1)
        before = row_ids(catalog.load_table(PATH), duckdb_reader)
        assert before.items() >= seen.items()
        assert compact(catalog, PATH, partial(land, catalog, first + 10)).groups == 1
        table = catalog.load_table(PATH)
        seen = row_ids(table, duckdb_reader)
        assert seen.items() > before.items()
        assert_ids_continue(table)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(seen)
    assert table.scan().to_arrow().column_names == ["id"]
    assert sorted(polars_table(table.metadata_location, {})["id"].to_pylist()) == sorted(seen)


def test_rows_that_get_their_ids_during_a_compaction_keep_them(
    catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of an upgraded table have none before its next commit. The new files would have others."""
    caplog.set_level(logging.INFO, logger="connector")
    foreign_table(catalog, PATH, properties=EAGER)
    for number in range(3):
        land(catalog, number)
    upgrade_to_version_3(catalog, PATH)
    given: dict[int, tuple[int, int]] = {}

    def land_and_look() -> None:
        land(catalog, 9)
        given.update(row_ids(catalog.load_table(PATH), duckdb_reader))

    result = compact(catalog, PATH, land_and_look)
    assert (result.commits, result.dropped) == (0, 1)
    [text] = [record.getMessage() for record in caplog.records if "given up" in record.getMessage()]
    check_text("compaction_errors", "given up: ids", text)
    assert sorted(given) == [0, 1, 2, 9]
    assert compact(catalog, PATH).files_after == 1
    assert row_ids(catalog.load_table(PATH), duckdb_reader) == given


@pytest.mark.parametrize(
    ("version", "name", "groups"),
    [
        (2, "_ROW_ID", 1),
        (2, "_Last_Updated_Sequence_Number", 0),
        (3, "_ROW_ID", 0),
        (3, "_Last_Updated_Sequence_Number", 0),
    ],
)
def test_a_table_with_a_column_of_the_name_of_one_of_row_lineage_is_not_compacted(
    catalog: Catalog, version: int, name: str, groups: int
) -> None:
    fit(catalog, ID, NewColumn("n", name, LongType(), False, "", False), format_version=version, properties=EAGER)
    for number in range(3):
        land(catalog, number)
    assert compact(catalog, PATH).groups == groups


@pytest.mark.parametrize(("name", "keeps_ids"), [("note", True), ("_ROW_ID", False)])
def test_updates_keep_no_ids_beside_a_column_of_their_name(catalog: Catalog, name: str, *, keeps_ids: bool) -> None:
    """Files that are older than the column may have ids. So may files that wait for their commit."""
    fit(catalog, ID, NewColumn("n", name, LongType(), False, "", False), format_version=3)
    landed = land(catalog, 1)
    view = ViewFactory(ManifestCache()).make(
        catalog.load_table(PATH), [stage(catalog, PATH, WRITER, 2, prev=landed.next)]
    )
    assert [file.keeps_ids for file in view.files] == [keeps_ids, keeps_ids]


def test_conversions_leave_the_ids_alone(catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    """Also in files that were compacted or converted before, and in files of which another engine has deleted rows."""
    foreign_table(catalog, PATH, properties=EAGER)
    land(catalog, 1, 2, 3)
    delete_position(catalog.load_table(PATH), files(catalog)[0], 1)
    upgrade_to_version_3(catalog, PATH)
    for ids in (4, 5), (6, 7), (8, 9):
        land(catalog, *ids)
    assert compact(catalog, PATH).groups
    land(catalog, 10)
    before = row_ids(catalog.load_table(PATH), duckdb_reader)
    assert before.keys() == {1, *range(3, 11)}
    as_text = replace(ID, type=StringType(), former="id")
    assert [type(change) for change in fit(catalog, as_text, properties=EAGER)] == [ConvertColumn]
    assert row_ids(catalog.load_table(PATH), duckdb_reader) == {str(number): row for number, row in before.items()}
    fit(catalog, replace(ID, former="id"))
    assert row_ids(catalog.load_table(PATH), duckdb_reader) == before


def test_rows_that_were_compacted_before_an_upgrade_keep_the_numbers_of_their_last_changes(
    catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    fit(catalog, properties=EAGER)
    for number in range(4):
        land(catalog, number)
    compact(catalog, PATH)
    table = catalog.load_table(PATH)
    assert len(files(catalog)) == 1
    assert {row["id"] for row in table.scan().to_arrow().to_pylist()} == set(range(4))
    query = f"SELECT id FROM iceberg_scan('{table.metadata_location}')"
    assert {number for (number,) in duckdb_reader.sql(query).fetchall()} == set(range(4))
    upgrade_to_version_3(catalog, PATH)
    land(catalog, 4)
    rows = row_ids(catalog.load_table(PATH), duckdb_reader)
    assert {number: change for number, (_, change) in rows.items()} == {0: 1, 1: 2, 2: 3, 3: 4, 4: 6}
    compact(catalog, PATH)
    assert row_ids(catalog.load_table(PATH), duckdb_reader) == rows


@pytest.mark.parametrize(("name", "kept_aside"), [("note", False), ("_row_id", True)])
def test_a_column_whose_conversion_would_change_row_ids_is_kept(catalog: Catalog, name: str, kept_aside: bool) -> None:
    """Columns with the names of those for row lineage would be mixed up with them."""
    foreign_table(catalog, PATH, Schema(*ID_ONLY.fields, NestedField(2, name, LongType())), MERGE_3)
    upgrade_to_version_3(catalog, PATH)
    land(catalog, 1)
    changes = fit(catalog, ID, NewColumn(name, name, StringType(), False, "", False, former=name))
    assert any(isinstance(change, SetAsideColumn) for change in changes) is kept_aside
    table = find(catalog, PATH).table
    assert table
    assert table.schema.find_field(name).field_type == StringType()
