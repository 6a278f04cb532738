"""Times as UTC epoch seconds: their bound, and their text."""

from __future__ import annotations

import datetime as dt

LATEST = 250_000_000_000
"""Epoch seconds of times are smaller than this: calendars end with the year 9999."""


def iso(time: float) -> str:
    """Write an epoch time as ISO 8601 in UTC: 2018-01-28T08:00:00Z."""
    return dt.datetime.fromtimestamp(int(time), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
