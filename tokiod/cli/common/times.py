"""Parse times of the command line to UTC epoch seconds. All commands take the same forms."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tokiod.cli.common.base import Failed
from tokiod.units import Duration
from tokiod.window import LATEST


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. Raises Failed for an unknown name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: of a directory of the database, such as America
        raise Failed(f"--timezone: unknown time zone {name!r}; use an IANA name such as America/Los_Angeles") from None


DAYS_AGO = {"today": 0, "yesterday": 1}
FORMS = "2018-01-28, 2018-01-28T00:00:00 (local to the site), 2018-01-28T08:00:00Z, 1h (before now), now, today or yesterday"
"""What may be written as a time, as an error lists it."""
DATES = "2018-01-28, or today or yesterday"
"""The same of a date."""


def moment(option: str, text: str, zone: dt.tzinfo, now: float) -> int:
    """Parse a time in one of the forms: ISO 8601, local to the zone or with an offset, a time span before now, or a word.

    today and yesterday are the midnights at which these days begin. now: epoch seconds. Raises Failed, which names the option.
    """
    try:
        seconds = _seconds(text, zone, now)
    except (ValueError, OverflowError):
        raise Failed(f"{option}: {text!r} is not a time; write it like {FORMS}") from None
    if not 0 <= seconds < LATEST:
        raise Failed(f"{option}: {text!r} is before 1970 or too far in the future")
    if seconds != int(seconds):
        raise Failed(f"{option}: {text!r} is not on a whole second")
    return int(seconds)


def date_of(text: str, zone: dt.tzinfo, now: float, forms: str = DATES) -> dt.date:
    """Parse a date of the zone: YYYY-MM-DD, today or yesterday. now: epoch seconds; forms: as an error lists them. Raises Failed."""
    if text in DAYS_AGO:
        return dt.datetime.fromtimestamp(now, zone).date() - dt.timedelta(days=DAYS_AGO[text])
    try:
        date = dt.date.fromisoformat(text)
        if dt.MINYEAR < date.year < dt.MAXYEAR:
            return date
        raise Failed(f"{text!r} is before 1970 or too far in the future")
    except ValueError:
        raise Failed(f"{text!r} is not a date; write it like {forms}") from None


def _seconds(text: str, zone: dt.tzinfo, now: float) -> float:
    with suppress(ValueError):
        return int(now) - Duration.parse(text)
    if text == "now":
        return int(now)
    if text in DAYS_AGO:
        return dt.datetime.combine(date_of(text, zone, now), dt.time(), zone).timestamp()
    time = dt.datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
