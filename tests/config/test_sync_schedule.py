"""The schedule of commits: the configs of Estuary's other materializations are read, and clocks may change."""

import re
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Final

import pytest

from connector.config.endpoint_config import ENDPOINT_SCHEMA
from connector.config.settings import parse
from connector.config.sync_schedule import INTERVALS, SLOW_INTERVAL, SyncFrequency, SyncSchedule, parse_time_zone
from connector.host.errors import InvalidConfigError
from protocol.flow import Json

LOCAL: Final = {"namespace": "ns", "catalog": {"catalog_type": "Local"}}
OFFICE: Final = {
    "syncFrequency": "5m",
    "timezone": "America/New_York",
    "fastSyncStartTime": "09:00",
    "fastSyncStopTime": "17:00",
    "fastSyncEnabledDays": "M-F",
}
FAST: Final = timedelta(minutes=5)
HOUR: Final = timedelta(hours=1)


def parse_schedule(**settings: str) -> SyncSchedule:
    return parse({**LOCAL, "syncSchedule": settings}, [])[0].sync_schedule


def parse_days(text: str) -> str:
    """The days of the week that are enabled, from Sunday to Saturday."""
    enabled = parse_schedule(**{**OFFICE, "fastSyncEnabledDays": text}).days
    return "".join(name if day in enabled else "-" for day, name in enumerate("SMTWtFs"))


def interval_at(moment: str, **changed: str) -> timedelta:
    """How long a transaction that is ready at this moment keeps the next one waiting."""
    return parse_schedule(**{**OFFICE, **changed}).find_interval(datetime.fromisoformat(moment).astimezone(UTC))


def complaints(endpoint: Json) -> list[str]:
    with pytest.raises(InvalidConfigError) as raised:
        parse(endpoint, [])
    return str(raised.value).splitlines()


def test_the_names_are_those_of_other_materializations() -> None:
    schema = ENDPOINT_SCHEMA["properties"]["syncSchedule"]
    assert [*schema["properties"]] == [*OFFICE]
    frequencies = schema["properties"]["syncFrequency"]["enum"]
    assert frequencies == ["0s", "30s", "1m", "2m30s", "5m", "15m", "20m", "30m", "1h", "2h", "4h"]
    assert "required" not in schema


def test_each_frequency_is_the_interval_that_its_text_says() -> None:
    units = {"s": "seconds", "m": "minutes", "h": "hours"}
    parts = {each: re.findall(r"([0-9]+)([smh])", each) for each in SyncFrequency}
    said = {each: timedelta(**{units[unit]: int(number) for number, unit in parts[each]}) for each in parts}
    assert said == INTERVALS


def test_a_frequency_alone_always_holds() -> None:
    schedule = parse_schedule(syncFrequency="1h")
    moments = [datetime(2026, 1, 4 + day, hour, tzinfo=UTC) for day in range(7) for hour in range(24)]
    assert {schedule.find_interval(moment) for moment in moments} == {HOUR}


@pytest.mark.parametrize("settings", [{}, {"syncFrequency": None, "timezone": ""}, None])
def test_an_empty_schedule_is_none(settings: Json) -> None:
    """Flow's form may leave an empty object."""
    endpoint, _ = parse({**LOCAL, "upload_interval": "PT1M", "syncSchedule": settings}, [])
    assert endpoint.commit_interval == timedelta(minutes=1)


def test_the_default_upload_interval_contradicts_no_schedule() -> None:
    """Flow's form may fill it in."""
    endpoint, _ = parse({**LOCAL, "upload_interval": "PT5M", "syncSchedule": {"syncFrequency": "1h"}}, [])
    assert endpoint.commit_interval == SyncSchedule(SyncFrequency.HOURS_1)


def test_another_upload_interval_contradicts_a_schedule() -> None:
    [complaint] = complaints({**LOCAL, "upload_interval": "PT1H", "syncSchedule": {"syncFrequency": "1h"}})
    assert complaint.startswith("/upload_interval: must be removed: /syncSchedule is set")


@pytest.mark.parametrize("text", ["soon", 5])
def test_an_invalid_upload_interval_beside_a_schedule_is_one_problem(text: Json) -> None:
    [complaint] = complaints({**LOCAL, "upload_interval": text, "syncSchedule": {"syncFrequency": "1h"}})
    assert complaint.startswith("/upload_interval: must be a")


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-01-14T09:00:00-05:00", FAST),  # a Wednesday
        ("2026-01-14T16:59:59-05:00", FAST),
        ("2026-01-14T17:00:00-05:00", SLOW_INTERVAL),
        ("2026-01-14T04:00:00-05:00", SLOW_INTERVAL),
        ("2026-01-14T04:59:30-05:00", SLOW_INTERVAL),
        ("2026-01-14T05:00:00-05:00", SLOW_INTERVAL),  # ends as the fast sync begins
        ("2026-01-14T05:00:01-05:00", SLOW_INTERVAL - timedelta(seconds=1)),
        ("2026-01-14T08:59:59.5-05:00", timedelta(seconds=0.5)),
        ("2026-01-16T20:00:00-05:00", SLOW_INTERVAL),  # a Friday
        ("2026-01-17T08:00:00-05:00", SLOW_INTERVAL),
        ("2026-01-18T12:00:00-05:00", SLOW_INTERVAL),
        ("2026-01-19T08:00:00-05:00", HOUR),
    ],
)
def test_the_frequency_holds_at_the_times_and_days_of_the_fast_sync(moment: str, expected: timedelta) -> None:
    assert interval_at(moment) == expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (
            "2026-01-13T23:30:00+00:00",
            timedelta(minutes=30),
        ),  # a Tuesday: the days of the clock count, not those of UTC
        ("2026-01-14T00:30:00+00:00", FAST),
        ("2026-01-14T01:59:00+00:00", FAST),
        ("2026-01-14T02:00:00+00:00", SLOW_INTERVAL),
        ("2026-01-14T20:00:00+00:00", 2 * HOUR),
        ("2026-01-14T23:00:00+00:00", FAST),
        ("2026-01-15T00:30:00+00:00", SLOW_INTERVAL),  # a Thursday is slow for the whole day
    ],
)
def test_a_fast_sync_over_midnight_is_at_both_ends_of_its_days(moment: str, expected: timedelta) -> None:
    over_midnight = {"fastSyncStartTime": "22:00", "fastSyncStopTime": "02:00", "fastSyncEnabledDays": "W"}
    assert interval_at(moment, timezone="UTC", **over_midnight) == expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        # On 2026-03-08 at 2:00, the clocks of New York are set to 3:00.
        ("2026-03-08T00:30:00-05:00", 1.5 * HOUR),  # to 2:30, which no clock shows: the fast sync begins at 3:00
        ("2026-03-08T03:00:00-04:00", FAST),
        ("2026-03-08T03:30:00-04:00", SLOW_INTERVAL),
        # On 2026-11-01 at 2:00, they are set back to 1:00.
        ("2026-11-01T00:30:00-04:00", 3 * HOUR),  # to 2:30, in standard time
        ("2026-11-01T01:45:00-04:00", 1.75 * HOUR),
        ("2026-11-01T01:45:00-05:00", 0.75 * HOUR),
        ("2026-11-01T02:30:00-05:00", FAST),
    ],
)
def test_a_fast_sync_begins_when_clocks_show_its_time_or_a_later_one(moment: str, expected: timedelta) -> None:
    night = {"fastSyncStartTime": "2:30", "fastSyncStopTime": "3:30", "fastSyncEnabledDays": ""}
    assert interval_at(moment, **night) == expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-11-01T00:45:00-04:00", timedelta(minutes=30)),
        ("2026-11-01T01:15:00-04:00", FAST),
        ("2026-11-01T01:40:00-04:00", timedelta(minutes=35)),
        ("2026-11-01T01:15:00-05:00", FAST),
        ("2026-11-01T01:40:00-05:00", SLOW_INTERVAL),
    ],
)
def test_a_fast_sync_of_the_hour_that_clocks_show_twice_is_there_twice(moment: str, expected: timedelta) -> None:
    hour = {"fastSyncStartTime": "1:15", "fastSyncStopTime": "1:35", "fastSyncEnabledDays": "Su"}
    assert interval_at(moment, **hour) == expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-03-06T08:00:00-05:00", HOUR),
        ("2026-03-09T08:00:00-04:00", HOUR),
        ("2026-03-09T16:59:00-04:00", FAST),
        ("2026-03-09T17:00:00-04:00", SLOW_INTERVAL),
        ("2026-11-02T08:00:00-05:00", HOUR),
    ],
)
def test_the_times_of_day_are_the_same_before_and_after_a_change_of_the_clocks(
    moment: str, expected: timedelta
) -> None:
    assert interval_at(moment) == expected


def test_an_offset_from_utc_has_no_changes_of_the_clocks() -> None:
    assert interval_at("2026-01-14T02:30:00+00:00", timezone="+05:30") == HOUR
    assert interval_at("2026-07-14T02:30:00+00:00", timezone="+05:30") == HOUR
    assert interval_at("2026-07-14T17:30:00+00:00", timezone="-09:30") == HOUR


def test_the_frequency_of_a_fast_sync_may_be_that_of_the_slow_one() -> None:
    assert interval_at("2026-01-14T16:00:00-05:00", syncFrequency="4h") == SLOW_INTERVAL


@pytest.mark.parametrize(
    ("text", "enabled"),
    [
        ("M-F", "-MTWtF-"),
        ("M,W,F", "-M-W-F-"),
        ("Su-T,Th-S", "SMT-tFs"),
        ("Su, T, Th, S", "S-T-t-s"),
        ("S", "------s"),
        ("", "SMTWtFs"),
    ],
)
def test_days_are_read_as_other_materializations_read_them(text: str, enabled: str) -> None:
    assert parse_days(text) == enabled


@pytest.mark.parametrize("text", ["Th-M", "M,M", "F,M", "M-W,W", "Mo", "m", "M-", "-M", "M-W-F", ",", "M;F", " "])
def test_other_days_are_refused(text: str) -> None:
    [complaint] = complaints({**LOCAL, "syncSchedule": {**OFFICE, "fastSyncEnabledDays": text}})
    assert complaint.startswith("/syncSchedule/fastSyncEnabledDays: must be days of the week in this order")


@pytest.mark.parametrize(
    "text", ["Mars/Base", "America", "EST5", "+5:30", "+24:00", "-00:60", "../x", "/etc/passwd", "a\0"]
)
def test_other_time_zones_are_refused(text: str) -> None:
    [complaint] = complaints({**LOCAL, "syncSchedule": {**OFFICE, "timezone": text}})
    assert complaint.startswith("/syncSchedule/timezone: must be the IANA name of a time zone")


@pytest.fixture
def no_time_zones_of_the_system() -> Iterator[None]:
    zoneinfo.reset_tzpath([])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("no_time_zones_of_the_system")
def test_time_zones_are_known_where_the_system_has_none() -> None:
    """As in a bare container."""
    assert str(parse_time_zone("America/New_York")) == "America/New_York"


@pytest.mark.parametrize("text", ["24:00", "9", "09:60", "09:00:00", "9am", "-1:00", "9" * 40 + ":00", "09:00\n"])
def test_other_times_of_day_are_refused(text: str) -> None:
    [complaint] = complaints({**LOCAL, "syncSchedule": {**OFFICE, "fastSyncStopTime": text}})
    assert complaint.startswith("/syncSchedule/fastSyncStopTime: must be a time of day")


def test_a_time_of_day_may_have_one_digit() -> None:
    assert parse_schedule(**{**OFFICE, "fastSyncStartTime": "7:05"}).start == time(7, 5)
