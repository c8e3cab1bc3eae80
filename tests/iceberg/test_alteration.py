"""Columns that get another type: every row and every value is there afterwards, whoever else works on the table."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from connector.evolution.table_change import describe_change
from connector.host.errors import UserError
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.fences.file_names import FileOrigin
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.model.properties import Properties
from connector.model.state import WriterId
from protocol.flow import WHOLE_RANGE
from support.bindings import MATERIALIZATION, PATH
from support.rows.staged_files import stage
from support.tables.altered_tables import (
    ID,
    QTY,
    QTY_AS_TEXT,
    ROWS,
    Counting,
    append,
    current_manifests,
    entries,
    filled_table,
    fit,
    rows,
    sort_by_qty,
    wanted,
)
from support.tables.planted_faults import do_first, lose_answer, plant, refuse

PRICED = {"id": 1, "qty": 10, "price": Decimal("7.10"), "cost": Decimal("7.10")}
WRITER = WriterId(MATERIALIZATION, "shop%2Forders.v0", WHOLE_RANGE.key_range)


def test_history_is_converted_in_one_commit_and_the_table_as_it_was_stays_readable(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NestedField(3, "note", StringType()), rows=[[row | {"note": "x"}] for row in ROWS])
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"flow.fence.0123456789abcdef.00000000-ffffffff": "value"})
    before = catalog.load_table(PATH)

    [change] = fit(catalog, *QTY_AS_TEXT, wanted("note", StringType()))

    assert (
        describe_change(change, PATH)
        == "alter table shop.orders: convert column 'qty' from long to string, in new data files"
    )
    after = catalog.load_table(PATH)
    assert len(after.metadata.metadata_log) == len(before.metadata.metadata_log) + 1
    assert [(each.name, each.field_type, each.required) for each in after.schema().fields] == [
        ("id", LongType(), True),
        ("qty", StringType(), False),
        ("note", StringType(), False),
    ]
    assert rows(catalog) == [{"id": 1, "qty": "10", "note": "x"}, {"id": 2, "qty": "-5", "note": "x"}]
    assert after.properties == {**before.properties, "flow.converted.2": "4"}
    snapshot = after.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    assert snapshot.schema_id == after.schema().schema_id
    assert (snapshot.summary["total-records"], snapshot.summary["total-data-files"]) == ("2", "2")
    assert snapshot.summary["flow.converted-columns"] == "qty: long to string"
    assert rows(catalog, snapshot.parent_snapshot_id) == [row | {"note": "x"} for row in ROWS]


def test_properties_are_set_in_the_commit_that_converts(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, rows=[ROWS])
    fit(catalog, *QTY_AS_TEXT, properties=Properties({"color": "red"}))
    table = catalog.load_table(PATH)
    assert table.properties["color"] == "red"
    assert len(table.metadata.metadata_log) == 2  # the rows, and this commit


def test_what_is_converted_already_is_left_alone(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, rows=[ROWS])
    fit(catalog, *QTY_AS_TEXT)
    location = catalog.load_table(PATH).metadata_location
    counting = Counting()
    assert fit(catalog, *QTY_AS_TEXT, rewrite=counting) == []
    assert catalog.load_table(PATH).metadata_location == location
    assert counting.files == []


def test_an_empty_table_gets_its_new_schema_without_a_snapshot(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY)
    fit(catalog, *QTY_AS_TEXT)
    assert catalog.load_table(PATH).current_snapshot() is None
    append(catalog, {"id": 1, "qty": "ten"})
    assert rows(catalog) == [{"id": 1, "qty": "ten"}]


def test_files_without_a_value_of_the_column_stay_as_they_are(catalog: Catalog) -> None:
    filled_table(catalog, ID, rows=[[{"id": 1}]])
    with catalog.load_table(PATH).update_schema() as update:
        update.add_column("qty", LongType())
    append(catalog, {"id": 2, "qty": None})
    append(catalog, {"id": 3, "qty": 3})
    kept = {entry.data_file.file_path for entry in entries(catalog)}
    fit(catalog, *QTY_AS_TEXT)
    assert rows(catalog) == [{"id": 1, "qty": None}, {"id": 2, "qty": None}, {"id": 3, "qty": "3"}]
    assert len(kept & {entry.data_file.file_path for entry in entries(catalog)}) == 2


def test_columns_of_every_kind_come_along(catalog: Catalog) -> None:
    pair = StructType(NestedField(7, "a", LongType()), NestedField(8, "b", StringType()))
    filled_table(
        catalog,
        ID,
        NestedField(2, "pair", pair),
        NestedField(3, "list", ListType(9, DoubleType())),
        NestedField(4, "uuid", UUIDType()),
        NestedField(5, "price", DecimalType(9, 2)),
        NestedField(6, "qty", LongType()),
        NestedField(10, "count", IntegerType()),
        rows=[
            [{"id": 1, "pair": {"a": 1, "b": "b"}, "list": [1.5], "uuid": b"u" * 16, "price": 1, "qty": 7, "count": 3}]
        ],
    )
    [before] = rows(catalog)
    fit(catalog, *QTY_AS_TEXT, wanted("count", LongType()))
    assert rows(catalog) == [before | {"qty": "7"}]
    assert rows(catalog) == catalog.load_table(PATH).scan(row_filter="count = 3 and qty = '7'").to_arrow().to_pylist()


def test_decimals_that_another_engine_has_widened_come_along_and_are_converted(catalog: Catalog) -> None:
    narrow, wide = DecimalType(9, 2), DecimalType(18, 2)
    filled_table(catalog, ID, QTY, NestedField(3, "price", narrow), NestedField(4, "cost", narrow), rows=[[PRICED]])
    with catalog.load_table(PATH).update_schema() as update:
        update.update_column("price", wide)
        update.update_column("cost", wide)
    large = Decimal("1234567890123456.78")
    append(catalog, PRICED | {"id": 2, "price": large, "cost": large})
    fit(catalog, *QTY_AS_TEXT, wanted("cost", StringType()))
    assert rows(catalog) == [
        {"id": 1, "qty": "10", "price": Decimal("7.10"), "cost": "7.10"},
        {"id": 2, "qty": "10", "price": large, "cost": "1234567890123456.78"},
    ]
    assert str(catalog.load_table(PATH).schema().find_type("price")) == "decimal(18, 2)"


@pytest.mark.parametrize("partition_source", ["id", "day"])
def test_every_file_keeps_its_partition(catalog: Catalog, partition_source: str) -> None:
    day = NestedField(3, "day", StringType())
    source = {"id": 1, "day": 3}[partition_source]
    spec = PartitionSpec(PartitionField(source, 1000, IdentityTransform(), "p"))
    filled_table(catalog, ID, QTY, day, spec=spec, rows=[[row | {"day": f"d{row['id']}"} for row in ROWS]])
    before = [(entry.data_file.partition, entry.data_file.spec_id) for entry in entries(catalog)]
    fit(catalog, *QTY_AS_TEXT, wanted("day", StringType()))
    after = [(entry.data_file.partition, entry.data_file.spec_id) for entry in entries(catalog)]
    assert sorted(map(str, after)) == sorted(map(str, before))
    assert [row["qty"] for row in rows(catalog)] == ["10", "-5"]


def test_rows_keep_their_sequence_numbers_for_other_engines_equality_deletes(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, rows=[[row] for row in ROWS])
    fit(catalog, *QTY_AS_TEXT)
    assert sorted(entry.sequence_number or 0 for entry in entries(catalog)) == [1, 2]
    assert {entry.file_sequence_number for entry in entries(catalog)} == {3}
    added, *_ = current_manifests(catalog.load_table(PATH))
    assert (added.sequence_number, added.min_sequence_number) == (3, 1)


def imported_table(catalog: Catalog, directory: Path, qty: Sequence[int | str | None] = (2,)) -> Table:
    """A table with files that some other program wrote, a row in each, whose columns have names and no ids."""
    of_text = isinstance(qty[0], str)
    table = filled_table(catalog, ID, NestedField(2, "qty", StringType() if of_text else LongType()))
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("qty", pa.large_string() if of_text else pa.int64())]
    )
    for number, value in enumerate(qty, start=1):
        path = directory / ("imported.parquet" if number == 1 else f"imported-{number}.parquet")
        pq.write_table(pa.table({"id": [number], "qty": [value]}, schema=schema), path)
        table.add_files([str(path)])
    return table


def test_a_file_without_field_ids_is_refused_with_a_way_out(catalog: Catalog, tmp_path: Path) -> None:
    table = imported_table(catalog, tmp_path)
    with table.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    with pytest.raises(
        UserError,
        match=r"imported\.parquet has columns without Iceberg's field ids.*Set or complete the table",
    ):
        fit(catalog, *QTY_AS_TEXT)


def names_of(catalog: Catalog) -> list[tuple[int | None, list[str]]]:
    mapping = catalog.load_table(PATH).name_mapping()
    assert mapping is not None
    return [(each.field_id, each.names) for each in mapping]


def test_values_of_files_that_go_by_names_are_converted(catalog: Catalog, tmp_path: Path) -> None:
    """The file without a value is not written again, and its column of the older type must not be read."""
    before = imported_table(catalog, tmp_path, (2, None)).current_snapshot()
    assert before is not None
    counting = Counting()
    [change] = fit(catalog, *QTY_AS_TEXT, rewrite=counting)
    assert "convert column 'qty' from long to string" in describe_change(change, PATH)
    assert counting.files == [1]
    assert sorted(rows(catalog), key=itemgetter("id")) == [{"id": 1, "qty": "2"}, {"id": 2, "qty": None}]
    assert names_of(catalog) == [(1, ["id"]), (2, ["qty"])]
    older = sorted(rows(catalog, before.snapshot_id), key=itemgetter("id"))
    assert older == [{"id": 1, "qty": 2}, {"id": 2, "qty": None}], "the table as it was stays readable"


def test_a_column_of_files_that_go_by_names_is_set_aside_with_its_values(catalog: Catalog, tmp_path: Path) -> None:
    imported_table(catalog, tmp_path, ("seven",))
    fit(catalog, wanted("id", LongType()), wanted("qty", LongType()))
    assert rows(catalog) == [{"id": 1, "qty_before_long": "seven", "qty": None}]
    assert names_of(catalog) == [(1, ["id"]), (2, ["qty", "qty_before_long"])]


def test_a_new_column_gets_into_the_name_mapping(catalog: Catalog, tmp_path: Path) -> None:
    imported_table(catalog, tmp_path)
    fit(catalog, wanted("id", LongType()), wanted("qty", LongType()), wanted("note", StringType()))
    assert names_of(catalog) == [(1, ["id"]), (2, ["qty"]), (3, ["note"])]


def test_rows_that_others_add_meanwhile_are_converted_too_and_only_these_are_left_to_write(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, rows=[[row] for row in ROWS])
    counting = Counting(
        lambda: append(catalog, {"id": 3, "qty": 3}),
        lambda: append(catalog, {"id": 4, "qty": 4}),
    )
    fit(catalog, *QTY_AS_TEXT, rewrite=counting)
    assert counting.files == [2, 1, 1]
    assert [row["qty"] for row in rows(catalog)] == ["10", "-5", "3", "4"]
    assert len(entries(catalog)) == 4


def test_files_that_others_merge_meanwhile_are_not_brought_back(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, rows=[[row] for row in ROWS])
    merged = Counting(lambda: catalog.load_table(PATH).overwrite(catalog.load_table(PATH).scan().to_arrow()))
    fit(catalog, *QTY_AS_TEXT, rewrite=merged)
    assert [row["qty"] for row in rows(catalog)] == ["10", "-5"]


def test_a_column_that_somebody_else_adds_meanwhile_does_not_get_our_values(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, rows=[ROWS])

    def add_column() -> None:
        with catalog.load_table(PATH).update_schema() as update:
            update.add_column("theirs", StringType())

    counting = Counting(add_column)
    fit(catalog, *QTY_AS_TEXT, rewrite=counting)
    assert rows(catalog) == [row | {"qty": str(row["qty"]), "theirs": None} for row in ROWS]
    assert counting.files == [1, 1]


def test_a_column_whose_values_have_no_equivalents_is_set_aside_and_the_others_are_converted(catalog: Catalog) -> None:
    text = NestedField(2, "qty", StringType())
    filled_table(catalog, ID, text, NestedField(3, "at", StringType()), NestedField(4, "count", LongType()))
    append(catalog, {"id": 1, "qty": "7", "at": "2024-01-02T03:04:05Z", "count": 3})
    append(catalog, {"id": 2, "qty": "seven", "at": None, "count": None})
    done = fit(
        catalog,
        wanted("id", LongType()),
        wanted("qty", LongType()),
        wanted("at", TimestamptzType()),
        wanted("count", StringType()),
    )
    assert [describe_change(change, PATH).partition(": ")[2] for change in done] == [
        "convert column 'at' from string to timestamptz, in new data files",
        "convert column 'count' from long to string, in new data files",
        "keep column 'qty' string as 'qty_before_long', and add column 'qty' long",
    ]
    assert rows(catalog) == [
        {"id": 1, "qty_before_long": "7", "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), "count": "3", "qty": None},
        {"id": 2, "qty_before_long": "seven", "at": None, "count": None, "qty": None},
    ]


def test_nanoseconds_of_another_engine_in_a_column_of_microseconds_are_kept(catalog: Catalog) -> None:
    """The column is set aside. While another column is converted, the error names the file."""
    at = NestedField(3, "at", TimestamptzType())
    filled_table(catalog, ID, QTY, at, rows=[[{"id": 1, "qty": 1, "at": datetime(2024, 1, 2, tzinfo=UTC)}]])
    [path] = [entry.data_file.file_path.removeprefix("file://") for entry in entries(catalog)]
    table = pq.read_table(path)
    nanoseconds = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC"))
    field = table.schema.field("at").with_type(nanoseconds.type)
    pq.write_table(table.set_column(2, field, nanoseconds), path)

    with pytest.raises(UserError, match=rf"{path} has values that the column at cannot hold \(Casting"):
        fit(catalog, *QTY_AS_TEXT, wanted("at", TimestamptzType()))
    changes = fit(catalog, wanted("id", LongType()), wanted("qty", LongType()), wanted("at", StringType()))
    assert "at_before_string" in catalog.load_table(PATH).schema().column_names, changes


def test_a_key_whose_values_have_no_equivalents_is_refused(catalog: Catalog) -> None:
    filled_table(catalog, NestedField(1, "id", StringType(), required=True), rows=[[{"id": "one"}]])
    location = catalog.load_table(PATH).metadata_location
    with pytest.raises(
        UserError, match=r"'id'.*needs long, to which its values cannot be converted.*another table name"
    ):
        fit(catalog, wanted("id", LongType()))
    assert catalog.load_table(PATH).metadata_location == location


def committed(catalog: Catalog, *ids: int) -> None:
    """A transaction of ours."""
    commit_all_or_raise(catalog, [stage(catalog, PATH, WRITER, *ids)])


def files_of_ours(catalog: Catalog) -> set[str]:
    directory = Path(catalog.load_table(PATH).location().removeprefix("file://")) / "data"
    return {file.name for file in directory.iterdir() if FileOrigin.of(file.name)}


def test_what_a_crash_leaves_behind_is_collected_once_it_is_certain_and_nothing_else(catalog: Catalog) -> None:
    filled_table(catalog, ID, NestedField(2, "qty", LongType()), rows=[[{"id": 1, "qty": 10}]])
    committed(catalog, 2)

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(catalog, *QTY_AS_TEXT, rewrite=Counting(crash))
    left_behind = files_of_ours(catalog)
    assert remove_task_orphans(catalog, PATH, WRITER, []) == 0
    fit(catalog, *QTY_AS_TEXT)
    assert remove_task_orphans(catalog, PATH, WRITER, []) == 0
    committed(catalog, 3)
    remove_task_orphans(catalog, PATH, WRITER, [])
    assert [row["qty"] for row in rows(catalog)] == ["10", None, None]
    assert len(left_behind & files_of_ours(catalog)) == 1  # the transaction's, which had nothing to be converted


def test_files_that_a_session_may_take_for_left_behind_are_written_anew(catalog: Catalog) -> None:
    filled_table(catalog, ID, NestedField(2, "qty", LongType()), rows=[[{"id": 1, "qty": 10}]])
    committed(catalog, 2)

    def commit_and_collect() -> None:
        committed(catalog, 3)
        assert remove_task_orphans(catalog, PATH, WRITER, []) == 1

    counting = Counting(commit_and_collect)
    fit(catalog, *QTY_AS_TEXT, rewrite=counting)
    assert counting.files == [2, 3]
    assert [row["qty"] for row in rows(catalog)] == ["10", None, None]


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_whose_answer_was_lost_is_looked_for(catalog: Catalog, lands: bool) -> None:
    filled_table(catalog, ID, QTY, rows=[ROWS])
    plant(catalog, [(lose_answer if lands else refuse)(CommitStateUnknownException("lost"))])
    counting = Counting()
    fit(catalog, *QTY_AS_TEXT, rewrite=counting)
    assert [row["qty"] for row in rows(catalog)] == ["10", "-5"]
    assert counting.files == [1]
    assert len(catalog.load_table(PATH).snapshots()) == 2


def test_files_that_stay_are_kept_where_their_manifest_lists_others_that_go(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    filled_table(catalog, ID, NestedField(2, "qty", LongType()), spec=spec)
    append(catalog, {"id": 1, "qty": None}, {"id": 2, "qty": 20})
    [manifest] = current_manifests(catalog.load_table(PATH))
    assert manifest.added_files_count == 2
    fit(catalog, *QTY_AS_TEXT)
    assert rows(catalog) == [{"id": 1, "qty": None}, {"id": 2, "qty": "20"}]


def test_the_commit_asserts_all_that_the_conversion_was_planned_on(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled_table(catalog, ID, QTY, rows=[ROWS])
    main = catalog.load_table(PATH).metadata.current_snapshot_id
    commit_table, asserted = SqlCatalog.commit_table, list[Any]()

    def listen(self: SqlCatalog, loaded: Table, requirements: Any, updates: Any) -> Any:
        asserted.extend(requirements)
        return commit_table(self, loaded, requirements, updates)

    monkeypatch.setattr(SqlCatalog, "commit_table", listen)
    fit(catalog, *QTY_AS_TEXT)
    assert asserted == [
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertCurrentSchemaId(current_schema_id=0),
        AssertLastAssignedFieldId(last_assigned_field_id=2),
        AssertRefSnapshotId(ref="main", snapshot_id=main),
        AssertDefaultSpecId(default_spec_id=0),
        AssertLastAssignedPartitionId(last_assigned_partition_id=999),
        AssertDefaultSortOrderId(default_sort_order_id=0),
    ]


def partition_by_qty(catalog: Catalog) -> None:
    with catalog.load_table(PATH).update_spec() as update:
        update.add_identity("qty")


@pytest.mark.parametrize(("arrange", "kept_by"), [(sort_by_qty, "sort order"), (partition_by_qty, "partition spec")])
def test_a_column_that_another_engine_arranges_rows_by_meanwhile_is_not_converted(
    catalog: Catalog, arrange: Callable[[Catalog], None], kept_by: str
) -> None:
    """Java reads no table whose partition spec or sort order lacks its source."""
    filled_table(catalog, ID, QTY, rows=[ROWS])
    plant(catalog, [do_first(lambda: arrange(catalog))])
    with pytest.raises(UserError, match=f"{kept_by} of the table depends on the column"):
        fit(catalog, *QTY_AS_TEXT)
    assert rows(catalog) == ROWS
