from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DoubleType, IcebergType, LongType, NestedField, StringType, StructType

from connector.config.terms import parse_partition_by
from connector.evolution.arrangement_changes import SetPartitionSpec
from connector.evolution.arrangement_terms import ArrangementTerms, Source, find_source
from connector.evolution.binding_settings import BindingSettings, IdentifierFields
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.evolution.field_config import MAX_NAME
from connector.evolution.plan_changes import MAX_DOC, find_last_bindings, plan_changes, plan_columns
from connector.evolution.property_changes import DEFAULT_PROPERTIES, find_refused_defaults
from connector.evolution.table_change import (
    AddColumn,
    CreateNamespace,
    CreateTable,
    DropTable,
    MakeOptional,
    StartBackfill,
    TableChange,
    describe_change,
)
from connector.evolution.target import NewColumn, Target
from connector.host.errors import UserError
from connector.model.table_identifier import OWNER_PROPERTY, Generation, Owner
from protocol.flow import Collection, Exists, FieldSelection, Json, Materialization, StringInference
from protocol.protocol_error import ProtocolError
from support.bindings import (
    DOCUMENT,
    ID,
    MATERIALIZATION,
    PATH,
    collection,
    materialization_binding,
    projection,
)

LONG = LongType()
V0, V1 = Owner(MATERIALIZATION, "shop%2Forders.v0"), Owner(MATERIALIZATION, "shop%2Forders.v1")
ID_COLUMN = NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True)
QTY = NewColumn("qty", "qty", LongType(), required=True, doc="", is_indispensable=False)
NOTE = NewColumn("note", "note", StringType(), required=False, doc="", is_indispensable=False)


def target(
    *wanted: NewColumn, owner: Owner = V0, replaces: bool = False, properties: dict[str, str] | None = None
) -> Target:
    return Target(PATH, owner, wanted, properties or {}, replaces)


def field(number: int, name: str, type_: IcebergType = LONG, *, required: bool = True) -> NestedField:
    return NestedField(number, name, type_, required=required)


def table(
    *fields: NestedField,
    owner: Owner | None = V0,
    identifiers: tuple[int, ...] = (),
    pinned: Mapping[int, str] = MappingProxyType({}),
) -> CatalogEntry:
    schema = Schema(*fields, identifier_field_ids=list(identifiers))
    return CatalogEntry(True, ExistingTable(schema, "uuid-1", owner, pinned))


def selected(bound: Collection, *values: str, document: str = "", **field_config: Json) -> tuple[NewColumn, ...]:
    return plan_columns(bound, FieldSelection(("id",), values, document, field_config))


def test_columns_are_in_the_order_keys_values_document() -> None:
    bound = collection(DOCUMENT, projection("b", "boolean"), projection("a", "number"), ID)
    assert [column.name for column in selected(bound, "b", "a", document="flow_document")] == [
        "id",
        "b",
        "a",
        "flow_document",
    ]


def test_a_columns_doc_is_its_locations_title_and_description_on_one_line() -> None:
    (_, column) = selected(
        collection(ID, projection("a", "string", title="An a", description="which is\n  rather long")), "a"
    )
    assert column.doc == "An a: which is rather long"
    (_, longer) = selected(collection(ID, projection("a", "string", description="x" * 999)), "a")
    assert len(longer.doc) == MAX_DOC
    (_, control) = selected(collection(ID, projection("a", "string", description="An\x01 a\x1b\x00b\x07")), "a")
    assert control.doc == "An a b", "AWS Glue refuses these in comments"


def test_field_config_and_key_decide_on_a_columns_type() -> None:
    number = StringInference("integer")
    bound = collection(projection("id", "string", string=number), projection("n", "string", string=number), DOCUMENT)
    assert [column.type for column in selected(bound, "n")] == [StringType(), LongType()]
    assert [column.type for column in selected(bound, "n", n={"ignoreStringFormat": True})] == [StringType()] * 2


def test_a_column_is_required_only_where_its_location_is_never_null() -> None:
    bound = collection(ID, projection("qty", "integer"), projection("note", "string", exists=Exists.MAY))
    assert [column.required for column in selected(bound, "qty", "note")] == [True, True, False]


def test_a_selected_field_without_a_type_is_refused() -> None:
    with pytest.raises(UserError, match="'nothing'"):
        selected(collection(ID, projection("nothing", "null")), "nothing")


@pytest.mark.parametrize(("length", "is_accepted"), [(MAX_NAME, True), (MAX_NAME + 1, False)])
def test_the_name_of_a_column_has_a_limit(length: int, is_accepted: bool) -> None:
    name = "n" * length
    with nullcontext() if is_accepted else pytest.raises(UserError, match="a column's name has 1 to 255 characters"):
        assert [column.name for column in selected(collection(ID, projection(name, "string")), name)] == ["id", name]


def test_fields_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(UserError, match="'ID'"):
        selected(collection(ID, projection("ID", "string")), "ID")


def test_a_selected_field_that_the_collection_lacks_is_the_runtimes_fault() -> None:
    with pytest.raises(ProtocolError, match="'gone'"):
        selected(collection(ID), "gone")


def test_only_defaults_that_a_refusal_names_are_left_out_and_none_that_commits_need() -> None:
    codec, own = "write.parquet.compression-codec", "flow.compaction.enabled"
    words = f"Table properties contain prohibited keys: {own}, {codec}. write.parquet is Databricks' own"
    assert find_refused_defaults(DEFAULT_PROPERTIES, words) == {codec}


def test_a_missing_table_is_created_with_its_owner_and_properties() -> None:
    [change] = plan_changes(CatalogEntry(True, None), target(ID_COLUMN, NOTE, properties={"color": "red"}))
    assert isinstance(change, CreateTable)
    assert change.columns == (ID_COLUMN, NOTE)
    assert change.properties == {"color": "red", OWNER_PROPERTY: V0.encode()}
    assert change.defaults == DEFAULT_PROPERTIES
    assert describe_change(change, PATH) == "create table shop.orders ('id' long not null, 'note' string)"


def test_a_users_properties_win_over_the_defaults_but_not_over_the_owner() -> None:
    properties = {"write.parquet.compression-codec": "snappy", OWNER_PROPERTY: "me"}
    [change] = plan_changes(CatalogEntry(True, None), target(ID_COLUMN, properties=properties))
    assert isinstance(change, CreateTable)
    assert change.properties["write.parquet.compression-codec"] == "snappy"
    assert Owner.of(change.properties) == V0


def test_a_missing_namespace_is_created_before_its_table() -> None:
    first, second = plan_changes(CatalogEntry(False, None), target(ID_COLUMN))
    assert first == CreateNamespace("shop")
    assert isinstance(second, CreateTable)


def test_a_table_that_fits_needs_nothing() -> None:
    assert plan_changes(table(field(1, "ID"), field(2, "qty")), target(ID_COLUMN, QTY)) == []


def test_a_new_column_is_optional_even_where_the_field_is_required() -> None:
    [change] = plan_changes(table(field(1, "id")), target(ID_COLUMN, QTY))
    assert change == AddColumn(NewColumn("qty", "qty", LongType(), required=False, doc="", is_indispensable=False))
    assert describe_change(change, PATH) == "alter table shop.orders: add column 'qty' long"


def test_a_column_becomes_optional_when_its_field_does_or_is_no_longer_selected() -> None:
    found = table(field(1, "id"), field(2, "Note", StringType()), field(3, "gone"), field(4, "qty", required=False))
    assert plan_changes(found, target(ID_COLUMN, NOTE, QTY)) == [MakeOptional("Note"), MakeOptional("gone")]


def test_of_two_columns_that_differ_in_case_the_field_keeps_the_one_of_its_very_name() -> None:
    found = table(field(1, "QTY", StringType()), field(2, "qty"), field(3, "Qty", StringType()), field(4, "id"))
    assert plan_changes(found, target(ID_COLUMN, QTY)) == [MakeOptional("QTY"), MakeOptional("Qty")]


def test_all_incompatible_fields_are_refused_at_once() -> None:
    found = table(field(1, "id", DateType()), field(2, "note"), field(3, "qty"), pinned={2: "a partition spec"})
    with pytest.raises(UserError) as error:
        plan_changes(found, target(ID_COLUMN, NOTE, QTY))
    first, second = str(error.value).splitlines()
    assert first.startswith("table shop.orders: Field 'id' has a column of type date")
    assert second.startswith("table shop.orders: Field 'note' has a column of type long")


def test_an_identifier_field_cannot_become_optional() -> None:
    found = table(field(1, "id"), field(2, "note", StringType()), identifiers=(2,))
    with pytest.raises(UserError, match=r"'note'.*DROP IDENTIFIER FIELDS"):
        plan_changes(found, target(ID_COLUMN, NOTE))


def test_a_struct_with_an_identifier_field_cannot_become_optional() -> None:
    found = table(field(1, "id"), field(2, "place", StructType(field(3, "shelf"))), identifiers=(3,))
    with pytest.raises(UserError, match=r"'place\.shelf'.*DROP IDENTIFIER FIELDS"):
        plan_changes(found, target(ID_COLUMN))


def test_an_identifier_field_that_stays_required_is_left_alone() -> None:
    assert plan_changes(table(field(1, "id"), identifiers=(1,)), target(ID_COLUMN)) == []


def test_a_backfill_replaces_the_table_whatever_its_columns() -> None:
    wanted = target(ID_COLUMN, owner=V1, replaces=True)
    found = table(field(1, "id", StringType()))
    assert plan_changes(found, wanted) == [StartBackfill(wanted, Generation("uuid-1"), Schema())]


def test_a_backfill_replaces_a_table_that_nobody_signed() -> None:
    wanted = target(ID_COLUMN, owner=V1, replaces=True)
    found = table(field(1, "id"), owner=None)
    assert plan_changes(found, wanted) == [StartBackfill(wanted, Generation("uuid-1"), Schema())]


@pytest.mark.parametrize(
    ("owner", "has_rows", "is_said"), [(None, True, True), (None, False, False), (V0, True, False)]
)
def test_a_backfill_says_that_it_replaces_rows_from_before_the_task(
    owner: Owner | None, has_rows: bool, is_said: bool
) -> None:
    found = table(field(1, "id"), owner=owner)
    assert found.table
    found = replace(found, table=replace(found.table, has_rows=has_rows))
    [change] = plan_changes(found, target(ID_COLUMN, owner=V1, replaces=True))
    assert ("its rows, also those from before the task, stay until" in describe_change(change, PATH)) is is_said


@pytest.mark.parametrize(("fixed", "is_dropped"), [((LONG,), False), ((StringType(), LONG), True)])
def test_a_backfill_drops_a_table_whose_catalog_refuses_the_types(
    fixed: tuple[IcebergType, ...], is_dropped: bool
) -> None:
    found = table(field(1, "id"))
    assert found.table
    found = replace(found, table=replace(found.table, fixed_types=fixed))
    changes = plan_changes(found, target(ID_COLUMN, QTY, owner=V1, replaces=True))
    assert [type(change) for change in changes] == ([DropTable, CreateTable] if is_dropped else [StartBackfill])
    if is_dropped:
        assert describe_change(changes[0], PATH) == (
            "drop table shop.orders with uuid uuid-1 for a backfill, because its catalog refuses columns of other "
            "types in their places; its files stay"
        )


@pytest.mark.parametrize(("kept", "is_dropped"), [({"region": 3}, True), ({"gone": 2}, False), ({}, False)])
def test_a_backfill_drops_a_table_whose_catalog_refuses_the_types_of_columns_that_stay(
    kept: dict[str, int], is_dropped: bool
) -> None:
    """`region` would get the place of `gone`."""
    found = table(field(1, "id"), field(2, "gone"), field(3, "region", StringType()))
    assert found.table
    fixed = (LONG, LONG, StringType())
    found = replace(found, table=replace(found.table, fixed_types=fixed, partition_fields=kept))
    changes = plan_changes(found, target(ID_COLUMN, owner=V1, replaces=True))
    assert [type(change) for change in changes] == ([DropTable, CreateTable] if is_dropped else [StartBackfill])


@pytest.mark.parametrize(
    ("partition_fields", "is_dropped"),
    [({}, False), ({"note": 2}, True), ({"qty": 1}, True), ({"id": 1, "note_bucket": 2}, False)],
    ids=["none", "of a column that gets another type", "of another column than the new one", "that stay"],
)
def test_a_backfill_drops_a_table_whose_partition_fields_have_the_names_of_new_columns(
    partition_fields: dict[str, int], is_dropped: bool
) -> None:
    found = table(field(1, "id"), field(2, "note", required=False))
    assert found.table
    found = replace(found, table=replace(found.table, partition_fields=partition_fields))
    changes = plan_changes(found, target(ID_COLUMN, QTY, NOTE, owner=V1, replaces=True))
    assert [type(change) for change in changes] == ([DropTable, CreateTable] if is_dropped else [StartBackfill])
    if is_dropped:
        assert describe_change(changes[0], PATH) == (
            "drop table shop.orders with uuid uuid-1 for a backfill, because one of its partition fields has the name "
            "of a column that is new or gets another type; its files stay"
        )


@pytest.mark.parametrize(
    ("existing", "wanted", "always_drops", "reason"),
    [
        (2, 3, False, "its format version is lower than the one that the config names"),
        (2, 3, True, "the feature flag always_drop_tables_on_backfill is on"),
        (2, 2, True, "the feature flag always_drop_tables_on_backfill is on"),
        (3, 3, False, ""),
        (3, 2, False, ""),
    ],
)
def test_a_backfill_drops_a_table_of_a_lower_format_version_or_if_a_feature_flag_says_so(
    existing: int, wanted: int, always_drops: bool, reason: str
) -> None:
    found = table(field(1, "id"))
    assert found.table
    found = replace(found, table=replace(found.table, format_version=existing))
    orders = replace(target(ID_COLUMN), format_version=wanted, always_drops=always_drops)
    changes = plan_changes(found, replace(orders, owner=V1, replaces=True))
    assert [type(change) for change in changes] == ([DropTable, CreateTable] if reason else [StartBackfill])
    if reason:
        assert describe_change(changes[0], PATH) == (
            f"drop table shop.orders with uuid uuid-1 for a backfill, because {reason}; its files stay"
        )
        assert isinstance(changes[1], CreateTable)
        assert changes[1].format_version == wanted
    assert plan_changes(found, orders) == [], "without a backfill, the table stays"


@pytest.mark.parametrize(
    ("terms", "schema_id", "changes"),
    [
        ("id", None, [SetPartitionSpec, StartBackfill]),
        ("id", 3, [DropTable, CreateTable]),  # the columns that its catalog knows are not those of the last backfill
        (None, 3, [StartBackfill]),
        ("qty", None, [DropTable, CreateTable]),  # whose column is new
    ],
)
def test_a_backfill_drops_a_table_whose_catalog_does_not_know_the_columns_of_its_partitions(
    terms: str | None, schema_id: int | None, changes: list[type[TableChange]]
) -> None:
    found = table(field(1, "id"))
    assert found.table
    generation = Generation("g", (), MATERIALIZATION, schema_id)
    found = replace(found, table=replace(found.table, generation=generation))
    by = None if terms is None else parse_partition_by(terms)
    wanted = replace(
        target(ID_COLUMN, QTY, owner=V1, replaces=True), settings=BindingSettings(arrangement=ArrangementTerms(by))
    )
    assert [type(change) for change in plan_changes(found, wanted)] == changes


def test_a_generation_that_another_task_has_recorded_is_not_that_of_the_task() -> None:
    found = table(field(1, "id"), owner=None).table
    assert found
    recorded = Generation("g", ("uuid-1",), "acme/another")
    assert replace(found, generation=recorded).generation_of("acme/another") == recorded
    assert replace(found, generation=recorded).generation_of(MATERIALIZATION) == Generation("uuid-1")


def test_a_term_names_a_field_before_the_column_of_another_one() -> None:
    exchanged = Source("a", "b"), Source("b", "a")
    for sources in exchanged, exchanged[::-1]:
        found = find_source("a", sources)
        assert found
        assert found.field == "a"


def test_a_table_that_was_replaced_already_is_not_replaced_again() -> None:
    assert plan_changes(table(field(1, "id"), owner=V1), target(ID_COLUMN, owner=V1, replaces=True)) == []


def test_a_backfill_between_drop_and_creation_creates_the_table() -> None:
    [change] = plan_changes(CatalogEntry(True, None), target(ID_COLUMN, owner=V1, replaces=True))
    assert isinstance(change, CreateTable)


def test_a_backfill_never_drops_another_materializations_table() -> None:
    other = Owner("acme/other", "shop%2Forders.v0")
    with pytest.raises(UserError, match="acme/other"):
        plan_changes(table(field(1, "id"), owner=other), target(ID_COLUMN, owner=V1, replaces=True))


def test_without_a_backfill_an_older_owner_does_not_cost_the_table() -> None:
    assert plan_changes(table(field(1, "id"), owner=V0), target(ID_COLUMN, owner=V1)) == []


@pytest.mark.parametrize("recorded", ["", "no JSON", "1", "{}", '{"materialization": "acme"}'])
def test_an_owner_that_cannot_be_read_is_none(recorded: str) -> None:
    assert Owner.of({OWNER_PROPERTY: recorded}) is None
    assert Owner.of({}) is None


def test_an_owner_is_read_as_it_was_written() -> None:
    assert Owner.of({OWNER_PROPERTY: V0.encode()}) == V0


def test_a_disabled_binding_counts_as_the_last_one_unless_an_active_one_has_its_path() -> None:
    bound = collection(ID)
    disabled, active = (materialization_binding(bound, table="a", backfill=backfill) for backfill in (1, 2))
    other = materialization_binding(bound, table="b", backfill=3)
    last = Materialization(bindings=(active,), inactive_bindings=(disabled, other))
    assert find_last_bindings(last) == {("shop", "a"): active, ("shop", "b"): other}
    assert find_last_bindings(None) == {}


KEY = replace(ID_COLUMN, is_key=True)


@pytest.mark.parametrize(
    ("columns", "identifier"),
    [
        ((KEY, replace(QTY, is_key=True)), ("id", "qty")),
        ((KEY, replace(NOTE, is_key=True)), ()),
        ((KEY, replace(QTY, is_key=True, type=DoubleType())), ()),
        ((ID_COLUMN, replace(QTY, is_key=True)), ("qty",)),  # the binding groups by qty
    ],
)
def test_the_whole_key_identifies_a_row_or_nothing_does(
    columns: tuple[NewColumn, ...], identifier: tuple[str, ...]
) -> None:
    wanted = replace(target(*columns), settings=BindingSettings(identifier_fields=IdentifierFields.KEY))
    [created] = plan_changes(CatalogEntry(True, None), wanted)
    [backfilled] = plan_changes(table(field(1, "id")), replace(wanted, owner=V1, replaces=True))
    assert isinstance(created, CreateTable)
    assert isinstance(backfilled, StartBackfill)
    assert created.identifier == backfilled.target.identifier == identifier


def test_only_the_selected_keys_are_the_key() -> None:
    bound = collection(ID, projection("region", "string"), DOCUMENT)
    columns = plan_columns(bound, FieldSelection(("region",), ("id",), "flow_document"))
    assert [column.name for column in columns if column.is_key] == ["region"]
