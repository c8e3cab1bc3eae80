"""How long acknowledgements are held back."""

from datetime import timedelta

from connector.driver import LARGE_TRANSACTION, QUICK_TRANSACTIONS, UploadInterval

SMALL = 1000


def in_full_swing() -> UploadInterval:
    interval = UploadInterval(timedelta(minutes=5))
    for _ in range(QUICK_TRANSACTIONS):
        assert interval.find_delay(SMALL) == 0
    return interval


def test_small_transactions_wait_for_the_interval_after_the_first_few() -> None:
    interval = in_full_swing()
    assert [interval.find_delay(SMALL), interval.find_delay(SMALL)] == [300, 300]


def test_a_large_transaction_is_never_delayed() -> None:
    interval = in_full_swing()
    assert interval.find_delay(LARGE_TRANSACTION) == 0
    assert interval.find_delay(SMALL) == 300


def test_a_transaction_without_rows_is_neither_delayed_nor_counted() -> None:
    interval = UploadInterval(timedelta(minutes=5))
    assert [interval.find_delay(None) for _ in range(10)] == [0] * 10
    assert interval.find_delay(SMALL) == 0


def test_a_transaction_that_only_deletes_rows_waits_too() -> None:
    assert in_full_swing().find_delay(0) == 300


def test_an_interval_of_zero_delays_nothing() -> None:
    interval = UploadInterval(timedelta(0))
    assert [interval.find_delay(SMALL) for _ in range(10)] == [0] * 10
