"""What is wrong at one place of a config."""

from dataclasses import dataclass
from typing import TypeAlias

from protocol.flow import Json

Place: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """What is wrong at one place of a config."""

    path: Place
    demand: str

    def __str__(self) -> str:
        return f"/{'/'.join(self.path)}: {self.demand}"

    def touches(self, path: Place) -> bool:
        """Whether one of the two places is in the other."""
        shorter = min(len(path), len(self.path))
        return path[:shorter] == self.path[:shorter]


def at(config: Json, *path: str) -> Json:
    """What a config has there, or None."""
    for name in path:
        config = config.get(name) if isinstance(config, dict) else None
    return config
