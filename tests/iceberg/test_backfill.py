"""A backfill in place: readers find the old rows until the first commit, then the new ones, in the same table."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType, StructType

from connector.evolution.binding_settings import BindingSettings, IdentifierFields
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import StartBackfill, TableChange, describe_change
from connector.evolution.target import NewColumn, Target
from connector.host.errors import FencedError, UnfitCommitError, UserError
from connector.iceberg.commits import backfill as backfill_commit
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.commits.commit_outcomes import Superseded
from connector.iceberg.commits.verdicts import Verdict, judge_commits
from connector.iceberg.fences import fence
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.remove_staged_files import remove_staged_files_after
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.retention import GC_ENABLED
from connector.iceberg.metadata.table_properties import find_generation, restrict_to_generation
from connector.iceberg.perform_changes import evolve
from connector.iceberg.table_view import ViewFactory
from connector.model.state import LocatedRowsFile, StagedCommit, WriterId
from connector.model.table_identifier import Owner
from protocol.flow import WHOLE_RANGE
from support.bindings import MATERIALIZATION, PATH
from support.engines.readers import duckdb_connection, duckdb_rows
from support.rows.staged_rows import staged
from support.rows.updated_rows import stage_updates, values_of
from support.snapshots import check_text
from support.tables.altered_tables import ID, QTY, ROWS, append, filled_table, rows, sort_by_qty, wanted
from support.tables.local_tables import alterer, local_catalog, record_property
from support.tables.outcomes import try_commits
from support.tables.planted_faults import do_first, plant

ID_COLUMN, QTY_COLUMN = wanted("id", LongType()), wanted("qty", LongType())
NEW_ROWS = [{"id": 7, "note": "seven"}, {"id": 8, "note": "eight"}]
LEFT, RIGHT = "00000000-7fffffff", "80000000-ffffffff"


def owner(backfill: int) -> Owner:
    return Owner(MATERIALIZATION, f"shop%2Forders.v{backfill}")


def writer(backfill: int, key_range: str = WHOLE_RANGE.key_range) -> WriterId:
    return WriterId(MATERIALIZATION, owner(backfill).state_key, key_range)


def column(name: str, type_: PrimitiveType) -> NewColumn:
    return NewColumn(name, name, type_, required=False, doc="", is_indispensable=False, former=name)


def target(*columns: NewColumn, backfill: int = 1, **settings: Any) -> Target:
    return Target(PATH, owner(backfill), (ID_COLUMN, *columns), settings.pop("properties", {}), True, **settings)


def fit(catalog: Catalog, wanted_table: Target) -> list[TableChange]:
    return evolve(catalog, PATH, None, partial(plan_changes, target=wanted_table), alterer())


def backfill(catalog: Catalog, number: int = 1) -> None:
    [change] = fit(catalog, target(column("note", StringType()), backfill=number))
    assert isinstance(change, StartBackfill)


def land(catalog: Catalog, *commits: StagedCommit) -> None:
    commit_all_or_raise(catalog, commits)


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """A catalog with a table that has two rows of one transaction, and one of another engine."""
    table = filled_table(catalog, ID, QTY)
    with table.transaction() as transaction:
        transaction.set_properties({"flow.owner": owner(0).encode(), "color": "red"})
    land(catalog, staged(catalog, *ROWS, writer=writer(0)))
    append(catalog, {"id": 3, "qty": 3})
    return catalog


OLD_ROWS = [*ROWS, {"id": 3, "qty": 3}]


def test_rows_stay_until_the_first_commit_replaces_them_all(catalog: Catalog) -> None:
    before = catalog.load_table(PATH)
    backfill(catalog)
    between = catalog.load_table(PATH)
    assert rows(catalog) == OLD_ROWS
    assert between.schema() == before.schema()
    land(catalog, staged(catalog, *NEW_ROWS, writer=writer(1)))
    after = catalog.load_table(PATH)
    assert rows(catalog) == NEW_ROWS
    land(catalog, staged(catalog, {"id": 9, "note": None}, writer=writer(1)))
    assert rows(catalog) == [*NEW_ROWS, {"id": 9, "note": None}]
    assert {after.metadata.table_uuid, between.metadata.table_uuid} == {before.metadata.table_uuid}
    assert after.location() == before.location()
    assert after.properties["color"] == "red"
    assert Owner.of(after.properties) == owner(1)
    assert before.current_snapshot() is not None
    assert rows(catalog, before.metadata.current_snapshot_id) == OLD_ROWS, "time travel shows what was there"


def test_a_backfill_has_two_commits(catalog: Catalog) -> None:
    """A process can die between any two: tests/crash tries it with those that there are."""
    before = len(catalog.load_table(PATH).metadata.metadata_log)
    backfill(catalog)
    assert len(catalog.load_table(PATH).metadata.metadata_log) == before + 1
    land(catalog, staged(catalog, *NEW_ROWS, writer=writer(1)))
    assert len(catalog.load_table(PATH).metadata.metadata_log) == before + 2


def test_duckdb_reads_the_old_rows_and_then_the_new_ones(catalog: Catalog, tmp_path: Path) -> None:
    with duckdb_connection(tmp_path / "extensions") as duckdb:
        backfill(catalog)
        assert duckdb_rows(duckdb, catalog.load_table(PATH).metadata_location, "id") == OLD_ROWS
        land(catalog, staged(catalog, *NEW_ROWS, writer=writer(1)))
        assert duckdb_rows(duckdb, catalog.load_table(PATH).metadata_location, "id") == NEW_ROWS


def newest(catalog: Catalog) -> Snapshot:
    snapshot = catalog.load_table(PATH).current_snapshot()
    assert snapshot
    return snapshot


def summary(snapshot: Snapshot) -> Summary:
    assert snapshot.summary
    return snapshot.summary


def test_the_summary_counts_what_was_replaced(catalog: Catalog) -> None:
    before = newest(catalog)
    backfill(catalog)
    marked = newest(catalog)
    land(catalog, first := staged(catalog, *NEW_ROWS, writer=writer(1)))
    after = newest(catalog)
    assert summary(marked)["total-records"] == "3"
    assert summary(marked)["flow.backfill"] == find_generation(catalog.load_table(PATH), MATERIALIZATION).uuid
    assert after.parent_snapshot_id == marked.snapshot_id
    assert summary(after).operation.value == "overwrite"
    size = str(first.size)
    assert {name: summary(after)[name] for name in ("deleted-data-files", "deleted-records", "removed-files-size")} == {
        "deleted-data-files": "2",
        "deleted-records": "3",
        "removed-files-size": summary(before)["total-files-size"],
    }
    assert {name: summary(after)[name] for name in ("total-data-files", "total-records", "total-files-size")} == {
        "total-data-files": "1",
        "total-records": "2",
        "total-files-size": size,
    }


def test_a_column_that_stays_the_same_keeps_its_id(catalog: Catalog) -> None:
    columns = (QTY_COLUMN, column("note", StringType()))
    fit(catalog, target(*columns))
    fit(catalog, target(replace(QTY_COLUMN, type=StringType()), backfill=2))
    table = catalog.load_table(PATH)
    schemas = [{field.name: field.field_id for field in schema.fields} for schema in table.metadata.schemas]
    assert schemas == [{"id": 1, "qty": 2}, {"id": 1, "qty": 2, "note": 3}, {"id": 1, "qty": 4}]
    assert table.metadata.last_column_id == 4


def test_a_key_column_that_was_optional_becomes_an_identifier_with_a_new_id(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    filled_table(catalog, ID.model_copy(update={"required": False}), QTY, rows=[ROWS])
    fit(catalog, target(settings=BindingSettings(identifier_fields=IdentifierFields.KEY)))
    land(catalog, staged(catalog, {"id": 7}, writer=writer(1)))
    schema = catalog.load_table(PATH).schema()
    assert schema.identifier_field_names() == {"id"}
    assert schema.find_field("id").field_id == 3
    assert rows(catalog) == [{"id": 7}]


def test_a_column_that_stays_optional_for_the_partition_spec_is_not_announced_as_not_null(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    optional = QTY.model_copy(update={"required": False})
    with filled_table(catalog, ID, optional).update_spec() as update:
        update.add_field("qty", BucketTransform(4), "qty_bucket")
    required = replace(QTY_COLUMN, required=True), replace(column("note", StringType()), required=True)
    [change] = fit(catalog, target(*required))
    assert describe_change(change, PATH).endswith(
        "the columns ('id' long not null, 'qty' long, 'note' string not null)"
    )
    land(catalog, staged(catalog, {"id": 7, "qty": 1, "note": "seven"}, writer=writer(1)))
    schema = catalog.load_table(PATH).schema()
    assert {column.name: column.required for column in schema.fields} == {"id": True, "qty": False, "note": True}


def test_a_column_that_a_partition_spec_needs_stays(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    table = filled_table(catalog, ID, QTY)
    with table.update_spec() as update:
        update.add_field("qty", BucketTransform(4), "qty_bucket")
    with catalog.load_table(PATH).update_spec() as update:
        update.remove_field("qty_bucket")
    fit(catalog, target(replace(QTY_COLUMN, type=StringType())))
    land(catalog, staged(catalog, {"id": 7, "qty": "seven"}, writer=writer(1)))
    assert [(field.field_id, field.name) for field in catalog.load_table(PATH).schema().fields] == [
        (1, "id"),
        (3, "qty"),
        (2, "qty_2_before_backfill"),
    ]


def test_a_column_stays_that_has_the_source_of_a_partition_spec_within_it(tmp_path: Path) -> None:
    """Java reads no table whose partition spec lacks its source."""
    catalog = local_catalog(tmp_path)
    place = NestedField(2, "place", StructType(NestedField(3, "country", StringType())))
    by_country = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "country"))
    filled_table(catalog, ID, place, spec=by_country, rows=[[{"id": 1, "place": {"country": "at"}}]])
    fit(catalog, target())
    land(catalog, staged(catalog, {"id": 7}, writer=writer(1)))
    table = catalog.load_table(PATH)
    assert table.schema().find_column_name(table.spec().fields[0].source_id) == "place.country"
    assert rows(catalog) == [{"id": 7, "place": None}]


def partition_by_qty(catalog: Catalog) -> None:
    with catalog.load_table(PATH).update_spec() as update:
        update.add_field("qty", BucketTransform(4), "qty_bucket")


@pytest.mark.parametrize("arrange", [sort_by_qty, partition_by_qty])
@pytest.mark.parametrize("is_staged_before", [True, False])
def test_a_column_stays_that_another_engine_arranges_rows_by_before_the_first_commit(
    catalog: Catalog, arrange: Callable[[Catalog], None], is_staged_before: bool
) -> None:
    backfill(catalog)
    first = [staged(catalog, *NEW_ROWS, writer=writer(1))] if is_staged_before else []
    arrange(catalog)
    land(catalog, *(first or [staged(catalog, *NEW_ROWS, writer=writer(1))]))
    table = catalog.load_table(PATH)
    assert [(field.field_id, field.name, field.required) for field in table.schema().fields] == [
        (1, "id", True),
        (3, "note", False),
        (2, "qty", False),
    ]
    land(catalog, staged(catalog, {"id": 9, "note": None}, writer=writer(1)))
    assert [row["id"] for row in rows(catalog)] == [7, 8, 9]


def test_a_table_without_rows_is_backfilled(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    filled_table(catalog, ID, QTY)
    backfill(catalog)
    assert rows(catalog) == []
    land(catalog, staged(catalog, *NEW_ROWS, writer=writer(1)))
    assert rows(catalog) == NEW_ROWS


def test_an_apply_that_is_repeated_changes_nothing(catalog: Catalog) -> None:
    backfill(catalog)
    before = catalog.load_table(PATH).metadata_location
    assert fit(catalog, target(column("note", StringType()))) == []
    assert catalog.load_table(PATH).metadata_location == before
    land(catalog, staged(catalog, *NEW_ROWS, writer=writer(1)))
    assert fit(catalog, target(column("note", StringType()))) == []
    assert rows(catalog) == NEW_ROWS


def test_a_publication_in_between_changes_the_columns_to_come(catalog: Catalog) -> None:
    backfill(catalog)
    late = staged(catalog, *NEW_ROWS, writer=writer(1))
    more = target(column("note", StringType()), column("size", LongType()))
    assert [describe_change(change, PATH) for change in fit(catalog, more)] == [
        "alter table shop.orders: add column 'size' long"
    ]
    assert rows(catalog) == OLD_ROWS
    assert fit(catalog, more) == []
    land(catalog, late)
    assert rows(catalog) == [{**row, "size": None} for row in NEW_ROWS]


def test_a_backfill_in_between_takes_the_place_of_the_first(catalog: Catalog) -> None:
    backfill(catalog)
    first = staged(catalog, *NEW_ROWS, writer=writer(1))
    backfill(catalog, 2)
    assert rows(catalog) == OLD_ROWS
    with pytest.raises(FencedError):
        land(catalog, first)
    land(catalog, staged(catalog, {"id": 1, "note": "one"}, writer=writer(2)))
    assert rows(catalog) == [{"id": 1, "note": "one"}]


def test_of_two_shards_the_first_replaces_and_the_second_adds(catalog: Catalog) -> None:
    backfill(catalog)
    left, right = (
        staged(catalog, row, writer=writer(1, key_range))
        for row, key_range in zip(NEW_ROWS, (LEFT, RIGHT), strict=True)
    )
    land(catalog, right)
    land(catalog, left)
    land(catalog, left, right)
    assert rows(catalog) == NEW_ROWS


def test_several_transactions_that_replace_the_rows_have_a_sequence_number_each(catalog: Catalog) -> None:
    """The snapshot has the last of them: no file may be newer than the snapshot that adds it."""
    backfill(catalog)
    first = staged(catalog, *NEW_ROWS, writer=writer(1))
    second = staged(catalog, {"id": 9, "note": None}, after=first, writer=writer(1))
    before = newest(catalog).sequence_number or 0
    land(catalog, first, second)
    files = ManifestCache().list_files(catalog.load_table(PATH))
    assert rows(catalog) == [*NEW_ROWS, {"id": 9, "note": None}]
    assert newest(catalog).sequence_number == before + 2
    assert sorted(file.sequence_number for file in files) == [before + 1, before + 2]


def test_a_commit_that_is_repeated_replaces_nothing_twice(catalog: Catalog) -> None:
    backfill(catalog)
    first = staged(catalog, *NEW_ROWS, writer=writer(1))
    second = staged(catalog, {"id": 9, "note": None}, after=first, writer=writer(1))
    land(catalog, first)
    land(catalog, replace(first, is_recovered=True), replace(second, is_recovered=True))
    land(catalog, replace(second, is_recovered=True))
    assert rows(catalog) == [*NEW_ROWS, {"id": 9, "note": None}]


@pytest.mark.parametrize("key_range", [WHOLE_RANGE.key_range, LEFT])
@pytest.mark.parametrize("has_begun", [False, True])
def test_a_process_of_before_is_fenced(catalog: Catalog, key_range: str, has_begun: bool) -> None:
    """It may have committed before, or not: the left half has not."""
    zombie = staged(catalog, {"id": 66, "qty": 6}, writer=writer(0, key_range))
    backfill(catalog)
    if has_begun:
        land(catalog, staged(catalog, *NEW_ROWS, writer=writer(1)))
    expected = rows(catalog)
    with pytest.raises(FencedError) as error:
        land(catalog, zombie)
    check_text("commit_errors", "a backfill has been published since", str(error.value))
    assert rows(catalog) == expected


def test_a_process_of_before_is_fenced_also_if_it_goes_on_from_what_waited(catalog: Catalog) -> None:
    waiting = replace(staged(catalog, {"id": 65, "qty": 6}, writer=writer(0)), is_recovered=True)
    own = staged(catalog, {"id": 66, "qty": 6}, writer=writer(0))
    backfill(catalog)
    with pytest.raises(FencedError, match="a backfill"):
        land(catalog, waiting, replace(own, prev=waiting.next))
    assert rows(catalog) == OLD_ROWS


def test_rows_of_a_generation_that_the_table_has_forgotten_are_of_another_table(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first generation has the UUID of the table."""
    monkeypatch.setattr(backfill_commit, "FORMER_KEPT", 0)
    waiting = replace(staged(catalog, {"id": 65, "qty": 6}, writer=writer(0)), is_recovered=True)
    backfill(catalog)
    with pytest.raises(UserError, match="is another table now"):
        land(catalog, waiting)
    assert rows(catalog) == OLD_ROWS


@pytest.mark.parametrize("key_range", [WHOLE_RANGE.key_range, LEFT])
def test_the_fence_alone_stops_a_process_whose_image_knows_no_generations(catalog: Catalog, key_range: str) -> None:
    zombie = staged(catalog, {"id": 66, "qty": 6}, writer=writer(0, key_range))
    assert fence.remaining_commits([zombie], catalog.load_table(PATH).properties)
    backfill(catalog)
    with pytest.raises(FencedError):
        fence.remaining_commits([zombie], catalog.load_table(PATH).properties)


def test_a_commit_on_its_way_when_the_backfill_begins_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    zombie = staged(catalog, {"id": 66, "qty": 6}, writer=writer(0))
    slow = local_catalog(tmp_path)
    plant(slow, [do_first(lambda: fit(catalog, target(QTY_COLUMN)))])
    with pytest.raises(FencedError):
        land(slow, zombie)
    assert rows(catalog) == OLD_ROWS


@pytest.mark.parametrize("backfills", [1, 2])
def test_what_the_state_still_names_of_before_is_given_up(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, backfills: int
) -> None:
    """Not every runtime gives apply the state."""
    caplog.set_level(logging.WARNING)
    waiting = replace(staged(catalog, {"id": 66, "qty": 6}, writer=writer(0)), is_recovered=True)
    for number in range(backfills):
        backfill(catalog, number + 1)
    assert try_commits(catalog, [waiting]) == [Superseded((waiting,))]
    assert rows(catalog) == OLD_ROWS
    assert "table shop.orders: 1 rows that were staged before its backfill are not added" in caplog.text


def test_rows_that_were_staged_after_a_backfill_on_an_older_copy_are_not_given_up(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """The catalog has answered their session from a replica or a cache. Only another backfill makes them void."""
    own = staged(catalog, {"id": 66, "qty": 6}, writer=writer(1))
    backfill(catalog)
    with pytest.raises(FencedError, match="with the table as it was before"):
        land(catalog, own)
    waiting = replace(own, is_recovered=True)
    assert [each.verdict for each in judge_commits(catalog.load_table(PATH), [waiting])] == [Verdict.OTHER_TABLE]
    with pytest.raises(UnfitCommitError) as error:
        land(catalog, waiting)
    check_text("commit_errors", "rows that were staged on an older copy", str(error.value), {own.table_uuid: "UUID"})
    assert "are not added" not in caplog.text
    backfill(catalog, 2)
    assert try_commits(catalog, [waiting]) == [Superseded((waiting,))]
    assert rows(catalog) == OLD_ROWS


def test_another_tasks_rows_land_as_before(catalog: Catalog) -> None:
    other = WriterId("acme/other", "shop%2Forders.v0", WHOLE_RANGE.key_range)
    waiting = staged(catalog, {"id": 66, "qty": 6}, writer=other)
    fit(catalog, target(QTY_COLUMN))
    land(catalog, waiting)
    assert len(rows(catalog)) == 4
    land(catalog, staged(catalog, {"id": 7, "qty": 7}, writer=writer(1)))
    assert rows(catalog) == [{"id": 7, "qty": 7}]
    land(catalog, staged(catalog, {"id": 67, "qty": 6}, writer=other))
    assert len(rows(catalog)) == 2


def test_a_view_has_no_rows_of_before_but_pending_ones(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    table = filled_table(catalog, ID, column_of_documents())
    with table.transaction() as transaction:
        transaction.set_properties({"flow.owner": owner(0).encode()})
    land(catalog, stage_updates(catalog, {1: "old", 2: "old"}, writer=writer(0)))
    fit(catalog, target(column("doc", StringType())))
    first = stage_updates(catalog, {1: "new", 3: "new"}, writer=writer(1))
    assert first.located == LocatedRowsFile(None, 0, None)
    assert view_paths(catalog, first) == set(first.locations)
    second = stage_updates(catalog, {1: "newer"}, removed=[3], after=[first], writer=writer(1))
    assert second.located is not None
    assert values_of(catalog) == {1: "old", 2: "old"}
    land(catalog, first, second)
    assert values_of(catalog) == {1: "newer"}
    land(catalog, stage_updates(catalog, {1: "newest"}, writer=writer(1)))
    assert values_of(catalog) == {1: "newest"}


def column_of_documents() -> Any:
    return QTY.model_copy(update={"name": "doc", "field_type": StringType(), "required": False})


def view_paths(catalog: Catalog, *pending: StagedCommit) -> set[str]:
    table = catalog.load_table(PATH)
    task_table = restrict_to_generation(table, find_generation(table, MATERIALIZATION))
    return {file.path for file in ViewFactory(ManifestCache()).make(task_table, pending).files}


def test_rejected_rows_are_deleted_at_once(catalog: Catalog) -> None:
    changes = fit(catalog, target(QTY_COLUMN, is_for_rejected_rows=True))
    assert [describe_change(change, PATH) for change in changes] == [
        "delete all rows of table shop.orders for a backfill"
    ]
    assert rows(catalog) == []
    land(catalog, staged(catalog, {"id": 7, "qty": 7}, writer=writer(1)))
    land(catalog, staged(catalog, {"id": 8, "qty": 8}, writer=writer(1)))
    assert rows(catalog) == [{"id": 7, "qty": 7}, {"id": 8, "qty": 8}]


def test_old_files_go_with_their_snapshots(catalog: Catalog) -> None:
    old = data_files(catalog.load_table(PATH))
    backfill(catalog)
    land(catalog, staged(catalog, *NEW_ROWS, writer=writer(1)))
    table = catalog.load_table(PATH)
    tagged = table.metadata.snapshots[0]
    table.manage_snapshots().create_tag(tagged.snapshot_id, "before").commit()
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "0"})
    land(catalog, staged(catalog, {"id": 9, "note": None}, writer=writer(1)))
    expire_snapshots(catalog, PATH)
    left = data_files(catalog.load_table(PATH)) & old
    assert len(left) == 1, "the tagged snapshot has one file of our first transaction, not that of the other engine"
    assert rows(catalog, tagged.snapshot_id) == ROWS
    assert rows(catalog) == [*NEW_ROWS, {"id": 9, "note": None}]


def test_a_tag_keeps_the_rows_and_the_columns_of_before(catalog: Catalog) -> None:
    """docs/operating.md advises it for readers that must not see a part of the new rows."""
    table = catalog.load_table(PATH)
    table.manage_snapshots().create_tag(newest(catalog).snapshot_id, "before_backfill").commit()
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "0"})
    backfill(catalog)
    land(catalog, staged(catalog, *NEW_ROWS, writer=writer(1)))
    assert expire_snapshots(catalog, PATH)
    tagged = catalog.load_table(PATH).metadata.refs["before_backfill"].snapshot_id
    assert rows(catalog, tagged) == OLD_ROWS
    assert rows(catalog) == NEW_ROWS


def data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.location().removeprefix("file://"), "data").rglob("*.parquet")}


def test_files_of_killed_processes_of_before_are_orphans(catalog: Catalog) -> None:
    left_behind = staged(catalog, {"id": 66, "qty": 6}, writer=writer(0))
    named = staged(catalog, {"id": 67, "qty": 6}, writer=writer(0, LEFT))
    assert remove_task_orphans(catalog, PATH, writer(0), []) == 0
    backfill(catalog)
    pending = staged(catalog, *NEW_ROWS, writer=writer(1))
    assert remove_task_orphans(catalog, PATH, writer(1), [named]) == 1
    assert not exists(left_behind)
    assert exists(named)
    land(catalog, pending)
    assert rows(catalog) == NEW_ROWS


def exists(commit: StagedCommit) -> bool:
    return all(Path(location.removeprefix("file://")).exists() for location in commit.locations)


@pytest.mark.parametrize("value", ["[]", '{"uuid": "u"}', "later"])
def test_a_generation_that_was_changed_by_hand_is_refused(catalog: Catalog, value: str) -> None:
    waiting = staged(catalog, {"id": 66, "qty": 6}, writer=writer(0))
    record_property(catalog.load_table(PATH), "flow.generation", value)
    with pytest.raises(UserError) as error:
        land(catalog, waiting)
    check_text("commit_errors", "a generation was changed by hand", str(error.value), {repr(value): "VALUE"})


def test_columns_that_another_program_has_removed_are_named_and_another_backfill_helps(catalog: Catalog) -> None:
    backfill(catalog)
    waiting = staged(catalog, *NEW_ROWS, writer=writer(1))
    table = catalog.load_table(PATH)
    generation = replace(find_generation(table, MATERIALIZATION), schema_id=99)
    [(name, value)] = generation.encode().items()
    record_property(table, name, value)
    with pytest.raises(UserError) as error:
        land(catalog, waiting)
    check_text("commit_errors", "the columns of a backfill are gone", str(error.value))
    backfill(catalog, 2)
    land(catalog, staged(catalog, *NEW_ROWS, writer=writer(2)))
    assert rows(catalog) == NEW_ROWS


def test_missing_files_that_were_committed_during_the_backfill_are_not_deleted(catalog: Catalog) -> None:
    """They are rows of before, which readers find until the first commit."""
    late, given_up = staged(catalog, *ROWS, writer=writer(0, LEFT)), staged(catalog, *ROWS, writer=writer(0, RIGHT))
    with remove_staged_files_after(catalog, PATH, [late, given_up]):
        land(catalog, replace(late, is_recovered=True))
        backfill(catalog)
    assert are_there(late, given_up) == [True, False]


def drop(catalog: Catalog) -> None:
    catalog.drop_table(PATH)


def rename(catalog: Catalog) -> None:
    catalog.rename_table(PATH, ("shop", "old_orders"))


def replace_by_another(catalog: Catalog) -> None:
    drop(catalog)
    filled_table(catalog, ID, QTY)


@pytest.mark.parametrize("leave", [drop, rename, replace_by_another])
def test_missing_files_stay_if_their_table_leaves_its_name(catalog: Catalog, leave: Callable[[Catalog], None]) -> None:
    """They may have been committed before that, and the table may have another name, or may be brought back."""
    late = staged(catalog, *ROWS, writer=writer(0))
    old = catalog.load_table(PATH)
    with remove_staged_files_after(catalog, PATH, [late]):
        land(catalog, late)
        metadata = old.refresh().metadata_location
        leave(catalog)
    again = catalog.register_table(("shop", "again"), metadata)
    assert again.scan().to_arrow().num_rows == 2 * len(ROWS) + 1
    assert are_there(late) == [True]


def test_missing_files_stay_if_their_table_had_another_name_before_the_backfill(catalog: Catalog) -> None:
    landed = staged(catalog, *ROWS, writer=writer(0))
    land(catalog, landed)
    rename(catalog)
    filled_table(catalog, ID, QTY).transaction().set_properties({"flow.owner": owner(0).encode()}).commit_transaction()
    with remove_staged_files_after(catalog, PATH, [landed]):
        backfill(catalog)
    assert are_there(landed) == [True]


def test_missing_files_stay_if_the_table_forbids_garbage_collection(catalog: Catalog) -> None:
    """They may have been committed, and something outside may refer to them."""
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({GC_ENABLED: "false"})
    given_up = staged(catalog, *ROWS, writer=writer(0))
    with remove_staged_files_after(catalog, PATH, [given_up]):
        backfill(catalog)
    assert are_there(given_up) == [True]


def are_there(*commits: StagedCommit) -> list[bool]:
    return [Path(path.removeprefix("file://")).exists() for each in commits for path in each.locations]
