"""The fields that `plan` expects are those that Flow selects."""

from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from connector.cli.field_selection import FieldRules, select_fields
from connector.cli.json_schemas import infer_shape
from connector.cli.projections import ExplicitProjection, make_collection
from connector.host.errors import UserError
from protocol.flow import Collection, Constraint, ConstraintType, FieldSelection
from support.snapshots import check_text

Json: TypeAlias = Any

ERRORS: Final = Path(__file__).parents[1] / "snapshots" / "cli_errors.json"
RECOMMENDED, OPTIONAL = ConstraintType.LOCATION_RECOMMENDED, ConstraintType.FIELD_OPTIONAL
REQUIRED, LOCATION = ConstraintType.FIELD_REQUIRED, ConstraintType.LOCATION_REQUIRED
FORBIDDEN, INCOMPATIBLE = ConstraintType.FIELD_FORBIDDEN, ConstraintType.INCOMPATIBLE

TEXT: Final = {"type": "string"}
SCHEMA: Final = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "_meta": {"type": "object", "properties": {"op": TEXT, "source": TEXT}},
        "customer": {"type": ["object", "null"], "properties": {"name": TEXT, "address": {"type": "object"}}},
        "items": {"type": "array"},
        "map": {"type": "object"},
        "mixed": {"type": ["object", "string"], "properties": {"inner": TEXT}},
    },
}


def collection(*explicit: ExplicitProjection) -> Collection:
    return make_collection("acme/orders", ["/id"], infer_shape(SCHEMA, "file:///flow.yaml", str), explicit)


def select(
    rules: Json = None, explicit: tuple[ExplicitProjection, ...] = (), **types: ConstraintType
) -> FieldSelection:
    bound = collection(*explicit)
    constraints = {
        each.field: Constraint(types.get(each.field.replace("/", "__"), OPTIONAL), "The reason.")
        for each in bound.projections
    }
    return select_fields(bound, constraints, FieldRules(**(rules or {})))


STANDARD: Final = ("_meta/op", "customer/name", "flow_published_at", "items", "mixed")


def test_all_values_that_are_not_objects_are_selected_and_core_metadata() -> None:
    assert select() == FieldSelection(("id",), STANDARD)


@pytest.mark.parametrize(
    ("depth", "values"),
    [
        (1, ("_meta/op", "customer", "flow_published_at", "items", "map", "mixed")),
        (2, ("_meta/op", "customer/address", "customer/name", "flow_published_at", "items", "map", "mixed")),
        (False, ()),
        (0, ()),
    ],
)
def test_a_depth_selects_objects_at_that_depth(depth: int, values: tuple[str, ...]) -> None:
    assert select({"recommended": depth}).values == values


def test_required_fields_are_selected_and_their_configs_kept() -> None:
    selection = select({"recommended": False, "require": {"map": {"castToString": True}}, "include": {"items": {}}})
    assert (selection.values, selection.field_config) == (
        ("items", "map"),
        {"map": {"castToString": True}, "items": {}},
    )


def test_excluded_fields_and_those_below_them_are_not_selected() -> None:
    assert "items" not in select({"exclude": ("items",)}).values
    assert "customer/name" not in select({"exclude": ("customer",)}).values


def test_the_root_document_is_selected_where_it_must_be() -> None:
    assert select(flow_document=LOCATION).document == "flow_document"
    assert select({"require": {"flow_document": {}}}).document == "flow_document"
    assert select(flow_document=FORBIDDEN).document == ""


def test_a_field_that_a_table_needs_is_selected() -> None:
    assert "map" in select(map=REQUIRED).values


def test_a_forbidden_field_is_not_selected() -> None:
    assert "items" not in select(items=FORBIDDEN).values


def test_a_location_is_selected_once_by_its_explicit_field() -> None:
    values = select(explicit=(ExplicitProjection("buyer", "/customer/name"),)).values
    assert "buyer" in values
    assert "customer/name" not in values


def test_partition_keys_are_selected_even_if_nothing_else_is() -> None:
    explicit = (ExplicitProjection("part", "/customer/name", is_partition_key=True),)
    assert select({"recommended": False}, explicit).values == ("part",)


def test_the_key_may_be_other_fields() -> None:
    selection = select({"group_by": ("customer/name", "id")})
    assert selection.keys == ("customer/name", "id")
    assert "customer/name" not in selection.values


@pytest.mark.parametrize(
    ("name", "rules", "types"),
    [
        ("a required field that is forbidden", {"require": {"items": {}}}, {"items": FORBIDDEN}),
        ("a field that needs a backfill", {}, {"items": INCOMPATIBLE}),
        ("a required field that does not exist", {"require": {"itmes": {}}}, {}),
    ],
)
def test_a_field_that_must_be_selected_and_cannot_be_is_an_error(name: str, rules: Json, types: dict[str, Any]) -> None:
    with pytest.raises(UserError) as error:
        select(rules, **types)
    check_text(ERRORS, name, str(error.value), {})
