"""The type of a projection's column: one table from inferred types to Iceberg types."""

from typing import Final

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.evolution.field_config import DECIMAL_SETTING, MAX_PRECISION, FieldConfig
from protocol.flow import Exists, Inference, Projection

# By string format: the types that a numeric string may have, and the type of its column.
NUMERIC_STRINGS: Final[dict[str, tuple[frozenset[str], PrimitiveType]]] = {
    **dict.fromkeys(
        ("integer", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        (frozenset({"integer", "string"}), LongType()),
    ),
    "number": (frozenset({"number", "integer", "string"}), DoubleType()),
}

# The same for Estuary's S3 Iceberg connector, which makes columns of text of all others.
_PUBLIC_NUMERIC_STRINGS: Final = {"integer": {"integer", "string"}, "number": {"number", "string"}}

_LONG_DIGITS: Final = len(str(2**63))
_NUMBERS: Final = {"integer", "number"}

# By a location's only type, and for strings their content encoding, else their format. Everything else becomes text.
COLUMN_TYPES: Final[dict[tuple[str, str], PrimitiveType]] = {
    ("boolean", ""): BooleanType(),
    ("integer", ""): LongType(),
    ("number", ""): DoubleType(),
    ("string", "base64"): BinaryType(),
    ("string", "date"): DateType(),
    ("string", "date-time"): TimestamptzType(),
}

_EXACT: Final = {
    (frozenset({"boolean"}), BooleanType()),
    (frozenset({"integer"}), LongType()),
    (frozenset({"integer"}), IntegerType()),
    (frozenset({"string"}), StringType()),
}


def choose_type(projection: Projection, config: FieldConfig, has_key_location: bool) -> PrimitiveType | None:
    """Choose the type of the projection's column; None if only null is allowed.

    `has_key_location` says whether its location is part of the key. The field need not be selected as a key.
    """
    inference = projection.inference
    types = list_types_besides_null(inference)
    if config.is_string:
        return StringType()
    if types and config.decimal:
        return config.decimal
    if not has_key_location and is_numeric_string(inference):
        return NUMERIC_STRINGS[inference.string.format][1]
    if not types:
        return None
    if len(types) > 1:
        return StringType()
    (only,) = types
    return COLUMN_TYPES.get((only, _string_kind(inference) if only == "string" else ""), StringType())


def is_required(projection: Projection) -> bool:
    """Whether every document has a value for the column."""
    inference = projection.inference
    has_value = inference.exists is Exists.MUST or inference.default is not None
    return has_value and bool(inference.types) and "null" not in inference.types


def tells_keys_apart(projection: Projection, column_type: PrimitiveType) -> bool:
    """Whether different values of a key's location always have different values in its column.

    A column of text does not tell 7 from "7", and a timestamp has many texts.
    """
    return (list_types_besides_null(projection.inference), column_type) in _EXACT


def list_types_besides_null(inference: Inference) -> frozenset[str]:
    """The JSON types of the values. Flow calls numbers of which none is an integer `fractional`."""
    return frozenset("number" if each == "fractional" else each for each in inference.types) - {"null"}


def is_numeric_string(inference: Inference) -> bool:
    """Whether all strings are numbers, and all other values are numbers too."""
    allowed, _ = NUMERIC_STRINGS.get(inference.string.format, (frozenset[str](), None))
    types = list_types_besides_null(inference)
    return bool(types) and types <= allowed


def is_text_of_public_connector(projection: Projection, config: FieldConfig, has_key_location: bool) -> bool:
    """Whether the field has a column of numbers, and Estuary's S3 Iceberg connector gives it one of text: it has fewer
    pairs of types and formats."""
    inference = projection.inference
    is_number = not has_key_location and not config.is_string and not config.decimal and is_numeric_string(inference)
    types = {*inference.types} - {"null"}
    return is_number and "string" in types and not types <= _PUBLIC_NUMERIC_STRINGS.get(inference.string.format, set())


def may_exceed_long(inference: Inference) -> bool:
    """Whether the schema allows integers beyond 64 bits: it says how long strings may be, or how large numbers."""
    string, numeric = inference.string, inference.numeric
    is_long = "string" in inference.types and string.max_length >= _LONG_DIGITS
    is_large = numeric.has_maximum and numeric.maximum > 2.0**63
    return is_long or is_large or (numeric.has_minimum and numeric.minimum < -(2.0**63))


def find_decimal_problem(projection: Projection, config: FieldConfig, has_key_location: bool) -> str:
    """Find what is wrong with a field config that asks for a column of decimals; "" if nothing is."""
    if not config.decimal and not config.has_malformed_decimal:
        return ""
    wrong = _explain_wrong_decimal(projection, config, has_key_location)
    return f'field {projection.field!r} has {{"{DECIMAL_SETTING}": …}} in its field config, {wrong}' if wrong else ""


def _explain_wrong_decimal(projection: Projection, config: FieldConfig, has_key_location: bool) -> str:
    types, string_format = list_types_besides_null(projection.inference), projection.inference.string.format
    if config.has_malformed_decimal:
        return (
            'which must be {"precision": P, "scale": S}: P digits in all, '
            f"1 to {MAX_PRECISION}, and S of them behind the point, 0 to P."
        )
    if config.is_string:
        return "and another setting that makes it a string. Remove one of the two."
    if has_key_location and types != {"integer"}:
        has_strings = "string" in types
        why = "two different strings may be the same number" if has_strings else "only integers can be decimals there"
        return f"but is part of the key, and {why}. Remove the setting."
    if not types <= _NUMBERS | {"string"}:
        return (
            "but its values are not all numbers. Remove the setting, or allow only numbers in the collection's schema."
        )
    if "string" in types and string_format not in NUMERIC_STRINGS:
        return (
            "but may be any string. Remove the setting, or give its strings `format: number` in the collection's "
            "schema."
        )
    return ""


def _string_kind(inference: Inference) -> str:
    string = inference.string
    return string.content_encoding if string.content_encoding == "base64" else string.format
