"""The sync schedule: at which times of the week small transactions are committed how often.

It has the form of Estuary's other materializations, so that their configs can be used here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from connector.config.definition import Definition, Setting
from connector.config.values import TIME_OF_DAY

SLOW_INTERVAL: Final = timedelta(hours=4)  # outside of the fast sync
MINUTE: Final = timedelta(minutes=1)
DAYS: Final = ("Su", "M", "T", "W", "Th", "F", "S")
UTC_OFFSET: Final = re.compile(r"([+-])([01][0-9]|2[0-3]):([0-5][0-9])")


class SyncFrequency(StrEnum):
    """How often small transactions are committed."""

    AT_ONCE = "0s"
    SECONDS_30 = "30s"
    MINUTES_1 = "1m"
    MINUTES_2_30 = "2m30s"
    MINUTES_5 = "5m"
    MINUTES_15 = "15m"
    MINUTES_20 = "20m"
    MINUTES_30 = "30m"
    HOURS_1 = "1h"
    HOURS_2 = "2h"
    HOURS_4 = "4h"


INTERVALS: Final[Mapping[SyncFrequency, timedelta]] = {
    SyncFrequency.AT_ONCE: timedelta(0),
    SyncFrequency.SECONDS_30: timedelta(seconds=30),
    SyncFrequency.MINUTES_1: timedelta(minutes=1),
    SyncFrequency.MINUTES_2_30: timedelta(minutes=2, seconds=30),
    SyncFrequency.MINUTES_5: timedelta(minutes=5),
    SyncFrequency.MINUTES_15: timedelta(minutes=15),
    SyncFrequency.MINUTES_20: timedelta(minutes=20),
    SyncFrequency.MINUTES_30: timedelta(minutes=30),
    SyncFrequency.HOURS_1: timedelta(hours=1),
    SyncFrequency.HOURS_2: timedelta(hours=2),
    SyncFrequency.HOURS_4: timedelta(hours=4),
}


def parse_time_of_day(text: str) -> time:
    """Parse hours and minutes: 09:00 or 9:00."""
    hours, minutes = text.split(":")
    return time(int(hours), int(minutes))


def parse_time_zone(text: str) -> tzinfo:
    """Return the time zone of an IANA name, or of an offset from UTC."""
    if offset := UTC_OFFSET.fullmatch(text):
        sign, hours, minutes = offset.groups()
        return timezone(timedelta(hours=int(sign + hours), minutes=int(sign + minutes)))
    from zoneinfo import ZoneInfo  # imported here, because `spec` does not need it

    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            "must be the IANA name of a time zone, such as America/New_York, or an offset from UTC, such as +02:00"
        ) from None


def parse_days(text: str) -> frozenset[int]:
    """Return the numbers of days, from 0 for Sunday: M-F are the days from Monday to Friday."""
    days, previous = set[int](), -1
    try:
        for part in text.split(","):
            first, _, last = (name.strip() for name in part.partition("-"))
            begin = DAYS.index(first)
            end = DAYS.index(last) if "-" in part else begin
            if not previous < begin <= end:
                raise ValueError
            days.update(range(begin, end + 1))
            previous = end
    except ValueError:
        raise ValueError(
            f"must be days of the week in this order: {', '.join(DAYS)}, or ranges of them, such as M-F or Su-T,Th-S"
        ) from None
    return frozenset(days)


EVERY_DAY: Final = frozenset(range(len(DAYS)))


@dataclass(frozen=True)
class FastSync:
    """The times of the week at which the sync frequency holds, as the clocks of the time zone show them.

    If the stop is before the start, each of the days has two such times: until the stop, and from the start on.
    """

    zone: tzinfo
    start: time
    stop: time
    days: frozenset[int]

    def contains(self, moment: datetime) -> bool:
        """Whether the sync frequency holds at a moment."""
        local = moment.astimezone(self.zone)
        clock = local.time()
        if self.start < self.stop:
            is_between = self.start <= clock < self.stop
        else:
            is_between = clock >= self.start or clock < self.stop
        return is_between and local.isoweekday() % len(DAYS) in self.days

    def find_pause(self, moment: datetime) -> timedelta:
        """Return the time until the sync frequency holds again, or four hours if that is earlier.

        Clocks are asked minute by minute. So this is right also when clocks are changed.
        """
        minute = moment.replace(second=0, microsecond=0)
        while minute - moment < SLOW_INTERVAL:
            minute += MINUTE
            if self.contains(minute):
                return min(minute - moment, SLOW_INTERVAL)
        return SLOW_INTERVAL


class SyncSchedule(Definition, frozen=True):
    """How often small transactions are committed: always the same, or more often at certain times of the week."""

    frequency: Annotated[
        SyncFrequency | None,
        Setting(
            "Sync Frequency",
            "How often small transactions are committed: always, or during the fast sync if its times are set.",
        ),
    ] = msgspec.field(name="syncFrequency", default=None)
    zone: Annotated[
        tzinfo | None,
        Setting(
            "Timezone",
            "The time zone of the times and days below: an IANA name, such as America/New_York, or an offset from UTC, "
            "such as +02:00.",
            parse=parse_time_zone,
        ),
    ] = msgspec.field(name="timezone", default=None)
    start: Annotated[
        time | None,
        Setting(
            "Fast Sync Start Time",
            "The time of day at which the fast sync begins, such as 09:00. Before it, small transactions are committed "
            "every four hours.",
            pattern=TIME_OF_DAY,
            parse=parse_time_of_day,
        ),
    ] = msgspec.field(name="fastSyncStartTime", default=None)
    stop: Annotated[
        time | None,
        Setting(
            "Fast Sync Stop Time",
            "The time of day at which the fast sync ends, such as 17:00. After it, small transactions are committed "
            "every four hours.",
            pattern=TIME_OF_DAY,
            parse=parse_time_of_day,
        ),
    ] = msgspec.field(name="fastSyncStopTime", default=None)
    days: Annotated[
        frozenset[int],
        Setting(
            "Fast Sync Enabled Days",
            "The days of the week with a fast sync, such as M-F, or Su-T,Th-S. By default, all days have one.",
            parse=parse_days,
        ),
    ] = msgspec.field(name="fastSyncEnabledDays", default=EVERY_DAY)

    def find_interval(self, now: datetime) -> timedelta:
        """Return for how long a small transaction that is ready now keeps the next one waiting."""
        assert self.frequency, "a schedule without a frequency is not used"
        interval = INTERVALS[self.frequency]
        if self.zone is None or self.start is None or self.stop is None:
            return interval
        fast_sync = FastSync(self.zone, self.start, self.stop, self.days)
        return interval if fast_sync.contains(now) else fast_sync.find_pause(now)
