from itertools import combinations

import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.evolution.candidate import Candidate
from connector.evolution.constraints import list_constraints
from connector.evolution.field_config import STRING_SETTINGS, parse_field_config
from connector.evolution.type_mapping import (
    COLUMN_TYPES,
    NUMERIC_STRINGS,
    choose_type,
    is_required,
)
from protocol.flow import Exists, Inference, Json, NumericInference, Projection, StringInference
from support.bindings import ID, PLAIN, collection, projection
from support.snapshots import check_text

ALL_TYPES = ("boolean", "object", "array", "integer", "number", "string")


def type_of(
    *types: str, string: StringInference = PLAIN, field_config: Json = None, is_key: bool = False
) -> PrimitiveType | None:
    return choose_type(projection("f", *types, string=string), parse_field_config(field_config), is_key)


@pytest.mark.parametrize(
    ("only", "string", "expected"),
    [
        ("boolean", StringInference(), BooleanType()),
        ("integer", StringInference(), LongType()),
        ("number", StringInference(), DoubleType()),
        ("fractional", StringInference(), DoubleType()),  # the runtime's word for numbers that are never integers
        ("array", StringInference(), StringType()),
        ("object", StringInference(), StringType()),
        ("string", StringInference(), StringType()),
        ("string", StringInference(content_encoding="base64"), BinaryType()),
        ("string", StringInference(content_encoding="base64", format="date"), BinaryType()),
        ("string", StringInference(format="date"), DateType()),
        ("string", StringInference(format="date-time"), TimestamptzType()),
        ("string", StringInference(format="time"), StringType()),
        ("string", StringInference(format="uuid"), StringType()),
        ("string", StringInference(format="duration"), StringType()),
        ("string", StringInference(format="made-up"), StringType()),
        ("string", StringInference(content_encoding="base32"), StringType()),
    ],
)
@pytest.mark.parametrize("is_key", [True, False])
@pytest.mark.parametrize("null", [(), ("null",)])
def test_a_location_of_one_type_has_the_column_of_that_type(
    only: str, string: StringInference, expected: PrimitiveType, is_key: bool, null: tuple[str, ...]
) -> None:
    assert type_of(*null, only, string=string, is_key=is_key) == expected


def test_every_entry_of_the_table_is_reached() -> None:
    for (only, kind), expected in COLUMN_TYPES.items():
        encoding, text_format = ("base64", "") if kind == "base64" else ("", kind)
        assert type_of(only, string=StringInference(text_format, content_encoding=encoding)) == expected


@pytest.mark.parametrize("types", [pair for size in (2, 3, 6) for pair in combinations(ALL_TYPES, size)])
def test_several_types_are_kept_as_text(types: tuple[str, ...]) -> None:
    assert type_of(*types, "null", string=StringInference("date-time")) == StringType()


@pytest.mark.parametrize("types", [(), ("null",)])
def test_a_location_that_is_only_null_has_no_column(types: tuple[str, ...]) -> None:
    assert type_of(*types) is None


@pytest.mark.parametrize("text_format", NUMERIC_STRINGS)
def test_numeric_strings_are_numbers_unless_they_are_a_key(text_format: str) -> None:
    string = StringInference(text_format)
    expected = DoubleType() if text_format == "number" else LongType()
    assert type_of("string", string=string) == expected
    assert type_of("integer", "string", "null", string=string) == expected
    assert type_of("string", string=string, is_key=True) == StringType()
    assert type_of("integer", "string", string=string, is_key=True) == StringType()


@pytest.mark.parametrize(
    ("inference", "hints"),
    [
        (Inference(("string",), string=StringInference("integer", max_length=38)), True),
        (Inference(("null", "string"), string=StringInference("integer", max_length=19)), True),
        (Inference(("string",), string=StringInference("integer", max_length=18)), False),
        (Inference(("string",), string=StringInference("integer")), False),
        (Inference(("integer",), numeric=NumericInference(has_maximum=True, maximum=2.0**64)), True),
        (Inference(("integer",), numeric=NumericInference(has_minimum=True, minimum=-(2.0**64))), True),
        (Inference(("integer",), numeric=NumericInference(True, -(2.0**63), True, 2.0**63)), False),
        (Inference(("integer",), string=StringInference(max_length=38)), False),
        (Inference(("string",), string=StringInference(max_length=38)), False),
        (Inference(("number",), numeric=NumericInference(has_maximum=True, maximum=2.0**64)), False),
    ],
)
def test_the_reason_of_a_long_says_how_to_keep_integers_beyond_it(inference: Inference, hints: bool) -> None:
    field = Projection("/n", "n", inference=inference)
    [_, told] = list_constraints(Candidate(collection(ID, field), {}, True))
    assert ('{"decimal": {"precision": 38, "scale": 0}}' in told.constraint.reason) is hints
    if hints:
        check_text("reasons", "integers that a long may not hold", told.constraint.reason)


def test_fractional_numbers_are_numeric_strings_only_beside_the_format_number() -> None:
    assert type_of("integer", "number", "string", string=StringInference("number")) == DoubleType()
    assert type_of("integer", "number", "string", string=StringInference("integer")) == StringType()
    assert type_of("boolean", "string", string=StringInference("number")) == StringType()


@pytest.mark.parametrize("setting", STRING_SETTINGS)
@pytest.mark.parametrize("types", [("integer",), ("boolean",), ("string",), ("object", "number")])
def test_a_field_config_keeps_anything_as_text(setting: str, types: tuple[str, ...]) -> None:
    string = StringInference("date-time")
    assert type_of(*types, string=string, field_config={setting: True}) == StringType()


@pytest.mark.parametrize("types", [("integer",), ("number", "null"), ("integer", "number", "string")])
def test_a_field_config_makes_numbers_decimals(types: tuple[str, ...]) -> None:
    for precision, scale in ((1, 0), (1, 1), (20, 4), (38, 0), (38, 38)):
        config = {"decimal": {"precision": precision, "scale": scale}}
        assert type_of(*types, string=StringInference("number"), field_config=config) == DecimalType(precision, scale)
    assert type_of(*types, string=StringInference("number"), field_config={"decimal": None}) != DecimalType(20, 4)
    assert type_of("null", field_config={"decimal": {"precision": 20, "scale": 4}}) is None


@pytest.mark.parametrize(
    "field_config",
    [None, {}, [], "castToString", 1, {"castToString": False}, {"castToString": "yes"}, {"somethingElse": True}],
)
def test_a_field_config_that_is_not_understood_changes_nothing(field_config: Json) -> None:
    assert type_of("integer", field_config=field_config) == LongType()


@pytest.mark.parametrize(
    ("types", "exists", "default", "expected"),
    [
        (("string",), Exists.MUST, None, True),
        (("string", "null"), Exists.MUST, None, False),
        (("string",), Exists.MAY, None, False),
        (("string",), Exists.MAY, "x", True),
        (("string", "null"), Exists.MAY, "x", False),
        (("integer",), Exists.IMPLICIT, 0, True),
        (("string",), Exists.IMPLICIT, None, False),
        (("string",), Exists.INVALID, None, False),
        (("string",), Exists.CANNOT, None, False),
        ((), Exists.MUST, None, False),
    ],
)
def test_a_column_is_required_where_no_document_can_leave_it_null(
    types: tuple[str, ...], exists: Exists, default: Json, expected: bool
) -> None:
    assert is_required(projection("f", *types, exists=exists, default=default)) is expected


def test_every_projection_of_a_key_location_is_a_key_and_so_is_a_field_that_was_chosen_as_one() -> None:
    renamed = projection("other name", "integer", ptr="/id")
    region = projection("region", "string")
    bound = collection(renamed, region)
    assert [each.has_key_location for each in Candidate(bound, {}, True).fields] == [True, False]
    assert [each.has_key_location for each in Candidate(bound, {}, True, group_by=("region",)).fields] == [True, True]
