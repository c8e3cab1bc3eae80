"""How long files are left alone whose compaction has failed: each further failure doubles their pause."""

import time
from collections.abc import Iterable
from typing import Final

FIRST_PAUSE: Final = 300.0  # seconds after a failure
LONGEST_PAUSE: Final = 7200.0


def double_pause(pause: float) -> float:
    """Return the pause after one more failure."""
    return min(2 * pause, LONGEST_PAUSE)


class FailurePauses:
    """The data files of groups that could not be compacted, and the pause of each."""

    def __init__(self) -> None:
        self._pauses: dict[str, float] = {}
        self._ends: dict[str, float] = {}

    def begin(self, paths: Iterable[str]) -> None:
        """Begin a pause of each of these files."""
        now = time.monotonic()
        for path in paths:
            pause = self._pauses.get(path, FIRST_PAUSE)
            self._ends[path] = now + pause
            self._pauses[path] = double_pause(pause)

    def are_over(self, paths: Iterable[str]) -> bool:
        """Whether none of these files has a pause now."""
        now = time.monotonic()
        return all(self._ends.get(path, now) <= now for path in paths)
