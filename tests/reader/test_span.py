"""Times of readers: what names an instant is accepted, what does not is refused."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from tokiod.reader.errors import UnclearTime
from tokiod.reader.span import Span, epoch, length, zone_of

SITE = ZoneInfo("America/Los_Angeles")
MIDNIGHT = 1_517_126_400
"""2018-01-28T00:00 in Los Angeles."""
NOON = dt.datetime(2018, 1, 28, 20, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (dt.date(2018, 1, 28), MIDNIGHT),
        ("2018-01-28", MIDNIGHT),
        ("2018-01-28 12:00", MIDNIGHT + 43200),
        ("2018-01-28T20:00:00Z", MIDNIGHT + 43200),
        ("2018-01-28T12:00:00-08:00", MIDNIGHT + 43200),
        (dt.datetime(2018, 1, 28, 12), MIDNIGHT + 43200),  # noqa: DTZ001 - the point
        (NOON, MIDNIGHT + 43200),
        (NOON.astimezone(SITE), MIDNIGHT + 43200),
        (np.datetime64("2018-01-28T12:00:00"), MIDNIGHT + 43200),
        (MIDNIGHT, MIDNIGHT),
        (np.int64(MIDNIGHT), MIDNIGHT),
        (MIDNIGHT - 0.5, MIDNIGHT),
        ("now", MIDNIGHT + 7),
        ("-1h", MIDNIGHT + 6 - 3600),
        ("-7d", MIDNIGHT + 6 - 7 * 86400),
    ],
)
def test_a_time_is_the_first_whole_second_that_is_not_before_it(time, seconds):
    assert epoch(time, SITE, now=MIDNIGHT + 6.5) == seconds


@pytest.mark.parametrize("time", ["2018-01-28 12:00", dt.datetime(2018, 1, 28, 12), np.datetime64("2018-01-28T12:00")])  # noqa: DTZ001 - the point
def test_a_time_without_a_zone_is_refused_also_where_dates_are_those_of_the_site(time):
    with pytest.raises(UnclearTime, match="has no time zone: give timezone="):
        epoch(time, None, now=0, site=SITE)
    assert epoch("2018-01-28", None, now=0, site=SITE) == MIDNIGHT
    with pytest.raises(UnclearTime, match="midnight of an unknown time zone: give timezone="):
        epoch("2018-01-28", None, now=0)


def test_a_time_that_occurs_twice_or_never_is_refused_with_both_instants():
    both = "occurs twice in America/Los_Angeles: 2018-11-04T08:30:00Z and 2018-11-04T09:30:00Z"
    with pytest.raises(UnclearTime, match=both):
        epoch("2018-11-04 01:30", SITE, now=0)
    with pytest.raises(UnclearTime, match="02:30:00 does not exist in America/Los_Angeles"):
        epoch("2018-03-11 02:30", SITE, now=0)
    assert epoch("2018-11-04T01:30:00-07:00", SITE, now=0) == epoch("2018-11-04T08:30:00Z", None, now=0)


def test_a_date_begins_at_the_first_instant_of_its_day():
    assert epoch("2018-11-04", ZoneInfo("America/Sao_Paulo"), now=0) == epoch("2018-11-04T03:00:00Z", None, now=0)


@pytest.mark.parametrize("time", ["yesterday", "", "2018-13-01", -5, 1e30, float("nan"), None, True, np.datetime64("NaT"), [1]])
def test_what_is_no_time_is_refused(time):
    with pytest.raises(UnclearTime):
        epoch(time, SITE, now=0)


def test_a_span_ends_after_it_starts():
    assert str(Span(MIDNIGHT, MIDNIGHT + 1)) == "[2018-01-28T08:00:00Z, 2018-01-28T08:00:01Z)"
    with pytest.raises(UnclearTime, match="must end after it starts"):
        Span(5, 5)


def test_an_unknown_zone_is_refused():
    with pytest.raises(UnclearTime, match="unknown time zone 'Mars'; use an IANA name"):
        zone_of("Mars")
    assert zone_of(SITE) is SITE


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15min", 900), ("15m", 900), ("1h", 3600), ("1d", 86400), (60, 60)])
def test_lengths_of_time(text, seconds):
    assert length(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "0s", "1.5h", -1, 0.5])
def test_what_is_no_length_of_time_is_refused(text):
    with pytest.raises(UnclearTime):
        length(text)
