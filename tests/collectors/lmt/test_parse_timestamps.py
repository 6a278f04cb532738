"""Local time stamps to UTC, through the hours in which clocks change."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.lmt.parse_timestamps import LocalTime, seconds, text
from tokiod.window import Window

HOUR = 3600
AUTUMN = {
    "America/Los_Angeles": 1_541_322_000,  # 2018-11-04T09:00Z, 02:00 to 01:00
    "Europe/Berlin": 1_540_688_400,  # 2018-10-28T01:00Z
    "Australia/Lord_Howe": 1_522_508_400,  # 2018-03-31T15:00Z, by half an hour
}
SPRING = {"America/Los_Angeles": 1_520_762_400, "Europe/Berlin": 1_521_939_600, "Asia/Kolkata": 1_521_939_600}


def local(instants, zone):
    """What an LMT server in that zone stores."""
    return np.array([int(dt.datetime.fromtimestamp(t, ZoneInfo(zone)).replace(tzinfo=dt.UTC).timestamp()) for t in instants], np.int64)


def as_a_database_does(instants, window, zone):
    """(instants whose time stamps lie in bounds(window), what epochs() makes of them)."""
    clocks = LocalTime(ZoneInfo(zone))
    shown = local(instants, zone)
    first, last = clocks.bounds(window)
    inside = (shown >= first) & (shown < last)
    return np.array(instants)[inside], clocks.epochs(shown[inside], window)


@pytest.mark.parametrize(("zone", "change"), [*AUTUMN.items(), *SPRING.items()])
@given(data=st.data())
def test_time_stamps_around_a_change_of_the_clocks_are_read_back_exactly(zone, change, data):
    gaps = data.draw(st.lists(st.integers(1, 1500), min_size=10, max_size=30))
    first = data.draw(st.integers(-6 * HOUR, -HOUR - 1) | st.integers(HOUR, 2 * HOUR))
    instants = (change + first + np.cumsum([0, *gaps])).tolist()
    start = change + data.draw(st.integers(-4 * HOUR, 4 * HOUR))
    window = Window(start, start + data.draw(st.integers(1, 6 * HOUR)))
    truth, found = as_a_database_does(instants, window, zone)
    np.testing.assert_array_equal(found, truth)
    assert {t for t in instants if window.start <= t < window.end} <= set(truth.tolist())


@pytest.mark.parametrize("zone", [*AUTUMN, "UTC", "Asia/Kathmandu"])
@given(start=st.integers(1_500_000_000, 1_600_000_000), length=st.integers(1, 86_400))
def test_a_whole_gapless_series_is_read_back_exactly_at_any_time_of_any_year(zone, start, length):
    window = Window(start, start + length)
    instants = list(range(start - 8 * HOUR, start + length + 8 * HOUR, 300))
    truth, found = as_a_database_does(instants, window, zone)
    np.testing.assert_array_equal(found, truth)


CHANGE = AUTUMN["America/Los_Angeles"]
REPEATED = range(CHANGE - HOUR, CHANGE, 60), range(CHANGE, CHANGE + HOUR, 60)
BEFORE, AFTER = range(CHANGE - 2 * HOUR, CHANGE - HOUR, 60), range(CHANGE + HOUR, CHANGE + 2 * HOUR, 60)


@pytest.mark.parametrize(
    "instants",
    [
        pytest.param([*BEFORE, *REPEATED[0]], id="the second pass has not come yet"),
        pytest.param([*BEFORE, *REPEATED[0], *REPEATED[1][:1]], id="it has just begun"),
        pytest.param([*BEFORE, *REPEATED[0][:20], *REPEATED[1][40:], *AFTER], id="LMT was down when the clocks were put back"),
        pytest.param([*BEFORE, *REPEATED[1][10:], *AFTER], id="LMT was down in the whole first pass"),
        pytest.param([*BEFORE, *REPEATED[0][:50], *AFTER], id="LMT was down in the whole second pass"),
        pytest.param([*REPEATED[1][10:], *AFTER], id="LMT began in the second pass"),
        pytest.param([*REPEATED[0][10:]], id="nothing but a part of the first pass is there"),
    ],
)
def test_the_order_of_ts_ids_distinguishes_the_passes_of_the_repeated_hour(instants):
    for window in (Window(CHANGE - 600, CHANGE + 600), Window(CHANGE - 3 * HOUR, CHANGE + 3 * HOUR)):
        truth, found = as_a_database_does(instants, window, "America/Los_Angeles")
        np.testing.assert_array_equal(found, truth)


def test_a_small_step_back_of_the_servers_clock_is_no_change_of_zone():
    instants = [*BEFORE, CHANGE - HOUR - 65, *REPEATED[0], CHANGE - 61, *REPEATED[1], *AFTER]
    truth, found = as_a_database_does(instants, Window(CHANGE - HOUR, CHANGE + HOUR), "America/Los_Angeles")
    np.testing.assert_array_equal(found, truth)


def test_a_local_time_that_stands_for_two_instants_is_the_first_unless_ts_ids_say_otherwise():
    clocks = LocalTime(ZoneInfo("America/Los_Angeles"))
    assert clocks.instant(int(local([CHANGE], "America/Los_Angeles")[0])) == CHANGE - HOUR


def test_a_window_far_from_a_change_asks_for_its_own_local_times_only():
    clocks = LocalTime(ZoneInfo("America/Los_Angeles"))
    first, last = clocks.bounds(Window(1_517_126_400, 1_517_126_460))
    assert (text(first), text(last)) == ("2018-01-28 00:00:00", "2018-01-28 00:01:00")


@pytest.mark.parametrize("shown", ["2018-01-28 00:00:05", "2018-01-28T00:00:05", dt.datetime(2018, 1, 28, 0, 0, 5)])  # noqa: DTZ001 - as drivers do
def test_text_and_datetimes_are_read_alike(shown):
    assert [text(t) for t in seconds([shown]).tolist()] == ["2018-01-28 00:00:05"]


def test_no_time_stamps_are_no_instants():
    assert (
        LocalTime(ZoneInfo("Europe/Berlin")).epochs(seconds([]), Window(AUTUMN["Europe/Berlin"], AUTUMN["Europe/Berlin"] + 1)).tolist()
        == []
    )


@pytest.mark.parametrize(
    "shown", ["-4713-11-24T12:00:00", "0001-01-01T00:00:00", "1969-12-31T23:59:59", "9999-12-31T23:59:59", "29999-01-01"]
)
@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Kiritimati"])
def test_a_time_that_no_lmt_has_ever_stored_has_an_instant_all_the_same(shown, zone):
    first, last = LocalTime(ZoneInfo(zone)).instants(int(seconds([shown])[0]))
    assert 0 <= first <= last < 253_402_300_800
