"""A field config that asks for decimals: what it may say, for which fields, and what is told where it may not."""

import pytest

from connector.evolution.candidate import Candidate
from connector.evolution.constraints import find_problems, list_constraints
from connector.evolution.field_config import parse_field_configs
from connector.evolution.plan_changes import plan_columns
from connector.host.errors import UserError
from protocol.flow import ConstraintType, FieldSelection, Json, Projection, StringInference
from support.bindings import DOCUMENT, ID, collection, projection
from support.snapshots import check_text

NUMBER, INTEGER = StringInference("number"), StringInference("integer")
DECIMAL = {"decimal": {"precision": 20, "scale": 4}}


def candidate(field: Projection, field_config: Json) -> Candidate:
    return Candidate(
        collection(ID, DOCUMENT, field), parse_field_configs({field.field: field_config}), delta_updates=True
    )


@pytest.mark.parametrize(
    "field",
    [
        projection("amount", "integer"),
        projection("amount", "number", "null"),
        projection("amount", "string", string=NUMBER),
        projection("amount", "integer", "number", "string", string=INTEGER),
        projection("amount", "integer", ptr="/id"),
    ],
)
def test_integers_numbers_and_numeric_strings_can_be_decimals(field: Projection) -> None:
    assert find_problems(candidate(field, DECIMAL)) == []
    assert str(
        plan_columns(collection(ID, field), FieldSelection(values=("amount",), field_config={"amount": DECIMAL}))[0]
    ) in (
        "'amount' decimal(20, 4)",
        "'amount' decimal(20, 4) not null",
    )


def test_that_a_field_is_a_column_of_decimals_is_the_reason_for_it() -> None:
    field = projection("amount", "integer", "number", "string", string=INTEGER)
    *_, constraint = list_constraints(candidate(field, DECIMAL))
    assert constraint.constraint.type is ConstraintType.LOCATION_RECOMMENDED
    assert constraint.constraint.reason == "Its field config asks for a column of decimals, which keeps every digit."


@pytest.mark.parametrize(
    "setting",
    [
        *(True, 20, "20,4", [], {}, {"precision": 20}, {"scale": 0}, {"precision": 20, "scale": 4, "rounding": "up"}),
        *({"precision": 0, "scale": 0}, {"precision": 39, "scale": 0}, {"precision": 4, "scale": 5}),
        *({"precision": 4, "scale": -1}, {"precision": 4.0, "scale": 2}, {"precision": True, "scale": False}),
        *({"precision": "4", "scale": "2"}, {"precision": 4, "scale": None}),
    ],
    ids=str,
)
def test_what_is_no_precision_and_scale_is_an_error_that_says_what_they_are(setting: Json) -> None:
    [problem] = find_problems(candidate(projection("amount", "number"), {"decimal": setting}))
    check_text("decimal_setting", "no precision and scale", problem)


REFUSED = {
    "beside castToString": (projection("amount", "number"), DECIMAL | {"castToString": True}),
    "beside ignoreStringFormat": (
        projection("amount", "string", string=NUMBER),
        DECIMAL | {"ignoreStringFormat": True},
    ),
    "of other values": (projection("amount", "number", "boolean"), DECIMAL),
    "of objects": (projection("amount", "object"), DECIMAL),
    "of any strings": (projection("amount", "string"), DECIMAL),
    "of dates": (projection("amount", "string", string=StringInference("date")), DECIMAL),
    "of a key of strings": (projection("amount", "string", ptr="/id", string=INTEGER), DECIMAL),
    "of a key of numbers": (projection("amount", "number", ptr="/id"), DECIMAL),
}


@pytest.mark.parametrize("name", REFUSED)
def test_why_a_field_cannot_be_a_column_of_decimals(name: str) -> None:
    field, config = REFUSED[name]
    [problem] = find_problems(candidate(field, config))
    check_text("decimal_setting", name, problem)


@pytest.mark.parametrize("name", REFUSED)
def test_apply_refuses_what_validate_refuses(name: str) -> None:
    field, config = REFUSED[name]
    selection = FieldSelection(values=("amount",), field_config={"amount": config})
    with pytest.raises(UserError, match=r"'amount'.*decimal"):
        plan_columns(collection(ID, field), selection)


MISTAKES = {
    "another case": {"casttostring": True},
    "underscores": {"ignore_string_format": True},
    "a letter too many": {"columns": "price"},
    "no boolean": {"castToString": "true"},
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_setting_that_would_change_nothing_as_it_is_written_is_a_problem(name: str) -> None:
    [problem] = find_problems(candidate(projection("amount", "string"), MISTAKES[name]))
    check_text("field_config", name, problem)


def test_a_setting_of_another_connector_changes_nothing() -> None:
    assert find_problems(candidate(projection("amount", "string"), {"keyword": True, "castToString": None})) == []


@pytest.mark.parametrize("config", [{"decimal": None}, {"castToString": True, "decimal": None}, None, []])
def test_a_setting_that_is_null_is_as_good_as_none(config: Json) -> None:
    assert find_problems(candidate(projection("amount", "string"), config)) == []
