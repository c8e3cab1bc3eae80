"""What is said of a setting that is unknown at its place: which one was probably meant, or where it belongs."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from connector.config.catalog_properties import settings_instead
from connector.config.endpoint_config import ENDPOINT_SCHEMA
from connector.config.resource_config import RESOURCE_SCHEMA
from connector.config.rules import Path, at
from protocol.flow import Json

# How much two names must have in common, from 0 to 1. Of the many names at other places, one may be near by chance.
SAME: Final = 1.0
VERY_NEAR: Final = 0.8
NEAR: Final = 0.62


def explain_unknown_setting(path: Path, holder: Json, of_holder: Json, config: Json, schema: Json) -> str:
    """Say what to do about the setting at `path`: `holder` is the object that has it, and `of_holder` its schema."""
    *place, name = path
    own = of_holder["properties"]
    within = _list_settings(of_holder, holder, name, tuple(place), has_every_choice=True)
    around = [other for other in _list_settings(schema, config, name) if other[:-1] == path[: len(other) - 1]]
    others = [other for other in (*within, *around) if other[:-1] != tuple(place) and other != path[: len(other)]]
    instead = settings_instead(own)
    if name in instead and any(f"/{'/'.join(other)}" == instead[name] for other in around):
        return f"cannot be set here: use {instead[name]}"
    is_object = isinstance(holder[name], dict)
    alike = [each for each in own if ("object" in own[each].get("type", ())) == is_object]
    missing = [each for each in alike if each not in holder]
    places = _name_places(others, schema)
    unknown = "is not a property that PyIceberg reads here" if instead else "is not a known property"
    for names, nearness in ((own, SAME), (alike, VERY_NEAR), (missing, NEAR)):
        if meant := _find_nearest(name, names, nearness):
            return f"{unknown}; did you mean {meant}?"
    if belongs := _find_nearest(name, places, SAME):
        return f"{unknown} here; set {places[belongs]}"
    if meant := _find_nearest(name, places, VERY_NEAR):
        return f"{unknown} here; did you mean {places[meant]}?"
    return f"{unknown}; the known properties are {', '.join(own)}"


def _list_settings(
    schema: Json, config: Json, name: str, place: Path = (), *, has_every_choice: bool = False
) -> Iterator[Path]:
    """List the paths of all settings that the config may have, those of outer objects first. With choices, they are
    those of the choice that the config has made, or of every choice. If a map can have the name, the name in it is a
    setting, too.
    """
    inner = []
    for form in (schema, *_list_choices(schema, config, has_every_choice=has_every_choice)):
        for property, of in form.get("properties", {}).items():
            yield (*place, property)
            inner.append((property, of))
        if any(re.search(pattern, name) for pattern in _list_patterns(form)):
            yield (*place, name)
    for property, of in inner:
        yield from _list_settings(of, at(config, property), name, (*place, property), has_every_choice=has_every_choice)


def _list_choices(schema: Json, config: Json, *, has_every_choice: bool) -> list[Json]:
    """List the schemas of the choices, that of the config's own first."""
    choices = schema.get("oneOf", [])
    tag = schema["discriminator"]["propertyName"] if choices else ""
    chosen = [each for each in choices if each["properties"][tag]["const"] == at(config, tag)]
    return chosen + [each for each in choices if has_every_choice and each not in chosen]


def _list_patterns(schema: Json) -> Iterator[str]:
    """List the patterns of the names that a map may have."""
    yield from [schema["propertyNames"]["pattern"]] if "propertyNames" in schema else []
    yield from schema.get("patternProperties", ()) if schema.get("additionalProperties") is False else []


def _name_places(paths: Iterable[Path], schema: Json) -> Mapping[str, str]:
    """Say where each setting belongs, by its name: in the config, or else in the other one of the two configs."""
    own, other = "in the endpoint config", "in the config of a binding"
    others = [*_list_settings(RESOURCE_SCHEMA, {}, "")]
    if schema is RESOURCE_SCHEMA:
        own, other = other, own
        others = [*_list_settings(ENDPOINT_SCHEMA, {}, "")]
    places: dict[str, str] = {}
    for path, of in (*((path, own) for path in paths), *((path, other) for path in others)):
        places.setdefault(path[-1], f"/{'/'.join(path)} {of}")
    return places


def _find_nearest(name: str, names: Iterable[str], nearness: float) -> str | None:
    simple: dict[str, str] = {}
    for each in names:
        simple.setdefault(_simplify(each), each)
    nearest = get_close_matches(_simplify(name), simple, n=1, cutoff=nearness)
    return simple[nearest[0]] if nearest else None


def _simplify(name: str) -> str:
    """Return a name as it is compared: connectors differ in how they write the words of a name."""
    return name.lower().replace("_", "").replace("-", "")
