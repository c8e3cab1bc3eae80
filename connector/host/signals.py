"""Ends the process in order, without losing anything, on SIGINT, on SIGTERM and when stdout is closed."""

import os
import select
import signal
import threading
from typing import Final

UNREAD: Final = signal.SIGUSR1  # ours: SIGPIPE would also come from any socket that is closed at the other end
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, UNREAD)

_taken: Final[list[int]] = []  # the signal for which Stopped was raised


class Stopped(BaseException):
    """The process was asked to stop. This is not an Exception, so that no handler takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        # The shell's convention: a container's PID 1 cannot die of a signal itself.
        self.exit_status = 128 + (signal.SIGPIPE if number == UNREAD else number)


def install(wire: int) -> None:
    """Raise Stopped in the main thread when a signal comes, or when the reader of the wire is gone."""
    for number in STOPPING:
        signal.signal(number, _stop)
    threading.Thread(target=_watch, args=(wire,), name="stdout-watch", daemon=True).start()


def raise_again() -> None:
    """Raise Stopped if a signal has come and the process still runs: Python drops what is raised in a __del__."""
    if _taken:
        raise Stopped(_taken[0])


def _stop(number: int, _frame: object) -> None:
    for ignored in STOPPING:
        signal.signal(
            ignored, signal.SIG_IGN
        )  # only the first one counts: nothing may interrupt the end of the process
    _taken.append(number)
    raise Stopped(number)


def _watch(wire: int) -> None:
    watch = select.poll()
    watch.register(wire, 0)  # poll always reports a closed pipe
    ((_, reported),) = watch.poll()
    if not reported & select.POLLNVAL:  # macOS cannot watch a device, such as /dev/null
        os.kill(os.getpid(), UNREAD)
