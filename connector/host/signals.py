"""Ends the process in order, without losing anything, on SIGINT, SIGTERM and SIGHUP, and when stdout is closed. A
worker of Spark also ends when it hangs.

Calls in threads are here too. A signal does not wait for those of `map_in_threads`. `StartedCalls` waits for calls that
have begun, so that files can be deleted after them. `call_within` is for calls that have no time limit.
"""

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar

from connector.host.errors import UserError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

UNREAD: Final = signal.SIGUSR1  # ours: SIGPIPE would also come from any socket that is closed at the other end
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, UNREAD)
# nohup ignores one of them, and a shell that runs something in the background the other: they stay ignored.
_MAY_BE_IGNORED: Final = (signal.SIGINT, signal.SIGHUP)
ENDED_BY_SIGTERM: Final = "a process of the connector ends, because it got SIGTERM"
ENDED_BECAUSE_IT_HANGS: Final = "a process of the connector ends, because it has not gone on for an hour"
LOOKS: Final = 60  # in a row that find no progress
LOOK_PAUSE: Final = 60.0  # seconds
AT_ONCE: Final = 8  # calls in threads; each waits for a catalog or a store most of the time
_PAUSE: Final = 0.05  # seconds

_taken: Final[list[int]] = []  # the signal for which Stopped was raised
_waits: Final = threading.Event()  # while this process waits for another one of the connector

T = TypeVar("T")
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


def map_in_threads(call: Callable[[T], R], things: Iterable[T], name: str, at_once: int = AT_ONCE) -> list[R]:
    """Return the result of each call, in order, or raise the first exception. `name` is that of the threads.

    If a signal interrupts this, it does not wait for running calls: they may hang on a network for longer than the
    process may take to end.
    """
    from concurrent.futures import ThreadPoolExecutor  # `spec` needs none

    pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
    try:
        return list(pool.map(call, things))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def call_within(seconds: float, call: Callable[[], R]) -> R:
    """Return what a call returns, or raise TimeoutError after so many seconds. The call goes on in its thread then,
    and does not keep the process from ending. For `ending_if_it_hangs`, the caller does not hang meanwhile."""
    from concurrent.futures import Future

    called: Future[R] = Future()

    def run() -> None:
        try:
            called.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            called.set_exception(error)

    thread = threading.Thread(target=run, name="limited", daemon=True)
    thread.start()
    for _ in range(int(seconds / LOOK_PAUSE)):
        thread.join(LOOK_PAUSE)  # each wait takes a little time of the processor
    return called.result(seconds % LOOK_PAUSE)


class StartedCalls:
    """Makes calls in threads while the caller goes on, such as uploads. When one has failed, nothing waits for the
    others: each method raises its error."""

    def __init__(self, limit: int) -> None:
        """`limit` is the weight of all calls that are not finished, such as bytes in memory."""
        self._limit = limit
        self._pool: ThreadPoolExecutor | None = None
        self._started: dict[Future[None], int] = {}  # with their weights
        self._changing = threading.Lock()  # of all of the above
        self._error: BaseException | None = None  # of the first call that has failed

    def start(self, call: Callable[[], object], weight: int) -> None:
        """Start a call. If the limit is reached, the earlier ones are finished first."""
        from concurrent.futures import ThreadPoolExecutor

        with self._changing:
            self.check()
            self._started = {started: its for started, its in self._started.items() if not started.done()}
            if sum(self._started.values()) + weight > self._limit:
                self._finish()
            self._pool = self._pool or ThreadPoolExecutor(AT_ONCE, thread_name_prefix="started")
            self._started[self._pool.submit(self._call, call)] = weight

    def check(self) -> None:
        """Raise the error of a call that has failed, if there is one."""
        if self._error:
            raise self._error

    def finish(self) -> None:
        """Wait for all calls."""
        with self._changing:
            self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the calls that no thread has begun, and wait for the others."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            self._error = self._error or error
            raise

    def _finish(self) -> None:
        from concurrent.futures import FIRST_EXCEPTION, wait

        wait(self._started, return_when=FIRST_EXCEPTION)
        self.check()
        self._started = {}
