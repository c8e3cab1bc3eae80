"""The shape of documents is inferred from the documents: types, formats, and which locations always have a value."""

import pytest

from connector.cli.flow.document_shape import infer_document_shape
from connector.cli.flow.projections import make_collection
from protocol.flow import Exists, Json


def inferred(*values: Json) -> tuple[tuple[str, ...], str]:
    """The types and the format of a location with these values."""
    shape = infer_document_shape([{"at": value} for value in values]).properties["at"]
    return shape.types, shape.string.format


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ((True, False), ("boolean",)),
        ((1, -(2**40)), ("integer",)),
        ((1, 1.5), ("number",)),
        ((1.0,), ("number",)),
        (("a",), ("string",)),
        (({"b": 1},), ("object",)),
        (([1],), ("array",)),
        ((None,), ("null",)),
        ((1, None), ("integer", "null")),
        ((1, "a", True), ("boolean", "integer", "string")),
    ],
)
def test_types_are_those_of_all_values(values: tuple[Json, ...], types: tuple[str, ...]) -> None:
    assert inferred(*values)[0] == types


@pytest.mark.parametrize(
    ("values", "string_format"),
    [
        (("2026-11-02T08:15:00Z", "2026-11-02t08:15:00.123456789+05:30"), "date-time"),
        (("2026-11-02T08:15:00Z", None), "date-time"),
        (("2026-11-02T08:15:00",), ""),  # without a zone it is no moment
        (("2026-02-30T08:15:00Z",), ""),
        (("2026-02-28", "2024-02-29"), "date"),
        (("2026-02-30",), ""),
        (("20260228",), ""),
        (("2026-02-28", "2026-11-02T08:15:00Z"), ""),
        (("08:15:00Z", "08:15:00.5-01:00"), "time"),
        (("25:15:00Z",), ""),
        (("0f8fad5b-d9cb-469f-a165-70867728950e", "0F8FAD5B-D9CB-469F-A165-70867728950E"), "uuid"),
        (("0f8fad5b-d9cb-469f-a165",), ""),
        (("01234",), ""),  # a postal code
        (("",), ""),
        (("2026-02-28\n",), ""),
        ((1,), ""),
    ],
)
def test_a_format_is_inferred_if_all_strings_have_it(values: tuple[Json, ...], string_format: str) -> None:
    assert inferred(*values)[1] == string_format


def test_a_location_must_exist_if_each_object_has_a_value_there() -> None:
    shape = infer_document_shape(
        [
            {"id": 1, "in": {"a": 1, "b": 2}, "or": {"c": 1}},
            {"id": None, "in": {"a": 1}, "or": 3},
            {"id": 3, "in": {"a": 0}},
        ]
    )
    locations = {ptr: exists for ptr, _, exists in shape.list_locations()}
    assert locations == {
        "": Exists.MUST,
        "/id": Exists.MUST,
        "/in": Exists.MUST,
        "/in/a": Exists.MUST,
        "/in/b": Exists.MAY,
        "/or": Exists.MAY,
        "/or/c": Exists.MAY,
    }


def test_each_location_becomes_a_projection_and_the_members_of_arrays_do_not() -> None:
    shape = infer_document_shape([{"id": 1, "customer": {"a/b": "x"}, "items": [{"n": 1}]}])
    collection = make_collection("demo/orders", ["/id"], shape, ())
    fields = {each.field: each.inference.types for each in collection.projections}
    own = {name for name in fields if name.startswith(("flow_", "_meta/"))}
    assert {name: types for name, types in fields.items() if name not in own} == {
        "id": ("integer",),
        "customer": ("object",),
        "customer/a~1b": ("string",),
        "items": ("array",),
    }
