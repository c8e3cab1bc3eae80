"""Strings that must not be shown, and where a config has them."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from connector.host.redaction import hide_obtained
from protocol.flow import Json

# In an address that is not secret as a whole. It may have no scheme, and a password may contain @.
USER_AND_PASSWORD: Final = r"(?:^|//)([^/:\s]*:[^/\s]*)@"


class Secret:
    """A string that only `reveal` shows. Its repr hides it, logs and errors redact it, and no serializer accepts it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value
        hide_obtained(value)

    def reveal(self) -> str:
        """Return the string itself, for the client that needs it."""
        hide_obtained(self._value)  # again: while it is used, it is not forgotten for newer ones
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


def secret_values(config: Json, schema: Json, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the secrets of a config, which may be wrong in any way."""
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
            yield from re.findall(USER_AND_PASSWORD, config)


def _schemas_of(name: str, form: Mapping[str, Json]) -> Iterator[Json]:
    if name in form.get("properties", {}):
        yield form["properties"][name]
    yield from (schema for pattern, schema in form.get("patternProperties", {}).items() if re.search(pattern, name))
