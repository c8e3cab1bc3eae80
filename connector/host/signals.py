"""SIGINT, SIGTERM and a closed stdout end the process at the next moment when nothing is lost."""

import os
import select
import signal
import threading
from typing import Final

UNREAD: Final = signal.SIGUSR1  # our own: SIGPIPE would also come from any socket that its peer has closed
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, UNREAD)

_taken: Final[list[int]] = []  # the signal that Stopped was raised for


class Stopped(BaseException):
    """We were asked to stop. Not an Exception: no handler on the way may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        # The shell's convention: a container's PID 1 cannot die of a signal itself.
        self.exit_status = 128 + (signal.SIGPIPE if number == UNREAD else number)


def install(wire: int) -> None:
    """Raise Stopped in the main thread when a signal comes, or when nobody reads the wire any more."""
    for number in STOPPING:
        signal.signal(number, _stop)
    threading.Thread(target=_watch, args=(wire,), name="stdout-watch", daemon=True).start()


def raise_again() -> None:
    """Raise Stopped if a signal has come and the process still runs: Python drops what is raised in a __del__."""
    if _taken:
        raise Stopped(_taken[0])


def _stop(number: int, _frame: object) -> None:
    for ignored in STOPPING:
        signal.signal(ignored, signal.SIG_IGN)  # the first one counts; the way out is not interrupted
    _taken.append(number)
    raise Stopped(number)


def _watch(wire: int) -> None:
    watch = select.poll()
    watch.register(wire, 0)  # only what poll always reports: the reader has gone
    watch.poll()
    os.kill(os.getpid(), UNREAD)
