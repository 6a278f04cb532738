"""Windows and site days: half-open, aligned from the day's start, whatever the zone does to its clocks."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.window import Calendar, Day, Window, iso

ZONES = [
    "UTC",
    "America/Los_Angeles",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "America/Havana",
    "Asia/Beirut",
    "Pacific/Chatham",
]
times = st.integers(int(dt.datetime(2000, 1, 1, tzinfo=dt.UTC).timestamp()), int(dt.datetime(2035, 1, 1, tzinfo=dt.UTC).timestamp()))
zones = st.sampled_from(ZONES)


def test_a_window_must_end_after_it_starts():
    with pytest.raises(ValueError, match="a window must end after it starts"):
        Window(10, 10)


def test_a_window_is_written_in_utc():
    assert str(Window(1517126400, 1517126460)) == "[2018-01-28T08:00:00Z, 2018-01-28T08:01:00Z)"
    assert iso(1517126400.9) == "2018-01-28T08:00:00Z"


@pytest.mark.parametrize(
    ("date", "hours"), [("2018-03-11", 23), ("2018-11-04", 25), ("2018-07-04", 24)], ids=["spring", "autumn", "summer"]
)
def test_a_day_has_as_many_hours_as_its_zone_gives_it(date, hours):
    noon = int(dt.datetime.fromisoformat(f"{date}T12:00").replace(tzinfo=ZoneInfo("America/Los_Angeles")).timestamp())
    day = Calendar("America/Los_Angeles").day(noon)
    assert (day.end - day.start, day.date) == (hours * 3600, dt.date.fromisoformat(date))


@given(zones, times)
def test_days_hold_their_times_and_follow_one_another_without_gap_or_overlap(zone, time):
    calendar = Calendar(zone)
    day = calendar.day(time)
    assert day.start <= time < day.end
    assert calendar.day(day.start) == calendar.day(day.end - 1) == day
    following = calendar.day(day.end)
    assert (following.start, following.date) == (day.end, day.date + dt.timedelta(days=1))


@given(st.integers(-4 * 3600, 4 * 3600))
def test_every_second_has_its_day_where_the_clock_falls_back_across_midnight(offset):
    transition = int(dt.datetime(2010, 11, 7, 2, 31, tzinfo=dt.UTC).timestamp())
    day = Calendar("America/St_Johns").day(transition + offset)
    assert day.start <= transition + offset < day.end


@given(zones, times, st.sampled_from([5, 60, 300, 3600, 7200, 86400]))
def test_a_window_holds_its_time_counts_from_the_day_and_ends_with_it(zone, time, length):
    calendar = Calendar(zone)
    window, day = calendar.window(time, length), calendar.day(time)
    assert window.start <= time < window.end
    assert (window.start - day.start) % length == 0
    assert window.end == min(window.start + length, day.end)


@given(zones, times, st.integers(1, 3 * 86400), st.sampled_from([60, 3600, 86400]))
def test_splitting_a_span_gives_windows_that_cover_it_once_and_never_cross_an_edge(zone, start, seconds, length):
    calendar = Calendar(zone)
    parts = list(calendar.split(Window(start, start + seconds), length))
    assert [p.start for p in parts] == [start, *(p.end for p in parts[:-1])]
    assert parts[-1].end == start + seconds
    for part in parts:
        whole = calendar.window(part.start, length)
        assert whole.start <= part.start
        assert part.end <= whole.end


def test_days_compare_by_time():
    assert Day(0, 86400, dt.date(1970, 1, 1)) < Day(86400, 172800, dt.date(1970, 1, 2))
