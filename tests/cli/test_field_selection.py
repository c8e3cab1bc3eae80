"""The fields that `plan` expects, and that `demo` selects, are those that Flow selects."""

from typing import Any, Final

import pytest

from connector.cli.commands.demo_conversation import require_recommended
from connector.cli.flow.document_shape import infer_document_shape
from connector.cli.flow.field_selection import FieldRules, select_fields
from connector.cli.flow.json_schemas import infer_shape
from connector.cli.flow.projections import ExplicitProjection, make_collection
from connector.evolution.candidate import Candidate
from connector.evolution.constraints import list_constraints, pick_most_severe
from connector.host.errors import UserError
from protocol.flow import Collection, Constraint, ConstraintType, FieldSelection, Json, ProjectionConstraint
from support.snapshots import check_text

OPTIONAL = ConstraintType.FIELD_OPTIONAL
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
    check_text("cli_errors", name, str(error.value))


# The fields of a demo


def select_for_demo(*constraints: tuple[str, ConstraintType]) -> FieldSelection:
    """Select from documents, with the connector's constraints for a new table and with these."""
    document = {"id": 1, "customer": {"city": "Lima"}, "tags": [1], "nothing": None, "key": {"part": "a"}}
    bound = make_collection("demo/orders", ["/id", "/key/part"], infer_document_shape([document]), ())
    new = list_constraints(Candidate(bound, {}, delta_updates=True))
    changed = {field for field, _ in constraints}
    given = [ProjectionConstraint(field, Constraint(type_, f"The reason of {type_}.")) for field, type_ in constraints]
    kept = [each for each in new if each.field not in changed]
    all_constraints = pick_most_severe([*kept, *given])
    return select_fields(bound, all_constraints, require_recommended(bound, all_constraints))


def test_a_demo_selects_recommended_fields_of_any_depth_with_the_key_and_the_root_document() -> None:
    selection = select_for_demo()
    assert selection.keys == ("id", "key/part")
    assert selection.values == ("customer/city", "flow_published_at", "tags")
    assert selection.document == "flow_document"


def test_a_demo_selects_a_field_with_a_column_and_one_that_the_table_needs() -> None:
    selection = select_for_demo(("customer/city", OPTIONAL), ("customer", REQUIRED))
    assert selection.values == ("customer", "customer/city", "flow_published_at", "tags")


def test_a_demo_does_not_select_a_forbidden_field() -> None:
    assert select_for_demo(("tags", FORBIDDEN)).values == ("customer/city", "flow_published_at")


def test_a_field_of_a_demo_that_does_not_fit_its_column_is_an_error() -> None:
    with pytest.raises(UserError, match=r"field 'tags' of collection demo/orders .* The reason of INCOMPATIBLE"):
        select_for_demo(("tags", REQUIRED), ("tags", INCOMPATIBLE))
