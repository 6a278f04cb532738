"""Times as UTC epoch seconds, their bound, and their text; the text of spans."""

from __future__ import annotations

import datetime as dt

LATEST = 250_000_000_000
"""Epoch seconds of times are smaller than this: calendars end with the year 9999."""


def iso(time: float) -> str:
    """Write an epoch time as ISO 8601 in UTC: 2018-01-28T08:00:00Z."""
    return dt.datetime.fromtimestamp(int(time), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(seconds: float) -> str:
    """Write a number of seconds: 45s, 12m, 3h05m, 4d02h."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes_rest = divmod(minutes, 60)
    days, hours_rest = divmod(hours, 24)
    if days:
        return f"{days}d{hours_rest:02}h"
    if hours:
        return f"{hours}h{minutes_rest:02}m"
    if minutes:
        return f"{minutes}m{rest:02}s" if rest else f"{minutes}m"
    return f"{rest}s"
