import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.mmperfmon.parse_timestamps import NEVER, _in_steady_hours, _instants, to_instants, to_later_instants

PACIFIC = ZoneInfo("America/Los_Angeles")
AUTUMN = int(dt.datetime(2019, 11, 3, 9, tzinfo=dt.UTC).timestamp())
"""When clocks there were put back, from two to one."""


def read(times, zone=PACIFIC):
    shown = [dt.datetime.fromtimestamp(time, zone).strftime("%Y-%m-%d-%H:%M:%S") for time in times]
    return to_instants("".join(shown).encode(), zone).tolist()


@given(st.integers(-300, 120), st.integers(2, 300), st.sampled_from([60, 300]))
def test_rows_across_the_repeated_hour_are_distinguished_where_others_follow_or_time_goes_back(first, rows, bucket):
    times = [AUTUMN + 60 * first + bucket * n for n in range(rows)]
    starts_in_second = 0 <= first < 60
    ends_in_hour = times[-1] < AUTUMN + 3600
    if not (starts_in_second and ends_in_hour):
        assert read(times) == times


def test_a_file_within_the_repeated_hour_alone_is_of_its_first_pass():
    times = [AUTUMN + 60 * n for n in range(5, 20)]
    assert read(times) == [time - 3600 for time in times]


def test_the_second_pass_begins_after_the_widest_gap():
    times = [*range(AUTUMN - 4200, AUTUMN - 1800, 60), *range(AUTUMN + 2400, AUTUMN + 4200, 60)]
    assert read(times) == times


def test_repeated_rows_are_no_step_back():
    times = [AUTUMN - 60 * n for n in (70, 69, 69, 68, 59, 58, 58)]
    assert read(times) == times


@given(st.integers(-180, -61), st.integers(0, 180), st.data())
def test_a_row_out_of_order_moves_no_other(first, last, data):
    """Only a step back of at least half the change is the change. Two neighbours change places, as in a file that was sorted badly."""
    times = [AUTUMN + 60 * minute for minute in range(first, last + 61)]
    place = data.draw(st.integers(0, len(times) - 2).filter(lambda n: times[n] // 3600 == times[n + 1] // 3600))
    times[place : place + 2] = times[place + 1], times[place]
    assert read(times) == times


def test_a_row_of_another_hour_within_the_repeated_one_moves_no_other():
    for place in (1, 30, 58, 61, 90, 118):
        times = [AUTUMN + 60 * minute for minute in range(-90, 90)]
        times.insert(times.index(AUTUMN - 3600 + 60 * place), AUTUMN - 3660)
        assert read(times) == times, place


def test_rows_out_of_order_in_the_first_pass_alone_stay_there():
    times = [AUTUMN - 60 * n for n in (55, 54, 50, 52, 51)]
    assert read(times) == times


def test_a_row_of_another_hour_does_not_part_the_rows_that_may_be_later():
    times = [AUTUMN + 60 * n for n in (10, 11, -62, 12)]
    shown = "".join(dt.datetime.fromtimestamp(time, PACIFIC).strftime("%Y-%m-%d-%H:%M:%S") for time in times).encode()
    assert to_later_instants(shown, PACIFIC).tolist() == times
    assert to_instants(shown, PACIFIC).tolist() == [time - 3600 if time > AUTUMN else time for time in times]


def test_rows_backwards_are_read_as_those_forwards():
    times = [*range(AUTUMN - 4200, AUTUMN - 1800, 60), *range(AUTUMN + 2400, AUTUMN + 4200, 60)]
    assert read(times[::-1]) == times[::-1]
    times = [AUTUMN + 60 * minute for minute in range(-90, 90)]
    assert read(times[::-1]) == times[::-1]


@pytest.mark.parametrize(("zone", "change"), [("Australia/Lord_Howe", "2019-04-06T15:00:00"), ("Europe/Berlin", "2024-10-27T01:00:00")])
def test_half_the_change_counts_in_every_zone(zone, change):
    at = int(dt.datetime.fromisoformat(f"{change}+00:00").timestamp())
    times = [at + 60 * minute for minute in range(-90, 90)]
    times[70:72] = times[71], times[70]
    assert read(times, ZoneInfo(zone)) == times


def test_an_hour_that_clocks_skipped_and_days_that_are_in_no_calendar_never_were():
    shown = ["2019-03-10-01:59:00", "2019-03-10-02:30:00", "2019-03-10-03:00:00", "2019-02-30-01:00:00", "0000-01-01-00:00:00"]
    assert to_instants("".join(shown).encode(), PACIFIC).tolist() == [1552211940, NEVER, 1552212000, NEVER, NEVER]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_zones_without_changes_need_no_order(zone):
    times = [AUTUMN + 60 * n for n in (5, 1, 9)]
    assert read(times, ZoneInfo(zone)) == times


CHANGES = {
    "America/Los_Angeles": ["2019-03-10", "2019-11-03"],
    "Australia/Lord_Howe": ["2019-04-07", "2019-10-06"],  # by half an hour
    "Pacific/Apia": ["2011-12-29", "2011-12-30", "2011-12-31"],  # a day that never was
    "America/Caracas": ["2007-12-09", "2016-05-01"],  # by half an hour, for good
    "Asia/Pyongyang": ["2015-08-14", "2018-05-04"],
    "Africa/Monrovia": ["1972-01-07"],  # by 44 minutes and a half
    "UTC": ["2016-12-31"],
}


@pytest.mark.parametrize("zone", CHANGES)
def test_an_hour_in_which_the_offset_does_not_change_gives_what_each_of_its_stamps_does(zone):
    steady = 0
    for day in CHANGES[zone]:
        for hour in range(24):
            stamps = [f"{day}-{hour:02}:{minute:02}:{second:02}" for minute in range(60) for second in (0, 1, 30, 59)]
            each = [_instants(stamp, ZoneInfo(zone)) for stamp in stamps]
            found = _in_steady_hours("".join(stamps).encode(), ZoneInfo(zone))
            if found is not None:
                assert [(time, time) for time in found.tolist()] == each
            assert (found is not None) == (all(first == second != NEVER for first, second in each) and each[-1][0] - each[0][0] == 3599)
            steady += found is not None
    assert (steady < 24 * len(CHANGES[zone])) == (zone != "UTC")


@pytest.mark.parametrize("stamp", ["2019-05-15-01:60:00", "2019-05-15-01:00:60", "2019-05-15-24:00:00"])
def test_impossible_times_are_found_among_others(stamp):
    shown = ["2019-05-15-01:59:59", stamp, "2019-05-15-02:00:00"]
    assert to_instants("".join(shown).encode(), PACIFIC).tolist() == [1557910799, NEVER, 1557910800]


@pytest.mark.parametrize("minutes", [(-10, 5), (-10, -10, 5), (-10, 5, 5), (-10, 5, 20)])
def test_a_few_rows_across_the_change_are_forwards(minutes):
    times = [AUTUMN + 60 * minute for minute in minutes]
    assert read(times) == times


def test_instants_from_the_cache_can_not_be_changed():
    for zone in ("UTC", "America/Los_Angeles"):
        assert not to_instants(b"2019-11-03-01:30:00", ZoneInfo(zone)).flags.writeable
