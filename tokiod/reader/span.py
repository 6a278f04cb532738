"""Time ranges of readers: [start, end) in UTC epoch seconds, from whatever a caller has: dates, datetimes, ISO 8601, epoch seconds, "-1h".

A time without a zone is refused unless the caller gives one: 2018-11-04 01:30 in Los Angeles is two instants, and an index of naive local
times was wrong by seven hours in pytokio. A date is the midnight with which its day begins.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

from tokiod.errors import nearest
from tokiod.reader.errors import UnclearTime
from tokiod.times import LATEST, iso

Time = dt.datetime | dt.date | str | float | np.datetime64
"""What callers may pass as a time."""

_AGO = re.compile(r"-\s*(\d+)\s*([smhdw])")
_LENGTH = re.compile(r"(\d+)\s*([smhdw]|min)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_EXAMPLE = "write it like 2018-01-28T08:00:00Z, 2018-01-28, -1h or now"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The time range [start, end), UTC epoch seconds. Raises UnclearTime unless it ends after it starts."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise UnclearTime(f"a span must end after it starts: {self}")

    def __str__(self) -> str:
        return f"[{iso(self.start)}, {iso(self.end)})"


def zone_of(timezone: str | dt.tzinfo) -> dt.tzinfo:
    """Return the time zone of an IANA name. Raises UnclearTime for an unknown name."""
    if isinstance(timezone, dt.tzinfo):
        return timezone
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        similar = nearest(timezone, available_timezones()) or "; use an IANA name such as America/Los_Angeles"
        raise UnclearTime(f"unknown time zone {timezone!r}{similar}") from None


def epoch(time: Time, zone: dt.tzinfo | None, *, now: float, site: dt.tzinfo | None = None) -> int:
    """Return the first whole epoch second at or after a time.

    zone: of times without one; site: of dates, if `zone` is None; now: epoch seconds. Raises UnclearTime.
    """
    seconds = _seconds(time, zone, site or zone, now)
    if not 0 <= seconds < LATEST:
        raise UnclearTime(f"{time!r} is before 1970 or too far in the future")
    return math.ceil(seconds)


def length(text: str | float) -> int:
    """Parse a length of time such as 90s, 15min, 1h or 1d to seconds. Raises UnclearTime."""
    if isinstance(text, str):
        if not (found := _LENGTH.fullmatch(text.strip())) or not int(found[1]):
            raise UnclearTime(f"{text!r} is not a length of time; write it like 90s, 15m, 1h or 1d")
        return int(found[1]) * _SECONDS[found[2]]
    if text < 1 or text != int(text):
        raise UnclearTime(f"{text!r} is not a whole number of seconds above zero")
    return int(text)


def _seconds(time: Time, zone: dt.tzinfo | None, site: dt.tzinfo | None, now: float) -> float:
    if isinstance(time, str):
        return _parsed(time.strip(), zone, site, now)
    if isinstance(time, np.datetime64):
        if np.isnat(time):
            raise UnclearTime("NaT is not a time")
        return _seconds(time.astype("datetime64[us]").item(), zone, site, now)
    if isinstance(time, dt.datetime):
        return time.timestamp() if time.tzinfo is not None else _local(time, zone)
    if isinstance(time, dt.date):
        return _midnight(time, site)
    number: Any = time
    if isinstance(number, (int, float, np.integer, np.floating)) and not isinstance(number, bool) and math.isfinite(number):
        return float(number)
    raise UnclearTime(f"{time!r} is not a time; {_EXAMPLE}")


def _parsed(text: str, zone: dt.tzinfo | None, site: dt.tzinfo | None, now: float) -> float:
    if text == "now":
        return now
    if found := _AGO.fullmatch(text):
        return int(now) - int(found[1]) * _SECONDS[found[2]]
    try:
        return _midnight(dt.date.fromisoformat(text), site)
    except UnclearTime:
        raise
    except ValueError:
        pass
    try:
        return _seconds(dt.datetime.fromisoformat(text), zone, site, now)
    except UnclearTime:
        raise
    except (ValueError, OverflowError):
        raise UnclearTime(f"{text!r} is not a time; {_EXAMPLE}") from None


def _local(time: dt.datetime, zone: dt.tzinfo | None) -> float:
    if zone is None:
        raise UnclearTime(f"{time} has no time zone: give timezone=, such as 'America/Los_Angeles', or write an offset, such as {time}Z")
    first, second = (time.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first.timestamp()
    if first.timestamp() < second.timestamp():
        raise UnclearTime(f"{time} occurs twice in {zone}: {iso(first.timestamp())} and {iso(second.timestamp())}; write one of these")
    raise UnclearTime(f"{time} does not exist in {zone}: the clock jumps over it")


def _midnight(date: dt.date, site: dt.tzinfo | None) -> float:
    if site is None:
        raise UnclearTime(f"{date} is the midnight of an unknown time zone: give timezone=, such as 'America/Los_Angeles' or 'UTC'")
    return dt.datetime(date.year, date.month, date.day, tzinfo=site).timestamp()
