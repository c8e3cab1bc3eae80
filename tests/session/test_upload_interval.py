"""How long acknowledgements are held back."""

import os
import time as clocks
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import NoReturn
from zoneinfo import ZoneInfo

import pytest

from connector.config.sync_schedule import SyncFrequency, SyncSchedule
from connector.driver import hold_back
from connector.host import facts
from connector.host.signals import Stopped
from connector.session.upload_interval import QUICK_TRANSACTIONS, UploadInterval
from protocol.stdio import RequestReader

SMALL = 1000  # bytes
LARGE = 5000


def in_full_swing(rows: int | None = None) -> UploadInterval:
    """An interval after the first transactions of a session, of a row each."""
    interval = UploadInterval(timedelta(minutes=5), rows, LARGE)
    for _ in range(QUICK_TRANSACTIONS):
        interval.count_rows(1)
        assert interval.end_transaction(SMALL) == 0
    return interval


def delay_after(interval: UploadInterval, *runs: int, staged: int | None = SMALL) -> float:
    """The delay after a transaction with runs of so many rows."""
    for rows in runs:
        interval.count_rows(rows)
    return interval.end_transaction(staged)


def test_small_transactions_wait_for_the_interval_after_the_first_few() -> None:
    interval = in_full_swing()
    assert [interval.end_transaction(SMALL), interval.end_transaction(LARGE - 1)] == [300, 300]


def test_a_transaction_of_many_bytes_is_never_delayed() -> None:
    interval = in_full_swing()
    assert interval.end_transaction(LARGE) == 0
    assert interval.end_transaction(SMALL) == 300


def test_a_transaction_of_many_rows_is_never_delayed() -> None:
    interval = in_full_swing(rows=10)
    assert delay_after(interval, 9) == 300
    assert delay_after(interval, 4, 6) == 0
    assert delay_after(interval, 9) == 300, "the rows of earlier transactions do not count"
    assert delay_after(interval, 9, staged=None) == 0, "all of its rows were rejected"
    assert delay_after(interval, 9) == 300


def test_without_a_limit_by_rows_any_number_of_rows_waits() -> None:
    assert delay_after(in_full_swing(), 1 << 40) == 300


def test_a_transaction_without_rows_is_neither_delayed_nor_counted() -> None:
    interval = UploadInterval(timedelta(minutes=5), None, LARGE)
    assert [interval.end_transaction(None) for _ in range(10)] == [0] * 10
    assert interval.end_transaction(SMALL) == 0


def test_a_transaction_that_only_deletes_rows_waits_too() -> None:
    assert in_full_swing().end_transaction(0) == 300


def test_a_schedule_is_asked_when_a_transaction_ends_and_delays_the_same_transactions() -> None:
    zone = ZoneInfo("Europe/Berlin")
    clock = iter(datetime(2026, 7, 1, hour, 59, 30, tzinfo=zone).astimezone(UTC) for hour in (8, 9, 15, 16, 17))
    schedule = SyncSchedule(SyncFrequency.MINUTES_15, zone, time(9), time(17))
    interval = UploadInterval(schedule, None, LARGE, lambda: next(clock))
    for _ in range(QUICK_TRANSACTIONS):
        assert interval.end_transaction(SMALL) == 0
    assert interval.end_transaction(SMALL) == 30, "until the fast sync begins"
    assert interval.end_transaction(LARGE) == 0
    assert interval.end_transaction(None) == 0
    delays = [interval.end_transaction(SMALL) for _ in range(4)]
    assert delays == [15 * 60, 15 * 60, 15 * 60, 4 * 3600], (
        "also the last one of the day, which ends after the fast sync"
    )


def test_an_interval_of_zero_delays_nothing() -> None:
    interval = UploadInterval(timedelta(0), None, LARGE)
    assert [interval.end_transaction(SMALL) for _ in range(10)] == [0] * 10


HOURS = 14400.0  # seconds


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[facts.Fact]:
    told: list[facts.Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    return told


@pytest.fixture
def writing() -> Iterator[tuple[RequestReader, int]]:
    """A reader of requests, and the descriptor at which its requests are written."""
    reading, writing = os.pipe()
    requests = RequestReader(reading)
    yield requests, writing
    os.close(writing)
    requests.wait_for((), timeout=60)
    os.close(reading)


def test_an_answer_that_is_not_held_back_is_sent_at_once_and_nothing_is_told(
    told: list[facts.Fact], writing: tuple[RequestReader, int]
) -> None:
    sent: list[str] = []
    assert hold_back(0.0, writing[0], lambda: sent.append("sent")) == 0.0
    assert (sent, told) == (["sent"], [])


def test_a_flush_ends_the_wait_for_the_interval(told: list[facts.Fact], writing: tuple[RequestReader, int]) -> None:
    requests, descriptor = writing
    sent: list[str] = []
    os.write(descriptor, b'{"flush":{}}\n')
    before = clocks.time()
    held = hold_back(HOURS, requests, lambda: sent.append("sent"))
    assert sent == ["sent"]
    assert 0 < held < HOURS
    [fact] = told
    assert isinstance(fact, facts.HeldTransaction)
    assert before + HOURS <= fact.until <= clocks.time() + HOURS


def test_a_process_that_is_stopped_meanwhile_answers_first(
    writing: tuple[RequestReader, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> NoReturn:
        raise Stopped(15)

    sent: list[str] = []
    monkeypatch.setattr(writing[0], "wait_for", stop)
    with pytest.raises(Stopped):
        hold_back(HOURS, writing[0], lambda: sent.append("sent"))
    assert sent == ["sent"]
    monkeypatch.undo()
