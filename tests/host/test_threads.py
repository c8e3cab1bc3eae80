"""Calls in threads tell their errors, and are waited for."""

import tracemalloc
from functools import partial
from threading import Event, Semaphore, Timer

import pytest

from connector.host.threads import AHEAD, AT_ONCE, StartedCalls, map_in_threads
from support.sessions.processes import wait_until


def test_the_results_of_many_calls_are_in_order() -> None:
    assert map_in_threads(str, range(2 * AHEAD + 1), "many") == [*map(str, range(2 * AHEAD + 1))]


def test_a_slow_call_keeps_no_other_waiting_however_many_there_are() -> None:
    """One table may be compacted for hours, while thousands of others are to be maintained."""
    last = Event()

    def wait_for_last(number: int) -> bool:
        if number == 2 * AHEAD:
            last.set()
        return number > 0 or last.wait(60)

    assert all(map_in_threads(wait_for_last, range(2 * AHEAD + 1), "many"))


def test_the_first_error_of_many_calls_is_raised_and_no_call_begins_after_it() -> None:
    begun, failing = list[int](), {AHEAD // 2, AHEAD + 1}

    def fail(number: int) -> None:
        begun.append(number)
        if number in failing:
            raise ValueError(number)

    with pytest.raises(ValueError, match=f"^{AHEAD // 2}$"):
        map_in_threads(fail, range(4 * AHEAD), "many")
    assert len(begun) < 2 * AHEAD


def test_the_files_of_a_large_table_take_little_memory_while_they_are_looked_at() -> None:
    """There may be millions, and a million took more than a gigabyte."""
    names = [f"s3://lake/data/{number:09}.parquet" for number in range(20_000)]
    tracemalloc.start()
    try:
        map_in_threads(len, names, "many")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


def test_the_error_of_a_started_call_is_raised_while_others_are_made() -> None:
    """Those of a store that hangs may take minutes."""
    calls, may_end = StartedCalls(limit=3), Event()
    calls.start(may_end.wait, 1)
    calls.start(partial(int, "no number"), 1)
    for use in (calls.finish, calls.check, partial(calls.start, print, 1), calls.finish):
        with pytest.raises(ValueError, match="no number"):
            use()
    may_end.set()


def test_started_calls_that_do_not_fail_are_no_error() -> None:
    done = list[str]()
    with StartedCalls(limit=3) as calls:
        calls.check()
        calls.finish()
        for name in ("first", "second"):
            calls.start(partial(done.append, name), 1)
        calls.finish()
        calls.check()
        assert sorted(done) == ["first", "second"]


def test_started_calls_are_waited_for_before_the_limit_is_passed() -> None:
    calls, done, may_end = StartedCalls(limit=10), list[int](), Event()

    def wait() -> None:
        may_end.wait()
        done.append(1)

    calls.start(wait, 6)
    Timer(0.1, may_end.set).start()
    calls.start(lambda: None, 5)
    assert done == [1]


def test_calls_that_have_ended_do_not_count_for_the_limit() -> None:
    may_end = Event()
    deadline = Timer(20, may_end.set)
    deadline.start()
    with StartedCalls(limit=10) as calls:
        calls.start(may_end.wait, 4)
        calls.start(lambda: None, 6)
        assert wait_until(lambda: any(call.done() for call in calls._started))
        calls.start(lambda: None, 6)
        assert not may_end.is_set()
        may_end.set()
    deadline.cancel()


def test_of_started_calls_the_first_error_is_told() -> None:
    has_failed = Event()

    def fail_later() -> None:
        has_failed.wait(60)
        raise ValueError("second")

    with StartedCalls(limit=2) as calls:  # whose end waits for both
        calls.start(fail_later, 1)
        calls.start(partial(int, "first"), 1)
        assert wait_until(lambda: calls._error is not None)
        has_failed.set()
    with pytest.raises(ValueError, match="first"):
        calls.check()


def test_after_a_failure_started_calls_have_ended_and_others_do_not_begin() -> None:
    begun, may_end, ended = Semaphore(0), Event(), list[int]()

    def wait() -> None:
        begun.release()
        may_end.wait()
        ended.append(1)

    with pytest.raises(KeyError), StartedCalls(limit=100) as calls:  # noqa: PT012
        for _ in range(AT_ONCE + 3):
            calls.start(wait, 1)
        for _ in range(AT_ONCE):
            begun.acquire()
        Timer(0.1, may_end.set).start()
        raise KeyError
    assert ended == [1] * AT_ONCE
