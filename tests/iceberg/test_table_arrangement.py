"""How a table gets the partition spec and the sort order of its binding, and how sessions follow those of the table."""

import json
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, parse_transform
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType, StructType, TimestamptzType

from connector.config.terms import parse_partition_by, parse_sort_by
from connector.evolution.arrangement_changes import SetPartitionSpec, SetSortOrder
from connector.evolution.arrangement_terms import ArrangementTerms
from connector.evolution.binding_settings import BindingSettings
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import Alteration, TableChange, describe_change
from connector.evolution.target import NewColumn, Target
from connector.host.errors import UserError
from connector.iceberg.metadata.table_arrangement import find_arrangement
from connector.iceberg.metadata.table_properties import find_generation, restrict_to_generation
from connector.iceberg.perform_changes import evolve
from connector.model import binding as model
from connector.model.binding import Arrangement
from connector.model.table_identifier import Owner
from support.bindings import MATERIALIZATION, PATH
from support.snapshots import check_text
from support.tables.found_tables import find
from support.tables.local_tables import alterer

OWNER: Final = Owner(MATERIALIZATION, "shop%2Forders.v0")


def column(name: str, type_: PrimitiveType, former: str = "", *, required: bool = False) -> NewColumn:
    return NewColumn(name, name, type_, required=required, doc="", is_indispensable=name == "id", former=former)


ID, NOTE, AT = column("id", LongType()), column("a.b/`note`", StringType()), column("at", TimestamptzType())


def target(partition_by: str | None, sort_by: str | None = None, columns: tuple[NewColumn, ...] = ()) -> Target:
    terms = ArrangementTerms(
        None if partition_by is None else parse_partition_by(partition_by),
        None if sort_by is None else parse_sort_by(sort_by),
    )
    return Target(
        PATH, OWNER, columns or (ID, NOTE, AT), {}, replaces=False, settings=BindingSettings(arrangement=terms)
    )


def fit(catalog: Catalog, wanted: Target) -> list[TableChange]:
    return evolve(catalog, PATH, None, partial(plan_changes, target=wanted), alterer())


def spec(catalog: Catalog) -> list[tuple[int, str, str, str]]:
    """The current partition spec: field id, name, column, transform."""
    table = catalog.load_table(PATH)
    return [
        (field.field_id, field.name, str(table.schema().find_column_name(field.source_id)), str(field.transform))
        for field in table.spec().fields
    ]


def order(catalog: Catalog) -> list[str]:
    table = catalog.load_table(PATH)
    return [
        f"{field.transform} {table.schema().find_column_name(field.source_id)} {field.direction} {field.null_order}"
        for field in table.sort_order().fields
    ]


def written(catalog: Catalog, *columns: str) -> Arrangement:
    """How a session arranges rows with these columns; all without names."""
    table = catalog.load_table(PATH)
    return find_arrangement(table, {c.field_id for c in table.schema().fields if not columns or c.name in columns})


def test_a_table_is_created_with_its_partitions_and_its_order(catalog: Catalog) -> None:
    wanted = target("Days(AT), bucket(16, id), `a.b/``note```, truncate(4, id), void(at)", "at desc, bucket(8, id)")
    [_, created] = fit(catalog, wanted)
    assert describe_change(created, PATH) == (
        "create table shop.orders ('id' long, 'a.b/`note`' string, 'at' timestamptz), partitioned by day(at), "
        "bucket(16, id), `a.b/``note```, truncate(4, id), void(at), sorted by at desc nulls last, bucket(8, id) asc "
        "nulls first"
    )
    assert spec(catalog) == [
        (1000, "at_day", "at", "day"),
        (1001, "id_bucket_16", "id", "bucket[16]"),
        (1002, "a.b/`note`", "a.b/`note`", "identity"),
        (1003, "id_trunc_4", "id", "truncate[4]"),
        (1004, "at_null", "at", "void"),
    ]
    assert order(catalog) == ["identity at DESC NULLS LAST", "bucket[8] id ASC NULLS FIRST"]
    assert written(catalog) == Arrangement(
        0,
        (
            model.PartitionField(3, "day"),
            model.PartitionField(1, "bucket[16]"),
            model.PartitionField(2, "identity"),
            model.PartitionField(1, "truncate[4]"),
            model.PartitionField(3, "void"),
        ),
        1,
        (
            model.SortField(3, "identity", is_descending=True, nulls_first=False),
            model.SortField(1, "bucket[8]", is_descending=False, nulls_first=True),
        ),
    )
    assert fit(catalog, wanted) == []


def test_the_arrangement_of_a_table_changes_in_one_commit_with_its_columns(catalog: Catalog) -> None:
    fit(catalog, target(None, columns=(ID,)))
    before = len(catalog.load_table(PATH).metadata.metadata_log)
    done = fit(catalog, target("day(at), id", "at", (ID, AT)))
    assert [describe_change(change, PATH) for change in done] == [
        "alter table shop.orders: add column 'at' timestamptz",
        "alter table shop.orders: partition new rows by day(at), id",
        "alter table shop.orders: sort new data files by at asc nulls first",
    ]
    assert spec(catalog) == [(1000, "at_day", "at", "day"), (1001, "id", "id", "identity")]
    assert order(catalog) == ["identity at ASC NULLS FIRST"]
    assert len(catalog.load_table(PATH).metadata.metadata_log) == before + 1
    assert (written(catalog).spec_id, written(catalog).sort_order_id) == (1, 1)
    assert fit(catalog, target("day(at), id", "at", (ID, AT))) == []


def test_an_empty_text_removes_the_arrangement_and_no_setting_keeps_it(catalog: Catalog) -> None:
    fit(catalog, target("day(at)", "id"))
    assert fit(catalog, target(None)) == []
    done = fit(catalog, target("", ""))
    assert [describe_change(change, PATH) for change in done] == [
        "alter table shop.orders: do not partition new rows",
        "alter table shop.orders: do not sort new data files",
    ]
    assert (spec(catalog), order(catalog)) == ([], [])
    assert written(catalog) == Arrangement(spec_id=1, sort_order_id=0)


def test_an_earlier_arrangement_is_used_again(catalog: Catalog) -> None:
    for partition_by, sort_by in [("day(at)", "id"), ("id", "at"), ("", ""), ("day(at)", "id"), ("", "")]:
        fit(catalog, target(partition_by, sort_by))
    metadata = catalog.load_table(PATH).metadata
    assert {spec.spec_id: len(spec.fields) for spec in metadata.partition_specs} == {0: 1, 1: 1, 2: 0}
    assert sorted(order.order_id for order in metadata.sort_orders) == [0, 1, 2]
    assert (metadata.default_spec_id, metadata.default_sort_order_id) == (2, 0)


def test_a_partition_field_keeps_its_id_and_others_get_new_ones(catalog: Catalog) -> None:
    for partition_by in ("day(at), bucket(16, id)", "bucket(32, id)", "hour(at), bucket(16, id)"):
        fit(catalog, target(partition_by))
    assert spec(catalog) == [(1003, "at_hour", "at", "hour"), (1001, "id_bucket_16", "id", "bucket[16]")]
    assert catalog.load_table(PATH).metadata.last_partition_id == 1003


def test_a_partition_field_of_a_renamed_column_keeps_its_name_and_leaves_it_to_no_other(catalog: Catalog) -> None:
    fit(catalog, target("day(at)"))
    renamed = column("seen", TimestamptzType(), former="at")
    assert [type(change).__name__ for change in fit(catalog, target("day(seen)", columns=(ID, NOTE, renamed)))] == [
        "RenameColumn"
    ]
    assert spec(catalog) == [(1000, "at_day", "seen", "day")]
    fit(catalog, target("day(seen), day(at)", columns=(ID, NOTE, renamed, AT)))
    assert spec(catalog) == [(1000, "at_day", "seen", "day"), (1001, "at_day_1001", "at", "day")]


def test_a_column_that_gets_another_type_is_sorted_by_its_new_values(catalog: Catalog) -> None:
    fit(catalog, target(None, "id, at"))
    done = fit(catalog, target(None, "id, at", (column("id", LongType()), NOTE, column("at", LongType()))))
    assert [type(change).__name__ for change in done] == ["SetAsideColumn", "SetSortOrder"]
    assert order(catalog) == ["identity id ASC NULLS FIRST", "identity at ASC NULLS FIRST"]


def test_converted_values_and_a_new_order_are_one_commit(catalog: Catalog) -> None:
    fit(catalog, target("bucket(4, id)", "note", (ID, column("note", LongType()))))
    rows = pa.Table.from_pylist([{"id": 1, "note": 2}], schema=catalog.load_table(PATH).schema().as_arrow())
    catalog.load_table(PATH).append(rows)
    before = len(catalog.load_table(PATH).metadata.metadata_log)
    done = fit(catalog, target("bucket(4, id), note", "note desc", (ID, column("note", StringType()))))
    assert [type(change).__name__ for change in done] == ["ConvertColumn", "SetPartitionSpec", "SetSortOrder"]
    table = catalog.load_table(PATH)
    assert len(table.metadata.metadata_log) == before + 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "note": "2"}]
    assert spec(catalog) == [(1000, "id_bucket_4", "id", "bucket[4]"), (1001, "note", "note", "identity")]
    assert order(catalog) == ["identity note DESC NULLS LAST"]
    assert [file.file.spec_id for file in table.scan().plan_files()] == [0], "it stays under its spec"


EXTRA: Final = column("extra", StringType())


def backfilled(partition_by: str | None, sort_by: str | None = None, *columns: NewColumn) -> Target:
    owner = Owner(MATERIALIZATION, "shop%2Forders.v1")
    return replace(target(partition_by, sort_by, columns), owner=owner, replaces=True)


def test_a_backfill_changes_the_arrangement_at_once_and_keeps_the_table(catalog: Catalog) -> None:
    fit(catalog, target("day(at)", "id"))
    uuid = catalog.load_table(PATH).metadata.table_uuid
    done = fit(catalog, backfilled("bucket(4, id)", "at", ID, NOTE, AT, EXTRA))
    assert [type(change).__name__ for change in done] == ["SetPartitionSpec", "SetSortOrder", "StartBackfill"]
    assert catalog.load_table(PATH).metadata.table_uuid == uuid
    assert spec(catalog) == [(1001, "id_bucket_4", "id", "bucket[4]")]
    assert order(catalog) == ["identity at ASC NULLS FIRST"]
    assert fit(catalog, backfilled("bucket(4, id)", "at", ID, NOTE, AT, EXTRA)) == []


def test_a_backfill_without_settings_keeps_the_arrangement(catalog: Catalog) -> None:
    fit(catalog, target("day(at)", "id"))
    done = fit(catalog, backfilled(None, None, ID, NOTE, AT, EXTRA))
    assert [type(change).__name__ for change in done] == ["StartBackfill"]
    assert [name for _, name, _, _ in spec(catalog)] == ["at_day"]


@pytest.mark.parametrize("columns", [(ID, NOTE, AT, EXTRA), (ID, NOTE, column("at", StringType()))])
def test_a_backfill_makes_a_new_table_if_its_partitions_need_a_new_column(
    catalog: Catalog, columns: tuple[NewColumn, ...]
) -> None:
    fit(catalog, target("day(at)", "id"))
    name = columns[-1].name
    dropped, created = fit(catalog, backfilled(name, None, *columns))
    assert describe_change(dropped, PATH).endswith(
        "because its partitions or its sort order need a column that it does not have yet; its files stay"
    )
    assert describe_change(created, PATH).endswith(f"partitioned by {name}")
    assert spec(catalog) == [(1000, name, name, "identity")]


@pytest.mark.parametrize("setting", ["partition_by", "sort_by"])
def test_a_backfill_keeps_a_column_that_the_arrangement_has_even_if_it_would_be_required(
    catalog: Catalog, setting: str
) -> None:
    partition_by, sort_by = ("extra", None) if setting == "partition_by" else (None, "extra")
    fit(catalog, target(None))
    fit(catalog, target(partition_by, sort_by, (ID, NOTE, AT, EXTRA)))
    uuid = catalog.load_table(PATH).metadata.table_uuid
    now_required = column("extra", StringType(), required=True)
    done = fit(catalog, backfilled(None, None, ID, NOTE, AT, now_required))
    assert [type(change).__name__ for change in done] == ["StartBackfill"]
    assert fit(catalog, backfilled(partition_by, sort_by, ID, NOTE, AT, now_required)) == []
    table = catalog.load_table(PATH)
    awaited = restrict_to_generation(table, find_generation(table, MATERIALIZATION)).schema()
    assert (table.metadata.table_uuid, awaited.find_field("extra").field_id) == (uuid, 4)
    assert [each.name for each in awaited.fields] == [ID.name, NOTE.name, AT.name, EXTRA.name]
    assert not awaited.find_field("extra").required, "an older row may have no value for it"


@pytest.mark.parametrize("setting", ["partition_by", "sort_by"])
def test_a_column_that_is_renamed_between_two_backfills_still_arranges_the_rows(catalog: Catalog, setting: str) -> None:
    def terms(name: str) -> tuple[str | None, str | None]:
        return (name, None) if setting == "partition_by" else (None, name)

    columns = (ID, NOTE, column("renamed", TimestamptzType(), former="at"))
    fit(catalog, target(*terms("at")))
    fit(catalog, backfilled(*terms("at"), ID, NOTE, AT))
    fit(catalog, backfilled(*terms("renamed"), *columns))
    again = replace(backfilled(*terms("renamed"), *columns), owner=Owner(MATERIALIZATION, "shop%2Forders.v2"))
    assert [type(change).__name__ for change in fit(catalog, again)] == ["StartBackfill"]
    assert fit(catalog, again) == []
    table = catalog.load_table(PATH)
    awaited = restrict_to_generation(table, find_generation(table, MATERIALIZATION)).schema()
    assert {each.name: each.field_id for each in awaited.fields} == {"id": 1, NOTE.name: 2, "renamed": 3}


def test_a_backfill_with_terms_that_cannot_be_is_refused(catalog: Catalog) -> None:
    fit(catalog, target("day(at)", "id"))
    before = catalog.load_table(PATH).metadata_location
    with pytest.raises(UserError, match="names 'gone'"):
        fit(catalog, backfilled("gone", None, ID))
    assert catalog.load_table(PATH).metadata_location == before


def test_the_arrangement_may_change_before_a_backfill_has_rows(catalog: Catalog) -> None:
    fit(catalog, target(None))
    fit(catalog, backfilled(None, None, ID, NOTE, AT, EXTRA))
    assert [type(change) for change in fit(catalog, backfilled("id", "at", ID, NOTE, AT, EXTRA))] == [
        SetPartitionSpec,
        SetSortOrder,
    ]
    assert [name for _, name, _, _ in spec(catalog)] == ["id"]
    for terms, name in ((("extra", None), "partitions"), ((None, "extra"), "a sort order")):
        with pytest.raises(UserError) as error:
            fit(catalog, backfilled(*terms, ID, NOTE, AT, EXTRA))
        check_text("apply_errors", f"{name} by a column that comes with a backfill", str(error.value))


@pytest.mark.parametrize("sort_by", [None, "at"])
def test_a_column_that_gets_another_type_is_kept_by_a_sort_order_that_is_not_the_bindings(
    catalog: Catalog, sort_by: str | None
) -> None:
    fit(catalog, target("at" if sort_by else None, "at"))
    refused = target(None, sort_by, (ID, NOTE, column("at", LongType())))
    with pytest.raises(UserError, match="a partition spec of the table" if sort_by else "the sort order of the table"):
        fit(catalog, refused)


def make(catalog: Catalog, spec: PartitionSpec, *, order: SortOrder | None = None) -> Table:
    """Make a table as another engine does."""
    catalog.create_namespace_if_not_exists("shop")
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "at", TimestamptzType()),
        NestedField(3, "a.b/`note`", StringType()),
        NestedField(4, "inner", StructType(NestedField(5, "id", LongType()))),
    )
    return catalog.create_table(PATH, schema, partition_spec=spec, sort_order=order or SortOrder(order_id=0))


BY_DAY: Final = PartitionSpec(PartitionField(2, 1000, DayTransform(), "theirs"))


def test_rows_are_arranged_as_the_table_is_now_whoever_has_arranged_it(catalog: Catalog) -> None:
    order = SortOrder(SortField(3, parse_transform("truncate[2]"), SortDirection.DESC, NullOrder.NULLS_FIRST))
    table = make(catalog, BY_DAY, order=order)
    assert fit(catalog, target(None)) == []
    assert written(catalog) == Arrangement(
        0,
        (model.PartitionField(2, "day"),),
        1,
        (model.SortField(3, "truncate[2]", is_descending=True, nulls_first=True),),
    )
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4))
    assert [field.transform for field in written(catalog).partition] == ["day", "bucket[4]"]


def test_another_name_of_a_partition_field_is_no_other_partition_field(catalog: Catalog) -> None:
    make(catalog, BY_DAY)
    assert fit(catalog, target("days(at)")) == []
    fit(catalog, target("days(at), id"))
    assert spec(catalog) == [(1000, "theirs", "at", "day"), (1001, "id", "id", "identity")]


def test_columns_that_the_binding_does_not_write_partition_rows_and_do_not_sort_them(catalog: Catalog) -> None:
    inner = PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "inner_id"))
    make(catalog, inner, order=SortOrder(SortField(5, IdentityTransform()), SortField(1, IdentityTransform())))
    arrangement = written(catalog, "id")
    assert arrangement.partition == (model.PartitionField(5, "identity"),)
    assert arrangement.sort == (model.SortField(1, "identity", is_descending=False, nulls_first=True),)
    assert arrangement.sort_order_id == 1


def test_rows_of_a_compaction_are_not_said_to_be_sorted_by_a_column_within_another(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """A compaction writes whole structs, and cannot sort by what they hold."""
    table = make(catalog, BY_DAY, order=SortOrder(SortField(5, IdentityTransform()), SortField(1, IdentityTransform())))
    arrangement = find_arrangement(table, {1, 2, 3, 4})
    assert (arrangement.sort_order_id, arrangement.sort) == (0, ())
    assert "rows are not sorted: its sort order has the transform identity of column 5" in caplog.text


def replace_in_metadata(catalog: Catalog, old: str, new: str) -> None:
    file = Path(catalog.load_table(PATH).metadata_location.removeprefix("file://"))
    text = file.read_text()
    assert old in text
    json.loads(changed := text.replace(old, new))
    file.write_text(changed)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("a transform of the future", '"transform":"day"', '"transform":"moon_phase"'),
        ("a transform of another type", '"transform":"day"', '"transform":"truncate[4]"'),
        ("a partition field without its column", '"source-id":2,"field-id"', '"source-id":9,"field-id"'),
    ],
)
def test_a_table_is_refused_if_its_partition_values_cannot_be_made(
    catalog: Catalog, name: str, old: str, new: str
) -> None:
    make(catalog, BY_DAY)
    replace_in_metadata(catalog, old, new)
    with pytest.raises(UserError) as found:
        find(catalog, PATH)
    with pytest.raises(UserError) as bound:
        written(catalog)
    assert str(found.value) == str(bound.value)
    check_text("session_errors", name, str(bound.value))


@pytest.mark.parametrize("new", ['"transform":"moon_phase"', '"transform":"day"'])
def test_rows_are_not_sorted_if_the_order_cannot_be_made(
    catalog: Catalog, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(catalog, PartitionSpec(), order=SortOrder(SortField(1, IdentityTransform())))
    replace_in_metadata(catalog, '"transform":"identity"', new)
    assert written(catalog) == Arrangement(0, (), 0, ())
    [record] = caplog.record_tuples
    assert record[1] == logging.WARNING
    assert "table shop.orders: rows are not sorted" in record[2]


def test_another_engine_that_partitions_meanwhile_is_noticed(catalog: Catalog) -> None:
    fit(catalog, target(None))
    table = catalog.load_table(PATH)
    with catalog.load_table(PATH).update_spec() as update:
        update.add_field("id", IdentityTransform())
    changes: list[Alteration] = [
        SetPartitionSpec(parse_partition_by("day(at)")),
        SetSortOrder(parse_sort_by("at")),
    ]
    with pytest.raises(CommitFailedException):
        alterer().alter(catalog, table, changes)
    assert [name for _, name, _, _ in spec(catalog)] == ["id"]


def test_rows_get_no_partition_of_a_default_that_they_do_not_have(catalog: Catalog) -> None:
    """Readers take the default for the value of the column. In the partition of null they would not look for it."""
    catalog.create_namespace(PATH.namespace)
    columns = NestedField(1, "id", LongType()), NestedField(2, "theirs", LongType(), initial_default=7)
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "theirs"))
    table = catalog.create_table(PATH, Schema(*columns), partition_spec=spec)
    table.metadata = table.metadata.model_copy(update={"schemas": [Schema(*columns)]})  # PyIceberg drops defaults
    assert find_arrangement(table, {1, 2}).partition == (model.PartitionField(2, "identity"),)
    with pytest.raises(UserError) as error:
        find_arrangement(table, {1})
    check_text("session_errors", "a partition of a default value", str(error.value))
