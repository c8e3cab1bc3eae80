"""A collection's projections are those that Flow infers from its JSON schema."""

import json
from typing import Any, Final

import jsonschema
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from connector.cli.flow.json_schemas import infer_shape
from connector.cli.flow.projections import ExplicitProjection, make_collection
from connector.cli.flow.shapes import Shape
from connector.evolution.candidate import Candidate
from connector.evolution.constraints import find_problems
from connector.host.errors import UserError
from fixtures import orders
from fixtures.collection import Field
from protocol.flow import Exists, Inference, Json, Projection
from support.snapshots import check_text

URI: Final = "file:///schemas/flow.yaml"
EVERY_TYPE: Final = ("array", "boolean", "null", "number", "object", "string")


def none(uri: str) -> Json:
    raise LookupError(uri)


def infer(schema: Json) -> Shape:
    return infer_shape(schema, URI, none)


def inferences(schema: Json) -> dict[str, Inference]:
    collection = make_collection("acme/orders", ["/id"], infer(schema), [])
    return {projection.field: projection.inference for projection in collection.projections}


def types(schema: Json) -> dict[str, tuple[str, ...]]:
    return {field: inference.types for field, inference in inferences(schema).items()}


def schema_of(fields: tuple[Field, ...]) -> Json:
    """The schema whose locations are these fields."""
    root: Json = {"type": "object", "properties": {}, "required": []}
    for field in fields:
        *parents, name = field.ptr.split("/")[1:]
        inner = root
        for parent in parents:
            inner = inner["properties"].setdefault(parent, {})
            inner.setdefault("properties", {})
            inner.setdefault("required", [])
        member = inner["properties"].setdefault(name, {})
        member |= {"type": [*field.types], **field.string}
        if field.exists == "MUST":
            inner["required"].append(name)
    return root


@pytest.mark.parametrize("fixture", orders.COLLECTIONS, ids=lambda collection: collection.table)
def test_the_fixtures_projections_are_inferred_from_their_schemas(fixture: Any) -> None:
    fields = [field for field in fixture.fields if not field.ptr.startswith("/_meta")]
    key = [field.ptr for field in fixture.keys]
    collection = make_collection(fixture.name, key, infer(schema_of(tuple(fields))), [])
    found = {projection.field: projection for projection in collection.projections}
    for field in fields:
        projection = found[field.name]
        assert (projection.ptr, projection.is_primary_key) == (field.ptr, field.is_key)
        assert projection.inference.types == tuple(sorted(field.types))
        assert projection.inference.exists == field.exists
        assert projection.inference.string.format == field.string.get("format", "")
        assert projection.inference.string.content_encoding == field.string.get("contentEncoding", "")
    assert collection.key == tuple(key)
    assert collection.uuid_ptr == "/_meta/uuid"


def test_flow_adds_the_document_its_publication_time_and_whether_it_was_truncated() -> None:
    found = {each.field: each for each in make_collection("a", ["/id"], infer({"type": "object"}), []).projections}
    assert [*found] == ["_meta/flow_truncated", "flow_document", "flow_published_at", "id"]
    assert (found["flow_document"].ptr, found["flow_document"].inference.types) == ("", ("object",))
    assert (found["flow_published_at"].ptr, found["flow_published_at"].inference.string.format) == (
        "/_meta/uuid",
        "date-time",
    )
    assert found["_meta/flow_truncated"].inference.types == ("boolean",)
    assert (found["id"].is_primary_key, found["id"].inference.exists) == (True, Exists.IMPLICIT)


def test_a_location_must_exist_only_if_all_locations_around_it_are_required_objects() -> None:
    inner = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
    found = inferences(
        {
            "type": "object",
            "required": ["always", "mixed"],
            "properties": {"always": inner, "sometimes": inner, "mixed": {**inner, "type": ["object", "null"]}},
        }
    )
    assert {field: found[field].exists for field in ("always/a", "sometimes/a", "mixed/a")} == {
        "always/a": Exists.MUST,
        "sometimes/a": Exists.MAY,
        "mixed/a": Exists.MAY,
    }


def test_types_come_from_every_keyword_that_restricts_them() -> None:
    found = types(
        {
            "type": "object",
            "required": ["unnamed"],
            "properties": {
                "any": {},
                "never": False,
                "both_numbers": {"type": ["integer", "number"]},
                "const": {"const": "x"},
                "enum": {"enum": ["a", 1, None]},
                "whole": {"enum": [1.0]},
                "one_of": {"oneOf": [{"type": "string"}, {"type": "null"}]},
                "all_of": {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]},
                "if": {"type": ["string", "null"], "if": {}, "then": {"type": "string"}, "else": {"type": "string"}},
                "array": {"type": "array", "items": {"type": "object", "properties": {"not": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "a/b~c": {"type": "string"},
            },
        }
    )
    assert {field: found[field] for field in found if not field.startswith(("_meta", "flow_"))} == {
        "a~1b~0c": ("string",),
        "all_of": ("integer",),
        "any": EVERY_TYPE,
        "array": ("array",),
        "both_numbers": ("number",),
        "const": ("string",),
        "enum": ("integer", "null", "string"),
        "id": EVERY_TYPE,
        "if": ("string",),
        "map": ("object",),
        "never": (),
        "one_of": ("null", "string"),
        "unnamed": EVERY_TYPE,
        "whole": ("integer",),
    }


def test_formats_and_texts_of_all_parts_of_a_schema_count() -> None:
    found = inferences(
        {
            "type": "object",
            "properties": {
                "combined": {"allOf": [{"type": "string", "format": "date"}, {"title": "T"}], "description": "D"},
                "alternatives": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
                "numbers": {"anyOf": [{"type": "string", "format": "integer"}, {"type": "string", "format": "number"}]},
                "different": {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "uuid"}]},
                "bytes": {"type": "string", "contentEncoding": "base64", "maxLength": 9, "default": "QQ=="},
                "number": {"type": "integer", "minimum": 3, "format": "date"},
            },
        }
    )
    assert (found["combined"].string.format, found["combined"].title, found["combined"].description) == (
        "date",
        "T",
        "D",
    )
    assert found["alternatives"].string.format == "date-time"
    assert found["numbers"].string.format == "number"
    assert found["different"].string.format == ""
    assert (found["bytes"].string.content_encoding, found["bytes"].string.max_length, found["bytes"].default) == (
        "base64",
        9,
        "QQ==",
    )
    assert (found["number"].string.format, found["number"].numeric.minimum) == ("", 3)


def test_formats_have_the_names_that_flow_sends() -> None:
    formats = ("datetime", "date-time", "uint64", "int64")
    members: Json = {each: {"type": "string", "format": each} for each in formats}
    members["either"] = {"anyOf": [members["uint64"], {"type": "string", "format": "integer"}]}
    found = inferences({"type": "object", "properties": members})
    assert {each: found[each].string.format for each in members} == {
        "datetime": "date-time",
        "date-time": "date-time",
        "uint64": "integer",
        "int64": "int64",
        "either": "integer",
    }


def test_a_property_of_one_alternative_is_a_location_only_if_the_others_cannot_have_it() -> None:
    with_a = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert "a" not in types({"oneOf": [with_a, {"type": "object"}]})
    assert types({"oneOf": [with_a, {"type": "object", "additionalProperties": False}]})["a"] == ("string",)
    assert types({"oneOf": [with_a, {"type": "null"}]})["a"] == ("string",)


def test_references_are_followed_within_a_schema_and_to_other_files() -> None:
    files = {
        "file:///schemas/parts.yaml": {"$defs": {"when": {"type": "string", "format": "date"}}},
        "file:///schemas/deep/node.yaml": {"$ref": "../parts.yaml#/$defs/when"},
    }
    shape = infer_shape(
        {
            "properties": {
                "local": {"$ref": "#/$defs/local"},
                "anchor": {"$ref": "#there"},
                "file": {"$ref": "parts.yaml#/$defs/when"},
                "two": {"$ref": "deep/node.yaml"},
            },
            "$defs": {"local": {"type": "integer"}, "other": {"$anchor": "there", "type": "boolean"}},
        },
        URI,
        files.__getitem__,
    )
    assert {name: inner.types for name, inner in shape.properties.items()} == {
        "local": ("integer",),
        "anchor": ("boolean",),
        "file": ("string",),
        "two": ("string",),
    }


LOC: Final = {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3}
# What Estuary's capture of PostgreSQL says of a table without a primary key.
WITHOUT_KEY: Final = {
    "type": "object",
    "required": ["_meta"],
    "properties": {
        "_meta": {
            "type": "object",
            "required": ["source"],
            "properties": {"source": {"type": "object", "required": ["loc"], "properties": {"loc": LOC}}},
        }
    },
}


def test_the_key_of_a_table_without_one_consists_of_integers() -> None:
    key = [f"/_meta/source/loc/{index}" for index in range(3)]
    bound = make_collection("acme/orders", key, infer(WITHOUT_KEY), [])
    keys = [each for each in bound.projections if each.is_primary_key]
    assert [(each.ptr, each.field) for each in keys] == [(ptr, ptr[1:]) for ptr in key]
    assert {(each.inference.types, each.inference.exists) for each in keys} == {(("integer",), Exists.MUST)}
    assert find_problems(Candidate(bound, {}, delta_updates=True)) == []


def test_the_first_items_of_an_array_are_locations_and_the_others_are_none() -> None:
    first = [{"type": "integer"}, {"type": "object", "properties": {"a": {"type": "string"}}}]
    for keyword in ("prefixItems", "items"):
        found = types({"type": "object", "properties": {"pair": {"type": "array", keyword: first}}})
        assert {name: each for name, each in found.items() if name.startswith("pair")} == {
            "pair": ("array",),
            "pair/0": ("integer",),
            "pair/1": ("object",),
            "pair/1/a": ("string",),
        }


TUPLE: Final = {"prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": {"type": "string"}}
OLD_TUPLE: Final = {"items": [{"type": "integer"}, {"type": "boolean"}], "additionalItems": {"type": "string"}}
PATTERNS: Final = {"patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "ptr", "found", "exists"),
    [
        ({"type": "array", **TUPLE}, "/0", ("integer",), Exists.MAY),
        ({"type": "array", **TUPLE}, "/1", ("boolean",), Exists.MAY),
        ({"type": "array", **TUPLE}, "/2", ("string",), Exists.MAY),
        ({"type": "array", **OLD_TUPLE}, "/1", ("boolean",), Exists.MAY),
        ({"type": "array", **OLD_TUPLE}, "/7", ("string",), Exists.MAY),
        ({"type": "array", **TUPLE, "minItems": 1}, "/0", ("integer",), Exists.MUST),
        ({"type": ["array", "null"], **TUPLE, "minItems": 1}, "/0", ("integer",), Exists.MAY),
        ({"type": "array", **TUPLE, "minItems": 1.0, "maxItems": 3.0}, "/2", ("string",), Exists.MAY),
        ({"type": "array", **TUPLE, "maxItems": 2}, "/2", ("string",), Exists.CANNOT),
        ({"type": "array", "prefixItems": [True], "items": False}, "/1", (), Exists.CANNOT),
        ({"type": "array", "maxItems": 2}, "/1", EVERY_TYPE, Exists.MAY),
        ({"type": "array"}, "/1", EVERY_TYPE, Exists.IMPLICIT),
        ({"type": "array", **TUPLE}, "/-", EVERY_TYPE, Exists.CANNOT),
        ({"type": "array", **TUPLE}, "/01", EVERY_TYPE, Exists.CANNOT),
        ({"type": "array", **TUPLE}, "/name", EVERY_TYPE, Exists.CANNOT),
        ({"type": "string"}, "/0", EVERY_TYPE, Exists.CANNOT),
        ({"type": "array", "items": LOC, "minItems": 1}, "/0/2", ("integer",), Exists.MUST),
        ({"type": "array", "items": LOC}, "/0/2", ("integer",), Exists.MAY),
        ({"type": "array", "items": LOC}, "/0/3", ("integer",), Exists.CANNOT),
        ({"type": "object", "required": ["0"], "properties": {"0": {"type": "null"}}}, "/0", ("null",), Exists.MUST),
        ({"type": "object", "properties": {"-": {"type": "null"}}}, "/-", ("null",), Exists.MAY),
        ({"type": "object", "properties": {"a/b~": {"type": "null"}}}, "/a~1b~0", ("null",), Exists.MAY),
        ({"type": "object", **PATTERNS}, "/x_1", ("integer",), Exists.MAY),
        ({"type": "object", **PATTERNS}, "/y", ("string",), Exists.MAY),
        ({"type": "object", **PATTERNS, "required": ["x_1"]}, "/x_1", ("integer",), Exists.MUST),
        ({"type": "object", **PATTERNS, "properties": {"x_1": {"minimum": 3}}}, "/x_1", ("integer",), Exists.MAY),
        ({"type": "object", "patternProperties": {"*": False, "^a": {"type": "null"}}}, "/a", ("null",), Exists.MAY),
        ({"type": "object", "additionalProperties": {"type": "null"}}, "/a", ("null",), Exists.MAY),
        ({"type": "object", "additionalProperties": False}, "/a", (), Exists.CANNOT),
        ({"type": "object"}, "/a", EVERY_TYPE, Exists.IMPLICIT),
        ({"type": "object"}, "/a/0", EVERY_TYPE, Exists.IMPLICIT),
        ({"allOf": [{"type": "array", **TUPLE}, {"items": {"type": ["integer", "string"]}}]}, "/1", (), Exists.CANNOT),
        ({"allOf": [{"type": "array", **TUPLE}, {"minItems": 1, "maxItems": 1}]}, "/0", ("integer",), Exists.MUST),
        ({"anyOf": [{"type": "array", **TUPLE}, LOC]}, "/1", ("boolean", "integer"), Exists.MAY),
        ({"anyOf": [{"type": "array", **TUPLE}, {"type": "array"}]}, "/0", EVERY_TYPE, Exists.IMPLICIT),
        ({"anyOf": [{"type": "null"}, LOC]}, "/1", ("integer",), Exists.MAY),
        ({"anyOf": [PATTERNS, {"additionalProperties": {"type": "null"}}]}, "/x_1", ("integer", "null"), Exists.MAY),
        ({"anyOf": [PATTERNS, {}]}, "/x_1", EVERY_TYPE, Exists.IMPLICIT),
        ({"allOf": [PATTERNS, {"additionalProperties": False}]}, "/x_1", ("integer",), Exists.MAY),
    ],
    ids=str,
)
def test_a_key_is_located_as_flow_does_it(schema: Json, ptr: str, found: tuple[str, ...], exists: Exists) -> None:
    shape, certainty = infer(schema).locate(ptr)
    assert (shape.types, certainty) == (found, exists)


def test_a_projection_may_name_an_item_of_an_array() -> None:
    bound = make_collection("a", ["/id"], infer(WITHOUT_KEY), [ExplicitProjection("first", "/_meta/source/loc/0")])
    [first] = [each for each in bound.projections if each.field == "first"]
    assert (first.inference.types, first.inference.exists) == (("integer",), Exists.MUST)


def test_a_schema_that_contains_itself_has_an_end() -> None:
    node = {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}, "name": {"type": "string"}}}
    found = types({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert found["name"] == ("string",)
    assert found["child"] == EVERY_TYPE


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("a reference in a JSON schema that leads nowhere", {"$ref": "#/nowhere"}),
        ("an unknown type in a JSON schema", {"type": "text"}),
        ("a keyword of a JSON schema with another type", {"required": "b"}),
        ("a part of a JSON schema that is none", {"properties": {"b": "string"}}),
        ("an $id in a JSON schema that is no URI", {"$id": "http://[::1"}),
    ],
)
def test_a_schema_that_says_nothing_is_an_error(name: str, member: Json) -> None:
    with pytest.raises(UserError) as error:
        infer({"properties": {"a": member}})
    check_text("cli_errors", name, str(error.value))


@pytest.mark.parametrize(
    "member",
    [
        {"required": True},
        {"properties": ["b"]},
        {"properties": {"b": "string"}},
        {"properties": {"b": None}},
        {"items": "string"},
        {"items": ["string"]},
        {"prefixItems": [5]},
        {"prefixItems": {"type": "string"}},
        {"items": [], "additionalItems": 5},
        {"minItems": -1},
        {"maxItems": "3"},
        {"patternProperties": {"b": 5}},
        {"allOf": {"type": "string"}},
        {"anyOf": "string"},
        {"oneOf": [5]},
        {"additionalProperties": "no"},
        {"if": {}, "then": 5},
        {"enum": "a"},
        {"type": 5},
        {"type": [5]},
        {"format": ["date"]},
        {"maxLength": "9"},
        {"maxLength": -1},
        {"minimum": "0"},
        {"maximum": 10**400},
        {"title": 5},
        {"secret": "yes"},
        {"$ref": 5},
        {"$id": 5},
        {"$id": "http://[::1"},
    ],
    ids=json.dumps,
)
def test_a_keyword_with_a_value_of_another_type_is_an_error_with_its_place(member: Json) -> None:
    with pytest.raises(UserError, match=r"^a JSON schema is malformed at #/properties/a(/[^:]+)?: .+\. Correct it\.$"):
        infer({"properties": {"a": member}})


@pytest.mark.parametrize("schema", ["http://[::1", "#/$defs/x", "#/$defs/x/y", "#/$defs/%zz"])
@pytest.mark.parametrize("defined", [5, {"x": 5}, None, ["x"]])
def test_a_reference_to_something_malformed_is_an_error(schema: str, defined: Json) -> None:
    with pytest.raises(UserError, match=r"leads nowhere|is malformed at"):
        infer({"$defs": defined, "$ref": schema})


def test_a_schema_that_is_nested_too_deeply_is_an_error() -> None:
    schema: Json = {"type": "string"}
    for _ in range(500):
        schema = {"properties": {"a": schema}}
    with pytest.raises(UserError) as error:
        infer(schema)
    check_text("cli_errors", "a JSON schema that is nested too deeply", str(error.value))


def test_a_length_may_have_a_fraction_of_zero() -> None:
    assert infer({"type": "string", "maxLength": 3.0}).string.max_length == 3


def projections(*explicit: ExplicitProjection) -> dict[str, Projection]:
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}}
    return {each.field: each for each in make_collection("a", ["/id"], infer(schema), explicit).projections}


def test_projections_of_the_catalog_file_come_beside_the_inferred_ones() -> None:
    found = projections(ExplicitProjection("short", "/a/b"), ExplicitProjection("a/b", "/a/b", True))
    assert (found["short"].ptr, found["short"].explicit, found["short"].inference.types) == ("/a/b", True, ("string",))
    assert (found["a/b"].explicit, found["a/b"].is_partition_key) == (True, True)


def test_the_document_and_the_publication_time_can_have_other_fields() -> None:
    found = projections(ExplicitProjection("whole", ""), ExplicitProjection("at", "/_meta/uuid/date-time"))
    assert "flow_document" not in found
    assert "flow_published_at" not in found
    assert (found["at"].ptr, found["at"].inference.string.format) == ("/_meta/uuid", "date-time")
    assert found["whole"].ptr == ""


# For any schema and any document

NAMES: Final = st.sampled_from("ab")
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0]) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
TYPES: Final = st.sampled_from(("null", "boolean", "integer", "number", "string", "array", "object"))
LEAVES: Final = st.booleans() | st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=2),
    },
)
SCHEMAS: Final = st.recursive(
    LEAVES,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", ["object", "null"], ["array", "object"]]),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "items": inner,
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 3),
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.just("^a"), inner, max_size=1),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "if": inner,
            "then": inner,
            "else": inner,
        },
    ),
    max_leaves=6,
)


POINTERS: Final = [f"/{first}{rest}" for first in "ab012" for rest in ("", "/a", "/0")]


def values_at(document: Json, ptr: str) -> list[Json]:
    for name in ptr.split("/")[1:]:
        if isinstance(document, list) and name in ("0", "1", "2"):
            if int(name) >= len(document):
                return []
            document = document[int(name)]
            continue
        if not isinstance(document, dict) or name not in document:
            return []
        document = document[name]
    return [document]


def is_of(value: Json, found: tuple[str, ...]) -> bool:
    return any(jsonschema.Draft202012Validator({"type": name}).is_valid(value) for name in found)


REQUIRED_BY_ONE: Final = {
    "type": "object",
    "anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"a": {"type": "string"}}}],
}


@given(SCHEMAS, VALUES)
@example(REQUIRED_BY_ONE, {})
def test_a_document_that_a_schema_allows_fits_its_shape(schema: Json, document: Json) -> None:
    assume(jsonschema.Draft202012Validator(schema).is_valid(document))
    whole = infer(schema)
    located = [(ptr, *whole.locate(ptr)) for ptr in POINTERS]
    for ptr, shape, exists in [*whole.list_locations(), *located]:
        found = values_at(document, ptr)
        assert all(is_of(value, shape.types) for value in found), ptr
        assert found or exists is not Exists.MUST, ptr
        assert not found or exists is not Exists.CANNOT, ptr
