"""How long files are left alone whose compaction has failed: each further failure doubles their pause."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FIRST_PAUSE: Final = 300.0  # seconds after a failure
LONGEST_PAUSE: Final = 7200.0


def double_pause(pause: float) -> float:
    """Return the pause after one more failure."""
    return min(2 * pause, LONGEST_PAUSE)


@dataclass(frozen=True)
class _Pause:
    seconds: float
    end: float


class FailurePauses:
    """The data files of groups that could not be compacted, and the pause of each."""

    def __init__(self) -> None:
        self._pauses: dict[str, _Pause] = {}

    def begin(self, paths: Iterable[str]) -> None:
        """Begin a pause of each of these files. Pauses that have ended long ago are forgotten."""
        now = time.monotonic()
        self._pauses = {path: each for path, each in self._pauses.items() if now - each.end <= LONGEST_PAUSE}
        for path in paths:
            last = self._pauses.get(path)
            seconds = double_pause(last.seconds) if last else FIRST_PAUSE
            self._pauses[path] = _Pause(seconds, now + seconds)

    def are_over(self, paths: Iterable[str]) -> bool:
        """Whether none of these files has a pause now."""
        now = time.monotonic()
        return all(path not in self._pauses or self._pauses[path].end <= now for path in paths)
