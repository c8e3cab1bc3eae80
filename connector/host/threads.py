"""Calls in threads.

A signal does not wait for the calls of `map_in_threads`. `StartedCalls` waits for calls that have begun, so that files
can be deleted after them. `call_within` is for calls that have no time limit.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Final, Self, TypeVar

from connector.host import signals

AT_ONCE: Final = 8  # each call waits for a catalog or a store most of the time
AHEAD: Final = 1_000  # calls that are made or wait for a thread; each takes a kilobyte, and there may be millions

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(call: Callable[[T], R], things: Iterable[T], name: str, at_once: int = AT_ONCE) -> list[R]:
    """Return the result of each call, in order, or raise the first exception. `name` is that of the threads.

    If a signal interrupts this, it does not wait for running calls: they may hang on a network for longer than the
    process may take to end.
    """
    pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
    results, submitted, free = list[R](), deque[Future[R]](), threading.Semaphore(AHEAD)
    try:
        for thing in things:
            free.acquire()  # of any call, so that a slow one keeps no other waiting
            while submitted and submitted[0].done():
                results.append(submitted.popleft().result())
            submitted.append(pool.submit(call, thing))
            submitted[-1].add_done_callback(lambda _: free.release())
        results += (each.result() for each in submitted)
        return results
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def call_within(seconds: float, call: Callable[[], R]) -> R:
    """Return what a call returns, or raise TimeoutError after so many seconds. The call goes on in its thread then,
    and does not keep the process from ending. For `ending_if_it_hangs`, the caller does not hang meanwhile."""
    called: Future[R] = Future()

    def run() -> None:
        try:
            called.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            called.set_exception(error)

    thread = threading.Thread(target=run, name="limited", daemon=True)
    thread.start()
    for _ in range(int(seconds / signals.LOOK_PAUSE)):
        thread.join(signals.LOOK_PAUSE)  # each wait takes a little time of the processor
    return called.result(seconds % signals.LOOK_PAUSE)


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
        wait(self._started, return_when=FIRST_EXCEPTION)
        self.check()
        self._started = {}
