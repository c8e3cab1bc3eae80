"""JSON values that parsers accept, but that other code cannot handle."""

import json
from typing import Final

from protocol.flow import Json

DEEPEST: Final = 200  # levels. A function that calls itself for each level fails at less than a thousand.


def is_nested_deeply(value: Json) -> bool:
    """Whether there are more than 200 objects and arrays within each other. One that contains itself has no end."""
    level: list[Json] = [[value]]
    for _ in range(DEEPEST + 1):
        inner = (each for outer in level for each in (outer.values() if isinstance(outer, dict) else outer))
        # In YAML, several places can have the same object.
        level = [*{id(each): each for each in inner if isinstance(each, dict | list)}.values()]
        if not level:
            return False
    return True


def has_half_pair(value: Json) -> bool:
    """Whether a string has half of a surrogate pair. That is no character, and no text in UTF-8 can have it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
