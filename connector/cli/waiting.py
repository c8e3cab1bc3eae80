"""Shows on a terminal that a command still works."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Final, TextIO, TypeVar

T = TypeVar("T")

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
INTERVAL: Final = 0.1  # seconds
CLEAR_LINE: Final = "\r\x1b[K"


class WaitingLine:
    """The last line of a terminal: the step that runs, and for how long. Shows nothing in a pipe or a file."""

    def __init__(self, terminal: TextIO | None) -> None:
        self._terminal = terminal if terminal and terminal.isatty() else None

    def show(self, name: str, work: Callable[[], T]) -> T:
        """Do the work. Meanwhile, the line shows the name."""
        if self._terminal is None:
            return work()
        done = threading.Event()
        shown = threading.Thread(target=self._draw, args=(self._terminal, name, done), name="waiting", daemon=True)
        shown.start()
        try:
            return work()
        finally:
            done.set()
            shown.join()

    def _draw(self, terminal: TextIO, name: str, done: threading.Event) -> None:
        started = time.monotonic()
        frame = 0
        while not done.wait(INTERVAL):
            print(
                f"{CLEAR_LINE}{FRAMES[frame % len(FRAMES)]} {name} {time.monotonic() - started:.0f} s",
                end="",
                file=terminal,
                flush=True,
            )
            frame += 1
        print(CLEAR_LINE, end="", file=terminal, flush=True)


def on_stderr() -> WaitingLine:
    """Return the line on stderr: stdout has the command's output."""
    return WaitingLine(sys.stderr)
