"""The keywords of JSON schemas with error texts of our own. Those of jsonschema quote values, which may be secrets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator, ValidationError, validators

from connector.config.values import PATTERN_DEMANDS
from protocol.flow import Json

TYPE_DEMANDS: Final[Mapping[str, str]] = {
    "array": "must be a list",
    "boolean": "must be true or false",
    "integer": "must be a whole number",
    "number": "must be a number",
    "object": "must be an object",
    "string": "must be a string",
}


def _type(validator: Any, types: Json, instance: Json, schema: Json) -> Iterator[ValidationError]:
    allowed = [types] if isinstance(types, str) else types
    if not any(validator.is_type(instance, name) for name in allowed):
        choice = f" with {schema['discriminator']['propertyName']}" if "discriminator" in schema else ""
        yield ValidationError(f"{TYPE_DEMANDS[allowed[0]]}{choice}")


def _required(_validator: Any, names: Json, instance: Json, _: Json) -> Iterator[ValidationError]:
    for name in names:
        if isinstance(instance, dict) and name not in instance:
            yield ValidationError("is required", path=[name])


def _min_length(_validator: Any, length: Json, instance: Json, _: Json) -> Iterator[ValidationError]:
    if isinstance(instance, str) and len(instance) < length:
        yield ValidationError("must not be empty")


def _minimum(validator: Any, minimum: Json, instance: Json, _: Json) -> Iterator[ValidationError]:
    if validator.is_type(instance, "number") and instance < minimum:
        yield ValidationError(f"must be at least {minimum}")


def _maximum(validator: Any, maximum: Json, instance: Json, _: Json) -> Iterator[ValidationError]:
    if validator.is_type(instance, "number") and instance > maximum:
        yield ValidationError(f"must be at most {maximum}")


def _pattern(_validator: Any, pattern: Json, instance: Json, _: Json) -> Iterator[ValidationError]:
    # In JSON schemas, $ is the end of the text. In Python, it is also the place before a line break at the end.
    if isinstance(instance, str) and not re.search(pattern.replace("$", r"\Z"), instance):
        yield ValidationError(PATTERN_DEMANDS[pattern])


def _enum(validator: Any, values: Json, instance: Json, schema: Json) -> Iterator[ValidationError]:
    if instance not in values and validator.is_type(instance, schema["type"]):  # otherwise `type` complains
        yield ValidationError(f"must be one of {', '.join(map(repr, values))}")


def _property_names(validator: Any, names: Json, instance: Json, _: Json) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for name in instance:
            yield from validator.descend(name, names, path=name)


def _additional_properties(validator: Any, allowed: Json, instance: Json, schema: Json) -> Iterator[ValidationError]:
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for name in instance if isinstance(instance, dict) else ():
        if name in known or any(re.search(pattern, name) for pattern in patterns):
            continue
        if allowed is False:
            yield ValidationError("is not a known property", path=[name])
        else:
            yield from validator.descend(instance[name], allowed, path=name)


def _one_of(validator: Any, branches: Json, instance: Json, schema: Json) -> Iterator[ValidationError]:
    """Check only the branch that the discriminator names. The errors of the others would be misleading."""
    if not isinstance(instance, dict):
        return
    discriminator = schema["discriminator"]["propertyName"]
    by_choice = {branch["properties"][discriminator]["const"]: branch for branch in branches}
    choice = instance.get(discriminator)
    if isinstance(choice, str) and choice in by_choice:
        yield from validator.descend(instance, by_choice[choice])
    else:
        yield ValidationError(f"must be one of {', '.join(map(repr, by_choice))}", path=[discriminator])


KEYWORDS: Final = {
    "type": _type,
    "required": _required,
    "minLength": _min_length,
    "minimum": _minimum,
    "maximum": _maximum,
    "pattern": _pattern,
    "enum": _enum,
    "propertyNames": _property_names,
    "additionalProperties": _additional_properties,
    "oneOf": _one_of,
}
ConfigValidator: Final = validators.extend(Draft202012Validator, KEYWORDS)
