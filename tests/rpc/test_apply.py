"""Apply creates tables and alters them, and describes each action."""

from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from msgspec import structs
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, UUIDType

from connector.checks.endpoint import OpenedEndpoint
from connector.config.settings import parse
from connector.config.values import ALLOW_EXISTING_TABLES
from connector.host.errors import UserError
from connector.iceberg.bound_table import bind_all
from connector.iceberg.catalog_entries import find_all
from connector.model.binding import RowSettings
from connector.model.table_identifier import Owner
from connector.rpc.apply import perform
from connector.rpc.plan import plan_tables
from connector.rpc.validate import validate
from protocol import request, response
from protocol.flow import WHOLE_RANGE, Exists, Materialization, MaterializationBinding, StringInference, ValidateBinding
from rpc.applied_bindings import NOTE, ORDERS, RETURNS, V0, applied, backfilled, before, planned
from support.bindings import ID, MATERIALIZATION, PATH, collection, local_config, projection
from support.bindings import materialization_binding as binding
from support.plans import meeting
from support.tables.local_tables import foreign_table, local_catalog, record_property, rewrite_here
from support.tables.planted_faults import do_first, plant_always


def test_a_tables_columns_are_renamed_widened_and_set_aside_in_one_commit_that_keeps_every_value(
    tmp_path: Path,
) -> None:
    day = projection("day", "string", string=StringInference("date"))
    bound = collection(ID, projection("qty", "integer"), day)
    path, catalog = ("shop", "orders"), local_catalog(tmp_path)
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "qty", IntegerType(), required=True),
        NestedField(3, "day", UUIDType(), required=True),
    )
    table = foreign_table(catalog, path, schema)
    rows = {"id": [1, 2], "qty": [3, 4], "day": [b"a" * 16, b"b" * 16]}
    table.append(pa.table(rows, schema=table.schema().as_arrow()))
    amount = binding(bound, "qty", "day", field_config={"qty": {"column": "amount"}})

    answer = applied(tmp_path, amount, last=before(binding(bound, "qty", "day")))

    assert answer.action_description.splitlines() == [
        "alter table shop.orders: rename column 'qty' to 'amount'",
        "alter table shop.orders: widen column 'amount' from int to long",
        "alter table shop.orders: keep column 'day' uuid as 'day_before_date', and add column 'day' date",
    ]
    table = catalog.load_table(path)
    assert len(table.metadata.metadata_log) == 2
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "amount": 3, "day_before_date": UUID(bytes=b"a" * 16), "day": None},
        {"id": 2, "amount": 4, "day_before_date": UUID(bytes=b"b" * 16), "day": None},
    ]
    assert applied(tmp_path, amount, last=before(binding(bound, "qty", "day"))) == response.Applied()


def test_what_a_bindings_schema_evolution_forbids_is_said_and_nothing_is_changed(tmp_path: Path) -> None:
    old = binding(ORDERS, "note")
    applied(tmp_path, old)
    metadata = local_catalog(tmp_path).load_table(PATH).metadata_location
    strict = binding(ORDERS, "qty")
    strict.resource_config["schema_evolution"] = "strict"
    with pytest.raises(UserError) as error:
        applied(tmp_path, strict, last=before(old))
    new, gone = str(error.value).splitlines()
    assert new.startswith("table shop.orders: Field 'qty' has no column in the table, and schema_evolution is strict")
    assert gone.startswith("table shop.orders: Column 'note' is NOT NULL")
    assert local_catalog(tmp_path).load_table(PATH).metadata_location == metadata


def columns(warehouse: Path) -> list[tuple[str, bool]]:
    return [(field.name, field.required) for field in local_catalog(warehouse).load_table(PATH).schema().fields]


def test_tables_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """No table is created before the catalog is asked for two."""
    task = Materialization(MATERIALIZATION, config=local_config(tmp_path), bindings=(binding(ORDERS), RETURNS))
    endpoint, resources = parse(task.config, [bound.resource_config for bound in task.bindings])
    with closing(local_catalog(tmp_path)) as catalog:
        plant_always(catalog, do_first(meeting(2).wait), "create_table")
        all_planned = plan_tables(request.Apply(task), resources, endpoint, partial(find_all, catalog, endpoint))
        answer = perform(all_planned, OpenedEndpoint(endpoint, catalog), rewrite_here)
    assert answer.action_description.splitlines() == [
        "create namespace shop",
        "create table shop.orders ('id' long not null)",
        "create table shop.returns ('id' long not null)",
    ]


def test_namespaces_and_tables_are_created_and_every_action_is_described(tmp_path: Path) -> None:
    answer = applied(
        tmp_path,
        binding(ORDERS, "note", document="flow_document", properties={"color": "red"}),
        RETURNS,
    )
    assert answer.action_description.splitlines() == [
        "create namespace shop",
        "create table shop.orders ('id' long not null, 'note' string not null, 'flow_document' string not null)",
        "create table shop.returns ('id' long not null)",
    ]
    assert answer.state is None
    catalog = local_catalog(tmp_path)
    assert catalog.load_table(PATH).properties["color"] == "red"
    assert Owner.of(catalog.load_table(PATH).properties) == Owner(MATERIALIZATION, V0)
    assert catalog.load_table(PATH).location().startswith(f"file://{tmp_path}/shop/orders_")
    assert columns(tmp_path) == [("id", True), ("note", True), ("flow_document", True)]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_applying_again_does_nothing(tmp_path: Path, is_recorded: bool) -> None:
    nullable = projection("qty", "integer", exists=Exists.MAY)
    bound = binding(collection(ID, NOTE, nullable), "note", "qty")
    applied(tmp_path, bound)
    metadata = local_catalog(tmp_path).load_table(PATH).metadata_location
    assert applied(tmp_path, bound, last=before(bound) if is_recorded else None) == response.Applied()
    assert local_catalog(tmp_path).load_table(PATH).metadata_location == metadata


def test_a_property_that_changes_in_the_config_or_in_the_table_is_set(tmp_path: Path) -> None:
    old, new = (binding(ORDERS, properties={"color": color, "shape": "round"}) for color in ("red", "blue"))
    applied(tmp_path, old)
    catalog = local_catalog(tmp_path)
    answer = applied(tmp_path, new, last=before(old))
    assert answer.action_description == "alter table shop.orders: set table property color = 'blue' (was 'red')"
    table = catalog.load_table(PATH)
    assert table.properties["color"] == "blue"
    assert len(table.metadata.metadata_log) == 1
    assert applied(tmp_path, new, last=before(new)) == response.Applied()

    record_property(table, "shape", "square")
    said = planned(tmp_path, new, last=before(new), state=None)
    assert "set table property shape = 'round' (was 'square')" in said
    assert applied(tmp_path, new, last=before(new)).action_description in said
    assert catalog.load_table(PATH).properties["shape"] == "round"


def test_a_property_that_the_config_no_longer_names_stays(tmp_path: Path) -> None:
    old = binding(ORDERS, properties={"color": "red"})
    applied(tmp_path, old)
    assert applied(tmp_path, binding(ORDERS), last=before(old)) == response.Applied()
    assert local_catalog(tmp_path).load_table(PATH).properties["color"] == "red"


def test_properties_and_columns_are_one_commit(tmp_path: Path) -> None:
    old, new = binding(ORDERS), binding(ORDERS, "note", properties={"color": "red"})
    applied(tmp_path, old)
    answer = applied(tmp_path, new, last=before(old))
    assert answer.action_description.splitlines() == [
        "alter table shop.orders: add column 'note' string",
        "alter table shop.orders: set table property color = 'red'",
    ]
    table = local_catalog(tmp_path).load_table(PATH)
    assert table.properties["color"] == "red"
    assert len(table.metadata.metadata_log) == 1


def test_properties_change_while_a_table_awaits_the_rows_of_its_backfill(tmp_path: Path) -> None:
    applied(tmp_path, binding(ORDERS))
    backfilled(tmp_path)
    old, new = binding(ORDERS, backfill=1), binding(ORDERS, backfill=1, properties={"color": "red"})
    answer = applied(tmp_path, new, last=before(old))
    assert answer.action_description == "alter table shop.orders: set table property color = 'red'"
    assert local_catalog(tmp_path).load_table(PATH).properties["color"] == "red"


@pytest.mark.parametrize("setting", ["partition_by", "sort_by"])
def test_a_column_that_comes_with_the_rows_of_a_backfill_arranges_no_rows_before_and_validate_says_so(
    tmp_path: Path, setting: str
) -> None:
    def arrange(backfill: int) -> MaterializationBinding:
        made = binding(ORDERS, "note", backfill=backfill)
        return structs.replace(made, resource_config={**made.resource_config, setting: "note"})

    def validated(bound: MaterializationBinding) -> None:
        proposed = ValidateBinding(bound.resource_config, ORDERS, backfill=bound.backfill)
        config = local_config(tmp_path)
        validate(request.Validate(MATERIALIZATION, config=config, bindings=(proposed,), last_materialization=last))

    applied(tmp_path, binding(ORDERS))
    applied(tmp_path, binding(ORDERS, "note", backfill=1), last=before(binding(ORDERS)))
    last = before(binding(ORDERS, "note", backfill=1))
    refusal = f"{setting} names 'note', which the table gets with the first rows of its backfill"
    with pytest.raises(UserError, match=refusal):
        validated(arrange(backfill=1))
    with pytest.raises(UserError, match=refusal):
        applied(tmp_path, arrange(backfill=1), RETURNS, last=last)
    assert not local_catalog(tmp_path).table_exists(RETURNS.resource_path), "all tables are planned first"
    validated(arrange(backfill=2))
    assert "note" in applied(tmp_path, arrange(backfill=2), RETURNS, last=last).action_description


def test_a_backfill_sets_the_properties_but_not_the_format_version_as_one(tmp_path: Path) -> None:
    applied(tmp_path, binding(ORDERS))
    new = binding(ORDERS, backfill=1, properties={"color": "red", "format-version": "2"})
    applied(tmp_path, new, last=before(binding(ORDERS)))
    properties = local_catalog(tmp_path).load_table(PATH).properties
    assert properties["color"] == "red"
    assert "format-version" not in properties


@pytest.mark.parametrize("version", [2, 3])
def test_the_format_version_among_the_properties_is_that_of_a_new_table(tmp_path: Path, version: int) -> None:
    applied(tmp_path, binding(ORDERS, properties={"format-version": str(version)}))
    assert local_catalog(tmp_path).load_table(PATH).metadata.format_version == version


def test_new_columns_have_the_case_of_the_setting_and_existing_ones_keep_theirs(tmp_path: Path) -> None:
    fields = [projection(name, "string", exists=Exists.MAY) for name in ("firstName", "lastName", "midName", "Named")]
    bound = collection(ID, *fields)
    old = binding(bound, "firstName")
    applied(tmp_path, old)
    new = binding(bound, "firstName", "lastName", "Named", field_config={"Named": {"column": "asWritten"}})
    answer = applied(tmp_path, new, last=before(old), field_name_case="lowercase")
    assert answer.action_description.splitlines() == [
        "alter table shop.orders: add column 'lastname' string",
        "alter table shop.orders: add column 'asWritten' string",
    ]
    wider = binding(bound, "firstName", "lastName", "midName", "Named", field_config={"Named": {"column": "asWritten"}})
    answer = applied(tmp_path, wider, last=before(new), field_name_case="uppercase")
    assert answer.action_description == "alter table shop.orders: add column 'MIDNAME' string"
    names = ["id", "firstName", "lastname", "asWritten", "MIDNAME"]
    assert [name for name, _ in columns(tmp_path)] == names

    [opened] = bind_all(local_catalog(tmp_path), before(wider), WHOLE_RANGE.key_range, [RowSettings()])
    assert {column.field: column.name for column in opened.binding.columns} == {
        "id": "id",
        "firstName": "firstName",
        "lastName": "lastname",
        "midName": "MIDNAME",
        "Named": "asWritten",
    }


def test_a_backfill_gives_all_columns_the_case_of_the_setting(tmp_path: Path) -> None:
    bound = collection(ID, projection("firstName", "string"))
    old, new = binding(bound, "firstName"), binding(bound, "firstName", backfill=1)
    applied(tmp_path, old)
    answer = applied(tmp_path, new, last=before(old), field_name_case="lowercase")
    assert "'firstname' string not null" in answer.action_description


def test_newly_selected_fields_get_columns_and_what_lost_its_place_becomes_optional(tmp_path: Path) -> None:
    old, new = binding(ORDERS, "note"), binding(ORDERS, "qty")
    applied(tmp_path, old)
    answer = applied(tmp_path, new, last=before(old))
    assert answer.action_description.splitlines() == [
        "alter table shop.orders: add column 'qty' long",
        "alter table shop.orders: drop not null of column 'note'",
    ]
    assert columns(tmp_path) == [("id", True), ("note", False), ("qty", False)]


def test_a_field_that_may_be_missing_from_now_on_has_its_column_made_optional(tmp_path: Path) -> None:
    old = binding(ORDERS, "note")
    applied(tmp_path, old)
    relaxed = collection(ID, projection("note", "string", exists=Exists.MAY))
    applied(tmp_path, binding(relaxed, "note"), last=before(old))
    assert columns(tmp_path) == [("id", True), ("note", False)]


def test_tables_of_bindings_that_went_away_are_left_alone(tmp_path: Path) -> None:
    old = binding(ORDERS, "note")
    applied(tmp_path, old)
    assert applied(tmp_path, last=before(old)) == response.Applied()
    assert columns(tmp_path) == [("id", True), ("note", True)]


def test_a_binding_may_name_its_collection_by_its_index(tmp_path: Path) -> None:
    by_index = MaterializationBinding(
        {"table": "orders"}, PATH, collection_index=1, field_selection=binding(ORDERS).field_selection, state_key=V0
    )
    applied(tmp_path, by_index, linked=(collection(), ORDERS))
    assert columns(tmp_path) == [("id", True)]


def test_one_bindings_error_leaves_every_table_alone_and_all_errors_are_said(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, ("shop", "one"), properties={"format-version": "1"})
    foreign_table(catalog, ("shop", "incompatible"))
    text = collection(projection("id", "string"))
    bindings = binding(ORDERS), binding(ORDERS, table="one"), binding(text, table="incompatible")
    with pytest.raises(UserError) as error:
        applied(tmp_path, *bindings, feature_flags=ALLOW_EXISTING_TABLES)
    first, incompatible = str(error.value).splitlines()
    assert "format version 1" in first
    assert "Field 'id' has a column of type long" in incompatible
    assert not catalog.table_exists(PATH)
