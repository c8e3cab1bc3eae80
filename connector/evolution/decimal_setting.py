"""What can be wrong with a field config that asks for a column of decimals."""

from typing import Final

from connector.evolution.type_mapping import (
    DECIMAL_SETTING,
    MAX_PRECISION,
    NUMERIC_STRINGS,
    decimal_type,
    is_cast_to_string,
    types_besides_null,
)
from protocol.flow import Json, Projection

_NUMBERS: Final = {"integer", "number"}


def problem_of(projection: Projection, field_config: Json, is_key: bool) -> str:
    """The problem in a sentence or two; "" if there is none."""
    if not isinstance(field_config, dict) or field_config.get(DECIMAL_SETTING) is None:
        return ""
    wrong = _wrong(projection, field_config, is_key)
    return f'field {projection.field!r} has {{"{DECIMAL_SETTING}": …}} in its field config, {wrong}' if wrong else ""


def _wrong(projection: Projection, field_config: Json, is_key: bool) -> str:
    types, string_format = types_besides_null(projection.inference), projection.inference.string.format
    if decimal_type(field_config) is None:
        return (
            'which must be {"precision": P, "scale": S}: P digits in all, '
            f"1 to {MAX_PRECISION}, of which S are behind the point, 0 to P."
        )
    if is_cast_to_string(field_config):
        return "and another setting there that makes it a string. Take one of the two out."
    if is_key and types != {"integer"}:
        return "but is part of the key, and strings that are different keys may be one number. Take the setting out."
    if not types <= _NUMBERS | {"string"}:
        return (
            "but its values are not all numbers. Take the setting out, or allow only numbers in the collection's "
            "schema."
        )
    if "string" in types and string_format not in NUMERIC_STRINGS:
        return (
            "but may be any string. Take the setting out, or give its strings `format: number` in the collection's "
            "schema."
        )
    return ""
