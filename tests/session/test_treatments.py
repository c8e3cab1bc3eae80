"""A person is warned of treated values. Few rejected rows pass, many stop the task, however transactions are cut."""

import pytest

from connector.host.errors import TooManyRejectedError
from connector.host.logs import FIELDS
from connector.model.invalid_values import Tally, Treated, Treatment
from connector.session.treatments import RejectionLimit, TreatmentWarnings
from support.snapshots import check_text


def rejected(count: int, field: str = "qty") -> Tally:
    tally = Tally()
    tally.add(field, Treatment.REJECTED, Treated(count, f'key [7]: "x" of {field} is wrong'))
    tally.add(field, Treatment.CLAMPED, Treated(10_000))
    return tally


@pytest.mark.parametrize(
    ("landing", "bad", "ratio"),
    [
        (0, 100, 0.1),  # as though there were a thousand rows
        (1, 1, 0.1),
        (9_000, 1_000, 0.1),
        (0, 0, 0.0),
        (0, 1_000_000, 1.0),
    ],
)
def test_so_many_pass(landing: int, bad: int, ratio: float) -> None:
    RejectionLimit("shop.orders", ratio).check(landing, rejected(bad))


@pytest.mark.parametrize(
    ("landing", "bad", "ratio"),
    [
        (0, 101, 0.1),
        (500, 101, 0.1),
        (8_999, 1_001, 0.1),
        (1_000_000, 1, 0.0),
        (0, 1_000_000, 0.999),
    ],
)
def test_so_many_stop_the_task(landing: int, bad: int, ratio: float) -> None:
    with pytest.raises(TooManyRejectedError) as raised:
        RejectionLimit("shop.orders", ratio).check(landing, rejected(bad))
    assert (raised.value.rejected, raised.value.rows) == (bad, landing + bad)


def test_small_transactions_are_judged_together() -> None:
    limit = RejectionLimit("shop.orders", 0.1)
    for _ in range(10):
        limit.check(0, rejected(10))
    with pytest.raises(TooManyRejectedError, match="of the last 101 rows 101 were rejected"):
        limit.check(0, rejected(1))


def test_what_has_passed_excuses_nothing_that_comes_later() -> None:
    limit = RejectionLimit("shop.orders", 0.1)
    limit.check(1_000_000, Tally())
    with pytest.raises(TooManyRejectedError, match="of the last 300 rows 200 were rejected"):
        limit.check(100, rejected(200))


def test_the_error_says_which_fields_and_what_to_do() -> None:
    tally = Tally()
    for count, field in enumerate("abcde", start=100):
        tally.add_all(rejected(count, field))

    with pytest.raises(TooManyRejectedError) as raised:
        RejectionLimit("shop.orders", 0.25).check(500, tally)

    check_text("value_errors", "too many rejected rows", str(raised.value))


def test_a_value_that_does_not_land_as_it_was_sent_is_told_once_a_session_and_field(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nulled = Tally()
    nulled.add("note", Treatment.NULLED, Treated(4, "line 3"))
    warnings = TreatmentWarnings(["shop.a"])
    for _ in range(2):
        warnings.warn({0: nulled})
    [record] = caplog.records
    assert record.getMessage().startswith(
        "table shop.a, field 'note': 4 value(s) that do not fit the column became null"
    )
    assert getattr(record, FIELDS) == {"event": "nulled", "table": "shop.a", "field": "note", "count": 4}
