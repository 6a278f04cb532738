"""One grammar of times for all commands."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from tokiod.cli.common.base import Failed
from tokiod.cli.common.times import moment, zone_of

ZONE = ZoneInfo("America/Los_Angeles")
NOW = 1_517_166_000.5
"""2018-01-28T11:00:00 there."""
MIDNIGHT = 1_517_126_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", int(NOW)),
        ("1h", int(NOW) - 3600),
        ("30d", int(NOW) - 30 * 86400),
        ("today", MIDNIGHT),
        ("yesterday", MIDNIGHT - 86400),
        ("2018-01-28", MIDNIGHT),
        ("2018-01-28T00:00:00", MIDNIGHT),
        ("2018-01-28 01:00", MIDNIGHT + 3600),
        ("2018-01-28T08:00:00Z", MIDNIGHT),
        ("2018-01-28T08:00:00+00:00", MIDNIGHT),
    ],
)
def test_every_form_is_the_time_that_it_says(text, seconds):
    assert moment("--start", text, ZONE, NOW) == seconds


@pytest.mark.parametrize(("now", "length"), [("2018-03-12T12:00:00", 23), ("2018-11-05T12:00:00", 25)])
def test_yesterday_begins_at_midnight_also_on_the_days_of_another_length(now, length):
    noon = dt.datetime.fromisoformat(now).replace(tzinfo=ZONE).timestamp()
    assert moment("x", "today", ZONE, noon) - moment("x", "yesterday", ZONE, noon) == length * 3600


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "--start: 'soon' is not a time; write it like 2018-01-28, 2018-01-28T00:00:00 (local to the site)"),
        ("2018-02-30", "is not a time"),
        ("5 parsecs", "is not a time"),
        ("", "is not a time"),
        ("99999d", "is before 1970 or too far in the future"),
        ("999999999999d", "is before 1970 or too far in the future"),
        ("1969-01-01", "is before 1970 or too far in the future"),
        ("2018-01-28T00:00:00.5", "is not on a whole second"),
    ],
)
def test_anything_else_is_a_sentence(text, said):
    with pytest.raises(Failed) as caught:
        moment("--start", text, ZONE, NOW)
    assert said in caught.value.message


@pytest.mark.parametrize("name", ["Mars/Olympus", "America", "/etc", "../UTC"])
def test_a_name_that_is_no_zone_is_a_sentence(name):
    with pytest.raises(Failed) as caught:
        zone_of(name)
    assert f"--timezone: unknown time zone {name!r}; use an IANA name" in caught.value.message
