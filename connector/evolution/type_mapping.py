"""Which column a projection becomes: one table from inferred types to Iceberg types."""

import re
from typing import Final

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

from protocol.flow import Collection, Exists, FieldSelection, Inference, Json, Projection

MAX_NAME: Final = 255  # characters of a column's name
CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x08\x0a-\x1f]")  # without tabs

STRING_SETTINGS: Final = ("ignoreStringFormat", "castToString")
COLUMN_SETTING: Final = "column"
DECIMAL_SETTING: Final = "decimal"
MAX_PRECISION: Final = 38  # of Iceberg's decimals

# By string format: the types that make a location a numeric string, and the type of its column.
NUMERIC_STRINGS: Final[dict[str, tuple[frozenset[str], PrimitiveType]]] = {
    "integer": (frozenset({"integer", "string"}), LongType()),
    "int32": (frozenset({"integer", "string"}), LongType()),
    "int64": (frozenset({"integer", "string"}), LongType()),
    "uint32": (frozenset({"integer", "string"}), LongType()),
    "uint64": (frozenset({"integer", "string"}), LongType()),
    "sint32": (frozenset({"integer", "string"}), LongType()),
    "sint64": (frozenset({"integer", "string"}), LongType()),
    "number": (frozenset({"number", "integer", "string"}), DoubleType()),
}

# By a location's only type, and for strings their content encoding, else their format. Anything else is kept as text.
COLUMN_TYPES: Final[dict[tuple[str, str], PrimitiveType]] = {
    ("boolean", ""): BooleanType(),
    ("integer", ""): LongType(),
    ("number", ""): DoubleType(),
    ("string", "base64"): BinaryType(),
    ("string", "date"): DateType(),
    ("string", "date-time"): TimestamptzType(),
}


def column_type(projection: Projection, field_config: Json, is_key: bool) -> PrimitiveType | None:
    """The type of the projection's column; None if it cannot be materialized."""
    inference = projection.inference
    types = types_besides_null(inference)
    if is_cast_to_string(field_config):
        return StringType()
    if types and (decimal := decimal_type(field_config)):
        return decimal
    if not is_key and is_numeric_string(inference):
        return NUMERIC_STRINGS[inference.string.format][1]
    if not types:
        return None
    if len(types) > 1:
        return StringType()
    (only,) = types
    return COLUMN_TYPES.get((only, _string_kind(inference) if only == "string" else ""), StringType())


def list_selected_fields(selection: FieldSelection) -> tuple[str, ...]:
    """Every selected field, in the order of its columns."""
    return selection.keys + selection.values + ((selection.document,) if selection.document else ())


def column_name(field: str, field_config: Json) -> str:
    """The name of a field's column: the field's own, unless its field config has another; "" if that is no name."""
    name = field_config.get(COLUMN_SETTING) if isinstance(field_config, dict) else None
    return field if name is None else name if isinstance(name, str) else ""


def decimal_type(field_config: Json) -> DecimalType | None:
    """The type that {"decimal": {"precision": …, "scale": …}} in a field config asks for, if it is a valid one."""
    match field_config.get(DECIMAL_SETTING) if isinstance(field_config, dict) else None:
        case {"precision": int(precision), "scale": int(scale), **others} if not others:
            are_numbers = type(precision) is type(scale) is int  # a boolean is an int, too
            if are_numbers and 1 <= precision <= MAX_PRECISION and 0 <= scale <= precision:
                return DecimalType(precision, scale)
    return None


def is_required(projection: Projection) -> bool:
    """Whether no document can leave the column null."""
    inference = projection.inference
    has_value = inference.exists is Exists.MUST or inference.default is not None
    return has_value and bool(inference.types) and "null" not in inference.types


def is_key(projection: Projection, collection: Collection, keys: tuple[str, ...]) -> bool:
    """Whether the location is part of the key. All its projections are then mapped alike, selected as key or not."""
    return projection.ptr in collection.key or projection.field in keys


def types_besides_null(inference: Inference) -> frozenset[str]:
    return frozenset(inference.types) - {"null"}


def is_numeric_string(inference: Inference) -> bool:
    allowed, _ = NUMERIC_STRINGS.get(inference.string.format, (frozenset[str](), None))
    types = types_besides_null(inference)
    return bool(types) and types <= allowed


def is_cast_to_string(field_config: Json) -> bool:
    return isinstance(field_config, dict) and any(field_config.get(setting) is True for setting in STRING_SETTINGS)


def _string_kind(inference: Inference) -> str:
    string = inference.string
    return string.content_encoding if string.content_encoding == "base64" else string.format
