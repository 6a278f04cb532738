"""Parse times of the command line to UTC epoch seconds: ISO 8601, local to the site or with an offset, or a time span before now."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tokiod.cli.common.base import Failed
from tokiod.units import Duration
from tokiod.window import LATEST


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. Raises Failed for an unknown name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise Failed(f"--timezone: unknown time zone {name!r}; use an IANA name such as America/Los_Angeles") from None


def epoch(option: str, text: str, zone: dt.tzinfo) -> int:
    """Parse a time. Raises Failed, which names the option."""
    try:
        time = dt.datetime.fromisoformat(text)
        seconds = (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise Failed(f"{option}: {text!r} is not an ISO 8601 time; write it like 2018-01-28T00:00:00 or 2018-01-28T08:00:00Z") from None
    if not 0 <= seconds < LATEST:
        raise Failed(f"{option}: {text!r} is before 1970 or too far in the future")
    if seconds != int(seconds):
        raise Failed(f"{option}: {text!r} is not on a whole second")
    return int(seconds)


def epoch_or_ago(option: str, text: str, zone: dt.tzinfo, now: float) -> int:
    """Parse a time, or a time span before now such as 90s, 15m or 2h. Raises Failed as epoch does."""
    try:
        return int(now) - Duration.parse(text)
    except ValueError:
        return epoch(option, text, zone)
