import json
import os
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from connector.constraints import Candidate, constraints, most_severe, problems
from protocol.flow import (
    Collection,
    Constraint,
    ConstraintType,
    Exists,
    Json,
    Projection,
    ProjectionConstraint,
    StringInference,
)
from support.bindings import DOCUMENT, ID, collection, projection

STRING = StringType()

# Regenerated where the environment has UPDATE_SNAPSHOTS.
SNAPSHOTS = Path(__file__).parent / "snapshots" / "constraints.json"

EVERYTHING = collection(
    ID,
    projection("id again", "integer", ptr="/id"),
    DOCUMENT,
    projection("document again", "object", ptr=""),
    projection("_meta/op", "string"),
    projection("_meta/uuid", "string"),
    projection("only null", "null"),
    projection("no type"),
    projection("boolean", "boolean"),
    projection("integer", "integer"),
    projection("number", "number"),
    projection("string", "string", "null"),
    projection("date", "string", string=StringInference("date")),
    projection("binary", "string", string=StringInference(content_encoding="base64")),
    projection("numeric string", "string", string=StringInference("number")),
    projection("integers and strings", "integer", "string", string=StringInference("int64")),
    projection("array", "array"),
    projection("object", "object", "null"),
    projection("object or array", "object", "array"),
    projection("integer or string", "integer", "string"),
    projection("l" * 255, "string"),
    projection("l" * 256, "string"),
)


def schema(*columns: NestedField) -> Schema:
    return Schema(*columns)


def column(number: int, name: str, type_: LongType | StringType = STRING) -> NestedField:
    return NestedField(number, name, type_, required=False)


EXISTING = schema(
    column(1, "ID", LongType()),
    column(2, "flow_document"),
    column(3, "only null"),
    column(4, "integer", LongType()),
    column(5, "number"),
    column(6, "date"),
    column(7, "array", LongType()),
    column(8, "numeric string"),
)
CAST = {"number": {"castToString": True}, "array": {"castToString": True}}
WRONG_KEY = schema(column(1, "id"), column(2, "document again", LongType()))

SCENARIOS = {
    "delta updates, no table": Candidate(EVERYTHING, {}, True),
    "standard updates, no table": Candidate(EVERYTHING, {}, False),
    "delta updates, existing table": Candidate(EVERYTHING, {}, True, EXISTING),
    "standard updates, existing table": Candidate(EVERYTHING, {}, False, EXISTING),
    "delta updates, existing table, cast to string": Candidate(EVERYTHING, CAST, True, EXISTING),
    "standard updates, incompatible key and document": Candidate(EVERYTHING, {}, False, WRONG_KEY),
    "grouped by other fields": Candidate(EVERYTHING, {}, True, None, ("date", "numeric string")),
}


def as_json(candidate: Candidate) -> Json:
    return [[each.field, each.constraint.type.value, each.constraint.reason] for each in constraints(candidate)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_field_has_its_constraints_and_their_reasons(scenario: str) -> None:
    recorded = json.loads(SNAPSHOTS.read_text()) if SNAPSHOTS.exists() else {}
    if "UPDATE_SNAPSHOTS" in os.environ:
        recorded[scenario] = as_json(SCENARIOS[scenario])
        SNAPSHOTS.write_text(json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    assert as_json(SCENARIOS[scenario]) == recorded[scenario]


def types_of(candidate: Candidate, field: str) -> list[ConstraintType]:
    return [each.constraint.type for each in constraints(candidate) if each.field == field]


def test_a_required_field_that_is_incompatible_carries_both_constraints() -> None:
    candidate = Candidate(collection(ID), {}, True, schema(column(1, "id")))
    assert types_of(candidate, "id") == [ConstraintType.FIELD_REQUIRED, ConstraintType.INCOMPATIBLE]
    assert most_severe(constraints(candidate))["id"].type is ConstraintType.INCOMPATIBLE


def test_the_reason_of_an_incompatible_field_names_the_field_its_column_and_the_type_that_it_needs() -> None:
    candidate = Candidate(collection(ID, projection("qty", "integer")), {}, True, schema(column(1, "qty")))
    reason = most_severe(constraints(candidate))["qty"].reason
    assert "'qty'" in reason
    assert "type string" in reason
    assert "needs long" in reason


def test_a_column_is_found_whatever_its_case_and_by_its_very_name_first() -> None:
    bound = collection(ID, projection("Qty", "integer"))
    assert types_of(Candidate(bound, {}, True, schema(column(1, "qTY", LongType()))), "Qty") == [
        ConstraintType.FIELD_OPTIONAL
    ]
    both = schema(column(1, "qty"), column(2, "Qty", LongType()), column(3, "QTY"))
    assert types_of(Candidate(bound, {}, True, both), "Qty") == [ConstraintType.FIELD_OPTIONAL]


def test_a_nested_column_of_the_same_name_is_incompatible() -> None:
    nested = schema(NestedField(1, "qty", StructType(NestedField(2, "n", LongType(), required=False)), required=False))
    candidate = Candidate(collection(ID, projection("qty", "integer")), {}, True, nested)
    assert types_of(candidate, "qty") == [ConstraintType.INCOMPATIBLE]


def test_the_older_form_has_every_field_once_with_its_most_severe_constraint_whatever_their_order() -> None:
    def several(*types: ConstraintType) -> list[ProjectionConstraint]:
        return [ProjectionConstraint("f", Constraint(each, each.value)) for each in types]

    optional, required, incompatible = (
        ConstraintType.FIELD_OPTIONAL,
        ConstraintType.FIELD_REQUIRED,
        ConstraintType.INCOMPATIBLE,
    )
    assert most_severe(several(required, incompatible, optional))["f"].type is incompatible
    assert most_severe(several(incompatible, optional, required))["f"].type is incompatible
    assert most_severe(several(optional, required))["f"].type is required
    assert set(most_severe(constraints(SCENARIOS["delta updates, existing table"]))) == {
        each.field for each in EVERYTHING.projections
    }


@pytest.mark.parametrize(
    "nullable",
    [
        projection("id", "integer", "null"),
        projection("id", "integer", exists=Exists.MAY),
        projection("id", "null"),
    ],
)
def test_a_key_that_may_be_null_needs_a_default(nullable: Projection) -> None:
    (problem,) = problems(Candidate(collection(nullable), {}, True))
    assert "'id'" in problem
    assert "default" in problem


@pytest.mark.parametrize(
    "fine",
    [ID, projection("id", "integer", "null", default=0), projection("id", "integer", exists=Exists.MAY, default=0)],
)
def test_a_key_that_has_a_default_or_is_never_null_is_fine(fine: Projection) -> None:
    assert problems(Candidate(collection(fine), {}, True)) == []


def key_with_names(*fields: str) -> Collection:
    return collection(*(projection(field, "integer", ptr="/id") for field in fields))


def test_a_location_that_is_required_needs_a_name_that_is_short_enough() -> None:
    (problem,) = problems(Candidate(key_with_names("x" * 256, "y" * 300), {}, True))
    assert "/id" in problem
    assert "255" in problem
    assert problems(Candidate(key_with_names("x" * 256, "y" * 255), {}, True)) == []


def test_standard_updates_need_a_root_document_with_a_short_name() -> None:
    long_document = projection("d" * 256, "object", ptr="")
    assert problems(Candidate(collection(ID, long_document), {}, True)) == []
    (problem,) = problems(Candidate(collection(ID, long_document), {}, False))
    assert "root document" in problem
