"""What ends is fetched anew before it does, and used on where that fails."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from connector.host import refresh
from connector.host.errors import RetryableError
from connector.host.redaction import hide_obtained
from connector.host.refresh import SHORT_LIFE, Lease, Refreshed

HOUR = 3600.0
SECRET = "planted-secret"


class Clock:
    """Stands still until a test moves it. A test may also set it, as a person or a time server does."""

    def __init__(self) -> None:
        self.now = 1e9
        self.was_set_by = 0.0

    def time(self) -> float:
        return self.now + self.was_set_by

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(refresh, "time", clock)
    return clock


class Server:
    """Grants numbers for an hour, unless it is down."""

    def __init__(self, clock: Clock) -> None:
        self.granted = 0
        self.is_down = False
        self._clock = clock

    def grant(self) -> Lease[int]:
        if self.is_down:
            raise RetryableError(f"down: {SECRET}")
        self.granted += 1
        return Lease.until(self.granted, self._clock.now + HOUR)


@pytest.fixture
def server(clock: Clock) -> Server:
    return Server(clock)


@pytest.mark.parametrize(("later", "value"), [(0.0, 1), (HOUR / 2 - 1, 1), (HOUR / 2, 2), (2 * HOUR, 2)])
def test_a_value_is_renewed_when_half_of_its_life_is_over(
    clock: Clock, server: Server, later: float, value: int
) -> None:
    renewed = Refreshed("a number", server.grant)
    assert renewed.current().value == 1
    clock.now += later
    assert renewed.current().value == renewed.current().value == value


def test_a_value_without_an_end_is_fetched_once(clock: Clock) -> None:
    values = iter([1])
    renewed = Refreshed("a number", lambda: Lease.until(next(values), None))
    assert renewed.current().value == 1
    clock.now += 1e9
    assert renewed.current().value == 1


def test_a_value_that_is_there_already_is_used_first(clock: Clock, server: Server) -> None:
    renewed = Refreshed("a number", server.grant, first=Lease.until(0, clock.now + HOUR))
    assert renewed.current().value == 0
    clock.now += HOUR
    assert renewed.current().value == 1


def test_what_cannot_be_renewed_is_used_to_its_end_and_tried_again_meanwhile(
    clock: Clock, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    renewed = Refreshed("a number", server.grant)
    renewed.current()
    hide_obtained(SECRET)
    server.is_down = True
    clock.now += HOUR / 2
    with caplog.at_level(logging.WARNING):
        assert [renewed.current().value for _ in range(3)] == [1, 1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "a number: not refreshed (RetryableError: down: ***), still valid for 1800 s"
    ]
    clock.now += HOUR / 2
    with pytest.raises(RetryableError):
        renewed.current()
    server.is_down = False
    assert renewed.current().value == 2


@pytest.mark.parametrize(("later", "value"), [(HOUR / 20 - 1, 1), (HOUR / 20, 2)])
def test_what_cannot_be_renewed_is_tried_again_after_a_tenth_of_the_time_that_is_left(
    clock: Clock, server: Server, later: float, value: int
) -> None:
    renewed = Refreshed("a number", server.grant, first=server.grant())
    clock.now += HOUR / 2
    server.is_down = True
    assert renewed.current().value == 1
    server.is_down = False
    clock.now += later
    assert renewed.current().value == value


def test_what_was_refused_is_not_used_again(server: Server) -> None:
    renewed = Refreshed("a number", server.grant)
    renewed.current()
    renewed.discard()
    assert renewed.current().value == 2


def test_a_clock_that_is_ahead_of_the_server_s_costs_requests_and_no_failure(clock: Clock, server: Server) -> None:
    def grant() -> Lease[int]:
        return Lease.until(server.grant().value, clock.now - HOUR)

    renewed = Refreshed("a number", grant)
    assert [renewed.current().value for _ in range(3)] == [1, 2, 3]


def test_a_value_is_renewed_after_the_machine_was_suspended(clock: Clock, server: Server) -> None:
    """Meanwhile one clock stands still."""
    renewed = Refreshed("a number", server.grant, first=server.grant())
    clock.was_set_by = HOUR / 2
    assert renewed.current().value == 2


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
def test_a_clock_that_is_set_meanwhile_keeps_no_value_beyond_its_end(
    clock: Clock, server: Server, seconds: float
) -> None:
    renewed = Refreshed("a number", server.grant, first=server.grant())
    clock.was_set_by = seconds
    clock.now += HOUR / 2
    assert renewed.current().value == 2


def test_a_clock_that_is_set_back_delays_no_further_attempt(clock: Clock, server: Server) -> None:
    renewed = Refreshed("a number", server.grant, first=server.grant())
    clock.was_set_by = -HOUR
    clock.now += HOUR / 2
    server.is_down = True
    assert renewed.current().value == 1
    server.is_down = False
    clock.now += HOUR / 20
    assert renewed.current().value == 2


def test_a_clock_that_is_set_back_keeps_no_value_that_cannot_be_renewed(clock: Clock, server: Server) -> None:
    renewed = Refreshed("a number", server.grant, first=server.grant())
    clock.was_set_by = -HOUR
    clock.now += HOUR
    server.is_down = True
    with pytest.raises(RetryableError):
        renewed.current()


@pytest.mark.parametrize("left", [None, 0, 2, SHORT_LIFE])
def test_many_threads_fetch_once(clock: Clock, left: float | None) -> None:
    """Also while a value is valid for seconds only: a request might outlive it."""

    class SlowServer(Server):
        def grant(self) -> Lease[int]:
            waiting.wait(1)  # another thread that used the older value would have set it
            return super().grant()

    waiting = threading.Event()
    server = SlowServer(clock)
    renewed = Refreshed("a number", server.grant, None if left is None else Lease(0, clock.now + left, clock.now))
    barrier = threading.Barrier(8)
    values: list[int] = []

    def use(wait: Callable[[], int]) -> None:
        wait()
        values.append(renewed.current().value)
        waiting.set()

    threads = [threading.Thread(target=use, args=(barrier.wait,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [1] * 8


class HangingServer(Server):
    """It answers when it is told to."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.is_asked, self.answers = threading.Event(), threading.Event()

    def grant(self) -> Lease[int]:
        self.is_asked.set()
        assert self.answers.wait(60)
        return super().grant()


def test_a_server_that_hangs_holds_up_one_thread_until_the_value_has_expired(clock: Clock) -> None:
    server = HangingServer(clock)
    first = Lease.until(0, clock.now + HOUR)
    renewed = Refreshed("a number", server.grant, first)
    clock.now += HOUR / 2
    with ThreadPoolExecutor() as threads:
        held_up = threads.submit(renewed.current)
        assert server.is_asked.wait(60)
        try:
            meanwhile = threads.submit(renewed.current).result(timeout=10)
            assert (meanwhile.value, meanwhile.expires_at) == (0, first.expires_at)
            assert meanwhile.seconds_left == HOUR / 20, "who uses it does not ask again at once"
            clock.now += HOUR / 2
            waiting = threads.submit(renewed.current)
        finally:
            server.answers.set()
        assert (held_up.result().value, waiting.result().value) == (1, 1)


def test_while_a_server_hangs_all_threads_have_the_same_lease_until_it_is_due(clock: Clock) -> None:
    """A task ends its data file when it gets another one."""
    server = HangingServer(clock)
    renewed = Refreshed("a number", server.grant, Lease.until(0, clock.now + HOUR))
    clock.now += HOUR / 2
    with ThreadPoolExecutor() as threads:
        held_up = threads.submit(renewed.current)
        assert server.is_asked.wait(60)
        try:
            first = renewed.current()
            clock.now += HOUR / 20 - 1
            assert renewed.current() == first
            clock.now += 1
            later = renewed.current()
            assert (later.value, later.seconds_left) == (0, HOUR / 20 * 0.9)
        finally:
            server.answers.set()
        assert held_up.result() == renewed.current()
