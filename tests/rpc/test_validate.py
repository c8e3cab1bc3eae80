"""What validate answers for each binding."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from connector.host.errors import UserError
from connector.host.logs import MOST_NAMES
from connector.model.table_identifier import OWNER_PROPERTY, Owner
from connector.rpc.validate import validate
from protocol import request, response
from protocol.flow import (
    Collection,
    ConstraintType,
    FieldSelection,
    Json,
    Materialization,
    MaterializationBinding,
    ValidateBinding,
)
from support.bindings import DOCUMENT, ID, MATERIALIZATION, PATH, collection, local_config, projection
from support.snapshots import check_text
from support.tables.local_tables import ID_ONLY, foreign_table, local_catalog, turn_tables_into_views

ORDERS = collection(ID, DOCUMENT, projection("note", "string"))
TEXT_ID = Schema(NestedField(1, "id", StringType(), required=True))


def binding(bound: Collection = ORDERS, backfill: int = 0, **resource_config: Json) -> ValidateBinding:
    return ValidateBinding({"table": "orders", **resource_config}, bound, backfill=backfill)


def last(backfill: int = 0, *, active: bool = True, delta_updates: bool = True) -> Materialization:
    bindings = (MaterializationBinding(resource_path=PATH, delta_updates=delta_updates, backfill=backfill),)
    return Materialization(bindings=bindings) if active else Materialization(inactive_bindings=bindings)


def validated(
    warehouse: Path, *bindings: ValidateBinding, last: Materialization | None = None, **advanced: Json
) -> tuple[response.ValidatedBinding, ...]:
    config = local_config(warehouse, **advanced)
    return validate(
        request.Validate(MATERIALIZATION, config=config, bindings=bindings, last_materialization=last)
    ).bindings


def refused(
    warehouse: Path, *bindings: ValidateBinding, last: Materialization | None = None, **advanced: Json
) -> list[str]:
    with pytest.raises(UserError) as error:
        validated(warehouse, *bindings, last=last, **advanced)
    return str(error.value).splitlines()


def constraint_types(answer: response.ValidatedBinding, field: str) -> list[ConstraintType]:
    return [each.constraint.type for each in answer.projection_constraints if each.field == field]


def test_every_binding_is_answered_in_order_with_both_forms_of_its_constraints(tmp_path: Path) -> None:
    orders, returns = validated(tmp_path, binding(), binding(table="Returns", namespace="Other"))
    assert orders.resource_path == PATH
    assert returns.resource_path == ("other", "returns")
    assert orders.delta_updates
    assert orders.case_insensitive_fields
    assert [each.field for each in orders.projection_constraints] == ["id", "flow_document", "note"]
    assert orders.constraints == {each.field: each.constraint for each in orders.projection_constraints}


def test_a_binding_may_name_its_collection_by_its_index(tmp_path: Path) -> None:
    linked = (collection(name="acme/other"), ORDERS)
    by_index = ValidateBinding({"table": "orders"}, collection_index=1)
    message = request.Validate(
        MATERIALIZATION, config=local_config(tmp_path), bindings=(by_index,), linked_collections=linked
    )
    assert validate(message).bindings == validated(tmp_path, binding())


def test_nothing_is_created_by_validating(tmp_path: Path) -> None:
    validated(tmp_path, binding())
    assert local_catalog(tmp_path).list_namespaces() == []


def test_a_config_that_is_wrong_is_refused_before_a_catalog_is_opened(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    lines = refused(warehouse, ValidateBinding({"tabel": "orders"}, ORDERS), feature_flags="no_such_flag")
    assert [line.split(":")[0] for line in lines] == [
        "/advanced/feature_flags",
        "bindings[0] /table",
        "bindings[0] /tabel",
    ]
    assert not warehouse.exists()


def test_two_bindings_of_one_table_are_refused_by_both_their_names(tmp_path: Path) -> None:
    other = msgspec.structs.replace(ORDERS, name="acme/returns")
    [line] = refused(tmp_path, binding(), binding(other, table="ORDERS"))
    assert "bindings[0] (acme/orders) and bindings[1] (acme/returns)" in line
    assert "shop.orders" in line


def test_standard_updates_need_the_keys_and_the_root_document(tmp_path: Path) -> None:
    standard, delta = validated(tmp_path, binding(delta_updates=False), binding(table="returns"))
    assert not standard.delta_updates
    assert constraint_types(standard, "id") == constraint_types(delta, "id") == [ConstraintType.LOCATION_REQUIRED]
    assert constraint_types(standard, "flow_document") == [ConstraintType.LOCATION_REQUIRED]
    assert constraint_types(delta, "flow_document") == [ConstraintType.LOCATION_RECOMMENDED]


@pytest.mark.parametrize(("before", "backfill"), [(False, 0), (False, 1), (True, 1)])
def test_standard_updates_go_on_or_begin_with_a_backfill(tmp_path: Path, before: bool, backfill: int) -> None:
    foreign_table(local_catalog(tmp_path), PATH)
    [answer] = validated(tmp_path, binding(backfill=backfill, delta_updates=False), last=last(delta_updates=before))
    assert not answer.delta_updates


@pytest.mark.parametrize(("backfill", "flags"), [(0, ""), (1, "retain_existing_data_on_backfill")])
def test_a_table_of_delta_updates_cannot_go_on_with_standard_updates(tmp_path: Path, backfill: int, flags: str) -> None:
    foreign_table(local_catalog(tmp_path), PATH)
    [line] = refused(tmp_path, binding(backfill=backfill, delta_updates=False), feature_flags=flags, last=last())
    assert "may have several rows for a key" in line
    assert ("Remove the feature flag" in line) == bool(flags)


def test_a_table_of_standard_updates_goes_on_with_delta_updates(tmp_path: Path) -> None:
    foreign_table(local_catalog(tmp_path), PATH)
    [answer] = validated(tmp_path, binding(), last=last(delta_updates=False))
    assert answer == validated(tmp_path, binding(), last=last())[0]
    assert answer.delta_updates


def test_a_key_without_a_projection_is_refused(tmp_path: Path) -> None:
    [line] = refused(tmp_path, binding(msgspec.structs.replace(ORDERS, key=("/id", "/region"))))
    check_text("validate_errors", "a key without a projection", line)


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    nullable = collection(projection("id", "integer", "null"), name="acme/nullable")
    lines = refused(
        tmp_path, binding(delta_updates=False), binding(nullable, table="b"), binding(nullable, table="c"), last=last()
    )
    assert [line.split(":")[0] for line in lines] == [
        "bindings[0] (acme/orders)",
        "bindings[1] (acme/nullable)",
        "bindings[2] (acme/nullable)",
    ]


@pytest.mark.parametrize(
    "name",
    ["flow.owner", "flow.fence.0123456789abcdef.00000000-ffffffff", "metadata_location", "uuid"],
)
def test_a_table_property_that_would_break_the_connector_is_refused(tmp_path: Path, name: str) -> None:
    [line] = refused(tmp_path, binding(additional_table_properties={name: "3"}))
    assert repr(name) in line


@pytest.mark.parametrize(("named", "version"), [("3", 2), ("2", 3), ("1", None), ("4", None), ("three", None)])
def test_a_format_version_among_the_properties_that_is_not_the_bindings_is_refused(
    tmp_path: Path, named: str, version: int | None
) -> None:
    [line] = refused(tmp_path, binding(format_version=version, additional_table_properties={"format-version": named}))
    assert "'format-version' is not the value of `format_version`" in line


def test_a_property_must_fit_the_others_of_the_table_that_gets_it(tmp_path: Path) -> None:
    level_22, codec = {"write.parquet.compression-level": "22"}, {"write.parquet.compression-codec": "gzip"}
    assert validated(tmp_path, binding(additional_table_properties=level_22))
    foreign_table(local_catalog(tmp_path), PATH, properties=codec)
    [line] = refused(tmp_path, binding(additional_table_properties=level_22), last=last())
    assert "compression-level is 22; with gzip 9 is the most" in line
    assert line.endswith("Correct or remove it in `additional_table_properties` of the binding's config.")
    assert validated(tmp_path, binding(additional_table_properties={"color": "red"}), last=last())


def test_a_property_that_another_engine_has_set_is_to_be_corrected_in_the_table(tmp_path: Path) -> None:
    foreign_table(local_catalog(tmp_path), PATH, properties={"flow.compaction.min-file-size-bytes": "abc"})
    [line] = refused(tmp_path, binding(additional_table_properties={"color": "red"}), last=last())
    assert "flow.compaction.min-file-size-bytes is 'abc'" in line
    assert line.endswith("Correct it in the table (in Spark: ALTER TABLE … SET or UNSET TBLPROPERTIES …).")


def test_a_property_must_fit_those_that_every_new_table_gets(tmp_path: Path) -> None:
    least = {"flow.compaction.min-file-size-bytes": "200000000"}
    [line] = refused(tmp_path, binding(additional_table_properties=least))
    assert "write.target-file-size-bytes, which is 134217728, must be between them" in line
    assert validated(tmp_path, binding(additional_table_properties={**least, "write.target-file-size-bytes": "3" * 9}))


def test_other_table_properties_are_the_users(tmp_path: Path) -> None:
    assert validated(tmp_path, binding(additional_table_properties={"format-version": "2", "color": "red"}))


def test_the_number_of_snapshots_may_be_set(tmp_path: Path) -> None:
    assert validated(tmp_path, binding(additional_table_properties={"flow.expire.max-snapshots-to-keep": "9000"}))


def test_the_thresholds_of_compaction_may_be_set(tmp_path: Path) -> None:
    assert validated(tmp_path, binding(additional_table_properties={"flow.compaction.enabled": "false"}))
    [line] = refused(tmp_path, binding(additional_table_properties={"flow.compaction.min-input-files": "1"}))
    assert "flow.compaction.min-input-files is '1'; it must be a whole number from 2 upwards" in line


@pytest.mark.parametrize(
    ("owner", "maker"),
    [
        (None, "this task did not create it"),
        (Owner("acme/other", "shop%2Forders.v0"), "materialization acme/other created it"),
    ],
)
def test_a_new_binding_does_not_take_somebody_elses_table(tmp_path: Path, owner: Owner | None, maker: str) -> None:
    properties = {OWNER_PROPERTY: owner.encode()} if owner else {}
    foreign_table(local_catalog(tmp_path), PATH, properties=properties)
    [line] = refused(tmp_path, binding())
    assert f"shop.orders exists already, and {maker}" in line
    assert "set `existing_table` to append in the binding's config" in line


FLAG = "allow_existing_tables_for_new_bindings"


@pytest.mark.parametrize(("setting", "flags"), [(None, FLAG), ("append", ""), ("append", FLAG)])
def test_a_new_binding_takes_somebody_elses_table_with_the_setting_or_the_feature_flag(
    tmp_path: Path, setting: Json, flags: str
) -> None:
    foreign_table(local_catalog(tmp_path), PATH)
    [answer] = validated(tmp_path, binding(existing_table=setting), feature_flags=flags)
    assert constraint_types(answer, "id") == [ConstraintType.FIELD_REQUIRED]


def test_an_existing_table_with_capital_letters_can_be_named(tmp_path: Path) -> None:
    foreign_table(local_catalog(tmp_path), ("shop", "Orders"))
    named = (binding(table="Orders", existing_table="append"), binding(table="orders"))
    old, new = validated(tmp_path, *named, table_identifier_case="preserve")
    assert (old.resource_path, new.resource_path) == (("shop", "Orders"), ("shop", "orders"))
    assert constraint_types(old, "id") == [ConstraintType.FIELD_REQUIRED]
    assert constraint_types(new, "id") == [ConstraintType.LOCATION_REQUIRED]


def test_the_setting_is_for_one_binding_and_decides_before_the_feature_flag(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    foreign_table(catalog, ("shop", "returns"))
    [line] = refused(tmp_path, binding(existing_table="append"), binding(table="returns"))
    assert line.startswith("bindings[1] (acme/orders): table shop.returns exists already")
    [line] = refused(tmp_path, binding(existing_table="refuse"), binding(table="returns"), feature_flags=FLAG)
    assert line.startswith("bindings[0] (acme/orders): table shop.orders exists already")


@pytest.mark.parametrize("flags", ["", FLAG])
def test_a_table_that_is_required_must_exist(tmp_path: Path, flags: str) -> None:
    required = binding(existing_table="require")
    [line] = refused(tmp_path, required, feature_flags=flags)
    check_text("validate_errors", "a table that is required does not exist", line)
    foreign_table(local_catalog(tmp_path), PATH)
    [answer] = validated(tmp_path, required, feature_flags=flags)
    assert constraint_types(answer, "id") == [ConstraintType.FIELD_REQUIRED]


def test_a_table_that_is_required_and_has_gone_is_created_by_a_backfill_only(tmp_path: Path) -> None:
    [line] = refused(tmp_path, binding(existing_table="require"), last=last())
    assert "table shop.orders does not exist, and `existing_table` is require" in line
    [answer] = validated(tmp_path, binding(backfill=1, existing_table="require"), last=last())
    assert constraint_types(answer, "id") == [ConstraintType.LOCATION_REQUIRED]


def test_a_table_that_this_materialization_made_is_its_own_even_where_nothing_records_the_binding(
    tmp_path: Path,
) -> None:
    owner = Owner(MATERIALIZATION, "shop%2Forders.v0").encode()
    foreign_table(local_catalog(tmp_path), PATH, properties={OWNER_PROPERTY: owner})
    [answer] = validated(tmp_path, binding())
    assert constraint_types(answer, "id") == [ConstraintType.FIELD_REQUIRED]


@pytest.mark.parametrize("active", [True, False])
def test_a_table_of_the_last_binding_constrains_its_fields_even_if_that_was_disabled(
    tmp_path: Path, active: bool
) -> None:
    foreign_table(local_catalog(tmp_path), PATH)
    [answer] = validated(tmp_path, binding(), last=last(active=active))
    assert constraint_types(answer, "id") == [ConstraintType.FIELD_REQUIRED]


def test_a_backfill_is_constrained_as_a_new_table(tmp_path: Path) -> None:
    foreign_table(local_catalog(tmp_path), PATH, TEXT_ID)
    [answer] = validated(tmp_path, binding(backfill=1), last=last())
    assert [answer] == [*validated(tmp_path / "new", binding())]
    assert constraint_types(answer, "id") == [ConstraintType.LOCATION_REQUIRED]


def test_a_backfill_does_not_replace_the_rows_of_a_table_that_the_binding_appends_to(tmp_path: Path) -> None:
    table = foreign_table(local_catalog(tmp_path), PATH)
    appends = binding(backfill=1, existing_table="append")
    assert validated(tmp_path, appends, last=last()), "it has no rows yet"
    table.append(pa.table({"id": [1]}, schema=table.schema().as_arrow()))
    [line] = refused(tmp_path, appends, last=last())
    check_text("validate_errors", "a backfill of a table that the binding appends to", line)
    required = binding(backfill=1, existing_table="require")
    assert refused(tmp_path, required, last=last()) == [line.replace("is append", "is require")]
    assert validated(tmp_path, appends, last=last(), feature_flags="retain_existing_data_on_backfill")
    assert validated(tmp_path, binding(backfill=1, existing_table="refuse"), last=last())
    assert validated(tmp_path, binding(backfill=1), last=last(), feature_flags=FLAG), "the flag is for all bindings"


def test_a_backfill_that_keeps_the_rows_is_constrained_by_their_table(tmp_path: Path) -> None:
    foreign_table(local_catalog(tmp_path), PATH, TEXT_ID)
    [line] = refused(tmp_path, binding(backfill=1), last=last(), feature_flags="retain_existing_data_on_backfill")
    assert "Field 'id' has a column of type string, but its schema now needs long" in line


def test_a_view_of_that_name_is_refused(tmp_path: Path) -> None:
    foreign_table(local_catalog(tmp_path), PATH)
    turn_tables_into_views(tmp_path)
    assert refused(tmp_path, binding()) == [
        "bindings[0] (acme/orders): shop.orders is a view. Choose another table name, or drop the view."
    ]


def reasons(answer: response.ValidatedBinding) -> dict[str, tuple[ConstraintType, str]]:
    return {field: (each.type, each.reason) for field, each in answer.constraints.items()}


AMOUNT = projection("amount", "integer")
PARTITIONED = collection(ID, DOCUMENT, projection("note", "string"), AMOUNT, projection("id_bucket_4", "string"))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_field_that_a_term_names_is_required(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        columns = (NestedField(2, "note", StringType()), NestedField(3, "amount", LongType()))
        foreign_table(local_catalog(tmp_path), PATH, Schema(NestedField(1, "id", LongType(), required=True), *columns))
    [answer] = validated(
        tmp_path, binding(PARTITIONED, partition_by="bucket(4, ID), note", sort_by="amount desc, note"), last=last()
    )
    given = reasons(answer)
    assert given["id"][0] is given["note"][0] is given["amount"][0] is ConstraintType.FIELD_REQUIRED
    assert [given[field][1] for field in ("note", "amount")] == [
        "The binding's partition_by and sort_by name this field: it must be materialized.",
        "The binding's sort_by names this field: it must be materialized.",
    ]
    assert given["id_bucket_4"][0] is ConstraintType.FIELD_FORBIDDEN
    assert "A partition field of the table has this name" in given["id_bucket_4"][1]


def test_a_partition_field_of_the_public_connector_is_required(tmp_path: Path) -> None:
    fields = [{"field": "note", "transform": "truncate[4]"}]
    [answer] = validated(tmp_path, binding(PARTITIONED, partition_fields=fields))
    assert reasons(answer)["note"][0] is ConstraintType.FIELD_REQUIRED


def test_a_term_names_a_field_by_its_column_too(tmp_path: Path) -> None:
    renamed = msgspec.structs.replace(
        binding(PARTITIONED, partition_by="total"), field_config={"amount": {"column": "total"}}
    )
    [answer] = validated(tmp_path, renamed)
    assert reasons(answer)["amount"][0] is ConstraintType.FIELD_REQUIRED
    [plain] = validated(tmp_path, binding(PARTITIONED))
    assert reasons(plain)["amount"][0] is ConstraintType.LOCATION_RECOMMENDED


def test_a_field_that_a_term_names_gets_the_column_that_another_field_differs_from_in_case(tmp_path: Path) -> None:
    both = collection(ID, DOCUMENT, projection("NOTE", "string"), projection("note", "string"))
    [answer] = validated(tmp_path, binding(both, sort_by="note"))
    assert constraint_types(answer, "note") == [ConstraintType.FIELD_REQUIRED]
    assert constraint_types(answer, "NOTE") == [ConstraintType.FIELD_FORBIDDEN]


def test_columns_that_another_engine_partitions_by_need_no_field(tmp_path: Path) -> None:
    columns = (NestedField(2, "theirs", StringType()), NestedField(3, "note", StringType()))
    schema = Schema(NestedField(1, "id", LongType(), required=True), *columns)
    with foreign_table(local_catalog(tmp_path), PATH, schema).update_spec() as spec:
        spec.add_identity("theirs")
        spec.add_identity("note")
    [answer] = validated(tmp_path, binding(), last=last())
    assert constraint_types(answer, "note") == [ConstraintType.FIELD_OPTIONAL]


def test_a_column_that_is_in_a_sort_order_may_change_if_the_binding_sets_the_order(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    catalog.create_namespace("shop")
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "amount", StringType()))
    owner = Owner(MATERIALIZATION, "shop%2Forders.v0")
    catalog.create_table(
        PATH,
        schema,
        sort_order=SortOrder(SortField(2, IdentityTransform())),
        properties={OWNER_PROPERTY: owner.encode()},
    )
    [kept] = validated(tmp_path, binding(PARTITIONED), last=last())
    [replaced] = validated(tmp_path, binding(PARTITIONED, sort_by="amount"), last=last())
    assert constraint_types(kept, "amount") == [ConstraintType.INCOMPATIBLE]
    assert constraint_types(replaced, "amount") == [ConstraintType.FIELD_REQUIRED]


def test_a_second_field_at_the_location_of_the_key_is_a_value(tmp_path: Path) -> None:
    bound = collection(ID, DOCUMENT, projection("alias", "integer", ptr="/id"))
    columns = (NestedField(2, "alias", LongType()), NestedField(3, "flow_document", StringType(), required=True))
    schema = Schema(NestedField(1, "id", LongType(), required=True), *columns, identifier_field_ids=[1])
    owner = Owner(MATERIALIZATION, "shop%2Forders.v0").encode()
    foreign_table(local_catalog(tmp_path), PATH, schema, properties={OWNER_PROPERTY: owner})
    before = msgspec.structs.replace(
        last(delta_updates=False).bindings[0], field_selection=FieldSelection(("id",), ("alias",), "flow_document")
    )
    as_text = msgspec.structs.replace(
        binding(bound, delta_updates=False), field_config={"alias": {"castToString": True}}
    )
    [answer] = validated(tmp_path, as_text, last=Materialization(bindings=(before,)))
    assert constraint_types(answer, "alias") == [ConstraintType.FIELD_REQUIRED]


def test_a_task_that_begins_with_rows_of_its_own_is_told_that_it_adds_them_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that was deleted and created again: Flow has no last materialization, and no state."""
    catalog, owner = local_catalog(tmp_path), {OWNER_PROPERTY: Owner(MATERIALIZATION, "").encode()}
    names = [f"orders_{number}" for number in range(MOST_NAMES + 1)]
    schema = Schema(*ID_ONLY.fields, NestedField(2, "flow_document", StringType()))
    for name in names:
        rows = pa.table({"id": [1], "flow_document": ["{}"]}, schema.as_arrow())
        foreign_table(catalog, ("shop", name), schema, owner).append(rows)
    foreign_table(catalog, ("shop", "empty"), schema, owner)
    foreign_table(catalog, ("shop", "theirs"), schema).append(rows)
    others = [binding(table="empty"), binding(table="new"), binding(table="theirs", existing_table="append")]
    others.append(binding(table=names[0], delta_updates=False))
    validated(tmp_path, *others)
    validated(tmp_path, binding(table=names[0]), last=Materialization())
    assert not caplog.records
    validated(tmp_path, *others[:3], *(binding(table=name) for name in names))
    check_text("validate_errors", "a task with rows of its own from before", "\n".join(caplog.messages))
    caplog.clear()
    validated(tmp_path, binding(table=names[0]))
    assert "has rows in shop.orders_0. " in caplog.text
