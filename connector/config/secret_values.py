"""The secrets of an endpoint config: whatever its schema marks as secret, even where the config is wrong."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from connector.config.schema import ENDPOINT_SCHEMA
from connector.host.redaction import hide
from protocol.flow import Json

USER_AND_PASSWORD: Final = re.compile(r"//([^/@\s]*:[^/@\s]*)@")  # in an address that is not secret as a whole


def hide_secrets(config: Json) -> None:
    """To be called before anything else is done with a config."""
    for secret in secret_values(config, ENDPOINT_SCHEMA):
        hide(secret)


def secret_values(config: Json, schema: Json, *, is_secret: bool = False) -> Iterator[str]:
    match config:
        case dict():
            for name, member in config.items():
                marks = [each for form in (schema, *schema.get("oneOf", ())) for each in _schemas_of(name, form)]
                for mark in marks or [{}]:
                    yield from secret_values(member, mark, is_secret=is_secret or mark.get("secret", False))
        case list():
            for member in config:
                yield from secret_values(member, {}, is_secret=is_secret)
        case str() if is_secret:
            yield config
        case str():
            yield from USER_AND_PASSWORD.findall(config)


def _schemas_of(name: str, form: Mapping[str, Json]) -> Iterator[Json]:
    if name in form.get("properties", {}):
        yield form["properties"][name]
    yield from (schema for pattern, schema in form.get("patternProperties", {}).items() if re.search(pattern, name))
