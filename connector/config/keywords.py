"""The keywords of JSON schemas, with error texts of our own. Those of jsonschema quote values, which may be secrets.

jsonschema would only find the parts of a schema. To import it takes a quarter of the time from the start of the process
to the start of the JVM. A test compares both.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Final, TypeAlias

from connector.config.catalog_properties import settings_instead
from connector.config.definition import properties
from connector.config.endpoint_config import ENDPOINT_SCHEMA, AdvancedOptions
from connector.config.resource_config import ResourceConfig
from connector.config.rules import Path, Problem
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
TYPES: Final[Mapping[str, type | UnionType]] = {
    "array": list,
    "number": int | float,
    "null": NoneType,
    "object": dict,
    "string": str,
}

# Where the properties of both configs belong. The names of advanced options come last: a binding has some of them too.
PLACES: Final[Mapping[str, str]] = {
    **{each.name: f"/{each.name} in the config of a binding" for each in properties(ResourceConfig)},
    **{name: f"/{name} in the endpoint config" for name in ENDPOINT_SCHEMA["properties"]},
    **{each.name: f"/advanced/{each.name} in the endpoint config" for each in properties(AdvancedOptions)},
}


def find_problems(schema: Json, value: Json, path: Path = ()) -> Iterator[Problem]:
    """Yield what is wrong with a value by its schema. Only the keywords that the schemas of configs have are known."""
    for keyword, demanded in schema.items():
        if keyword in KEYWORDS:
            yield from KEYWORDS[keyword](demanded, value, path, schema)


def _type(types: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    allowed = [types] if isinstance(types, str) else types
    if not any(_is(value, name) for name in allowed):
        yield Problem(path, TYPE_DEMANDS[allowed[0]])


def _is(value: Json, name: str) -> bool:
    """Whether a value has this type of JSON schemas. A number without fraction is an integer, as in 1.0."""
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return name in TYPES and isinstance(value, TYPES[name])


def _required(names: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    for name in names:
        if isinstance(value, dict) and name not in value:
            yield Problem((*path, name), "is required")


def _min_length(length: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    if isinstance(value, str) and len(value) < length:
        yield Problem(path, "must not be empty")


def _minimum(minimum: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    if _is(value, "number") and value < minimum:
        yield Problem(path, f"must be at least {minimum}")


def _maximum(maximum: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    if _is(value, "number") and value > maximum:
        yield Problem(path, f"must be at most {maximum}")


def _pattern(pattern: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    # In JSON schemas, $ is the end of the text. In Python, it is also the place before a line break at the end.
    if isinstance(value, str) and not re.search(pattern.replace("$", r"\Z"), value):
        yield Problem(path, PATTERN_DEMANDS[pattern])


def _enum(values: Json, value: Json, path: Path, schema: Json) -> Iterator[Problem]:
    if value not in values and _is(value, schema["type"]):  # otherwise `type` complains
        yield Problem(path, f"must be one of {', '.join(map(repr, values))}")


def _items(schema: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    for place, item in enumerate(value if isinstance(value, list) else ()):
        yield from find_problems(schema, item, (*path, str(place)))


def _properties(schemas: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    for name, schema in schemas.items() if isinstance(value, dict) else ():
        if name in value:
            yield from find_problems(schema, value[name], (*path, name))


def _pattern_properties(schemas: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    for pattern, schema in schemas.items() if isinstance(value, dict) else ():
        for name in value:
            if re.search(pattern, name):
                yield from find_problems(schema, value[name], (*path, name))


def _property_names(names: Json, value: Json, path: Path, _: Json) -> Iterator[Problem]:
    for name in value if isinstance(value, dict) else ():
        yield from find_problems(names, name, (*path, name))


def _additional_properties(allowed: Json, value: Json, path: Path, schema: Json) -> Iterator[Problem]:
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for name in value if isinstance(value, dict) else ():
        if name in known or any(re.search(pattern, name) for pattern in patterns):
            continue
        if allowed is False:
            yield Problem((*path, name), _unknown_property(name, known))
        else:
            yield from find_problems(allowed, value[name], (*path, name))


def _unknown_property(name: str, known: Mapping[str, Json]) -> str:
    settings = settings_instead(known)
    if name in settings:
        return f"cannot be set here: use {settings[name]}"
    unknown = "is not a property that PyIceberg reads here" if settings else "is not a known property"
    if name in PLACES and not settings:
        return f"{unknown} here; set {PLACES[name]}"
    lowered = {candidate.lower(): candidate for candidate in known}
    match get_close_matches(name.lower(), lowered, n=1, cutoff=0.5):
        case [nearest]:
            return f"{unknown}; did you mean {lowered[nearest]}?"
        case _:
            return f"{unknown}; the known properties are {', '.join(known)}"


def _one_of(branches: Json, value: Json, path: Path, schema: Json) -> Iterator[Problem]:
    """Check only the branch that the discriminator names. The errors of the others would be misleading."""
    if not isinstance(value, dict):
        return
    discriminator = schema["discriminator"]["propertyName"]
    by_choice = {branch["properties"][discriminator]["const"]: branch for branch in branches}
    choice = value.get(discriminator)
    if isinstance(choice, str) and choice in by_choice:
        yield from find_problems(by_choice[choice], value, path)
    else:
        yield Problem((*path, discriminator), f"must be one of {', '.join(map(repr, by_choice))}")


# What a keyword demands, the value, its path, and the schema that has the keyword.
Keyword: TypeAlias = Callable[[Json, Json, Path, Json], Iterator[Problem]]
KEYWORDS: Final[Mapping[str, Keyword]] = {
    "type": _type,
    "required": _required,
    "minLength": _min_length,
    "minimum": _minimum,
    "maximum": _maximum,
    "pattern": _pattern,
    "enum": _enum,
    "items": _items,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "propertyNames": _property_names,
    "additionalProperties": _additional_properties,
    "oneOf": _one_of,
}
