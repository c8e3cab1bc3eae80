"""Ends the process in order, without losing anything, on SIGINT, SIGTERM and SIGHUP, and when stdout is closed. A
worker of Spark also ends when it hangs.
"""

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, ParamSpec, TypeVar

from connector.host.errors import UserError

UNREAD: Final = signal.SIGUSR1  # ours: SIGPIPE would also come from any socket that is closed at the other end
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, UNREAD)
# nohup ignores one of them, and a shell that runs something in the background the other: they stay ignored.
_MAY_BE_IGNORED: Final = (signal.SIGINT, signal.SIGHUP)
ENDED_BY_SIGTERM: Final = "a process of the connector ends, because it got SIGTERM"
ENDED_BECAUSE_IT_HANGS: Final = "a process of the connector ends, because it has not gone on for an hour"
LOOKS: Final = 60  # in a row that find no progress
LOOK_PAUSE: Final = 60.0  # seconds
_PAUSE: Final = 0.05  # seconds

_taken: Final[list[int]] = []  # the signal for which Stopped was raised
_waits: Final = threading.Event()  # while this process waits for another one of the connector

P = ParamSpec("P")
R = TypeVar("R")


class Stopped(BaseException):
    """The process was asked to stop. This is not an Exception, so that no handler takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        # The shell's convention: a container's PID 1 cannot die of a signal itself.
        self.exit_status = 128 + (signal.SIGPIPE if number == UNREAD else number)


def install(wire: int | None = None) -> None:
    """Raise Stopped in the main thread when a signal comes, or when the reader of the wire is gone."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)  # Python writes the number of each signal to it
    for number in STOPPING:
        if number not in _MAY_BE_IGNORED or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    threading.Thread(target=_watch, args=(wire, woken), name="stop-watch", daemon=True).start()


def announce_sigterm(work: Callable[P, R]) -> Callable[P, R]:
    """Return the same work, in which SIGTERM ends the process as usual, but after a line on stderr. The process's
    parent may not learn how it has ended."""

    def announced(*args: P.args, **kwargs: P.kwargs) -> R:
        signal.signal(signal.SIGTERM, _announce)
        return work(*args, **kwargs)

    return announced


@contextmanager
def ending_if_it_hangs() -> Iterator[None]:
    """End this process, after a line on stderr, if the block does not go on for an hour, such as at a disk of the
    network that does not answer. Only Linux says whether a thread goes on: whether it takes time of a processor."""
    if sys.platform != "linux":
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_watch_work, args=(threading.get_ident(), ended), name="work-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def waiting() -> Iterator[None]:
    """While the block waits for another process of the connector, this one does not hang."""
    _waits.set()
    try:
        yield
    finally:
        _waits.clear()


@contextmanager
def writing_to_stdout() -> Iterator[None]:
    """Raise Stopped if the reader of stdout is gone, and UserError if stdout takes nothing for another reason."""
    try:
        yield
    except BrokenPipeError:
        raise Stopped(UNREAD) from None
    except OSError as error:
        raise UserError(
            f"stdout cannot be written to: {error.strerror}. If it is a file, make room on its disk, or choose a file "
            "on another disk. Then start again."
        ) from error


def raise_again() -> None:
    """Raise Stopped if a signal has come and the process still runs. Python drops an exception of a __del__."""
    if _taken:
        raise Stopped(_taken[0])


def _stop(number: int, _frame: object) -> None:
    for ignored in STOPPING:  # only the first one counts: nothing may interrupt the end of the process
        signal.signal(ignored, signal.SIG_IGN)
    _taken.append(number)
    raise Stopped(number)


def _announce(number: int, _frame: object) -> None:
    os.write(2, f"{ENDED_BY_SIGTERM}\n".encode())
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _watch_work(worker: int, ended: threading.Event) -> None:
    clock = time.pthread_getcpuclockid(worker)
    before, looks = -1, 0
    while not ended.wait(LOOK_PAUSE):
        now = time.clock_gettime_ns(clock)
        looks = looks + 1 if now == before and not _waits.is_set() else 0
        before = now
        if looks == LOOKS:
            os.write(2, f"{ENDED_BECAUSE_IT_HANGS}\n".encode())
            _shut_connections()
            os._exit(1)


def _shut_connections() -> None:
    """End all connections. The kernel may keep this process and its connections until a disk answers, and the other
    processes must not wait for that."""
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it is no connection
            socket.socket(fileno=int(descriptor)).shutdown(socket.SHUT_RDWR)


def _watch(wire: int | None, woken: int) -> None:
    """Send the signal to the main thread until it is taken.

    Python takes signals in the main thread only. One that comes just before this thread begins to wait, or that the
    kernel gives to another thread, does not end the wait.
    """
    number = _wait_for_reason(wire, woken)
    main = threading.main_thread().ident
    assert main is not None, "it has started"
    while not _taken:
        signal.pthread_kill(main, number)
        time.sleep(_PAUSE)


def _wait_for_reason(wire: int | None, woken: int) -> int:
    """Return the number of the first signal, or UNREAD when the wire is closed."""
    watch = select.poll()
    watch.register(woken, select.POLLIN)
    if wire is not None:
        watch.register(wire, 0)  # poll always reports a closed pipe
    while True:
        for descriptor, reported in watch.poll():
            if descriptor == woken:
                return os.read(woken, 1)[0]
            if not reported & select.POLLNVAL:
                return UNREAD
            watch.unregister(descriptor)  # macOS cannot watch a device, such as /dev/null
