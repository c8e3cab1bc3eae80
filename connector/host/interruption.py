"""How maintenance is ended before it is done: by the end of the session, or of the command's time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


class InterruptedMaintenanceError(Exception):
    """Maintenance ends before it is done: the session has ended, or the time of the command is over."""


@dataclass(frozen=True)
class Interruption:
    """Tells long work when it has to end."""

    is_due: Callable[[], bool]

    def check(self) -> None:
        """Raise InterruptedMaintenanceError if the work has to end."""
        if self.is_due():
            raise InterruptedMaintenanceError


NEVER: Final = Interruption(lambda: False)
