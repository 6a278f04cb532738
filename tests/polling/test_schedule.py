import datetime as dt
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from tokiod.collector import SourceConfig
from tokiod.polling.schedule import Schedule
from tokiod.ranges import Ranges
from tokiod.units import Duration
from tokiod.window import Calendar, Window

LENGTH, SETTLE, RETENTION = 60, 15, 1200
NOW = 1_517_126_400 + 7 * 3600
UTC = Calendar("UTC")


def schedule(*, replayable=True, zone="UTC", window=LENGTH, settle=SETTLE, retention=RETENTION, stored=(), lost=(), since=0):
    config = SourceConfig(name="s", kind="k", system="y", window=Duration(window), settle=Duration(settle), retention=Duration(retention))
    made = Schedule(config, Calendar(zone), replayable=replayable)
    made.load(Ranges(stored), lost, since, data_end=max((end for _, end in stored), default=None))
    return made


def drained(one, now=NOW, tick=0.0, most=200):
    """Every window that is queried at one moment, in order, each leased and then stored."""
    windows = []
    while (window := one.next(now, tick)) and len(windows) < most:
        one.acquire(window)
        one.store(window)
        windows.append(window)
    return windows


def minute(n):
    """The n-th window before the newest one that is closed and settled at NOW."""
    end = NOW - LENGTH - n * LENGTH
    return Window(end - LENGTH, end) if n else Window(NOW - 2 * LENGTH, NOW - LENGTH)


SPANS = st.lists(st.tuples(st.integers(-1500, 60), st.integers(1, 300)).map(lambda s: (NOW + s[0], NOW + s[0] + s[1])), max_size=8)


@given(SPANS, st.floats(0, 90))
def test_the_closed_windows_that_are_not_stored_are_queried_newest_first(stored, late):
    now = NOW + late
    covered = Ranges(stored)
    every = [Window(start, start + LENGTH) for start in range(NOW - 40 * LENGTH, NOW + 3 * LENGTH, LENGTH)]
    due = [w for w in every if w.end + SETTLE <= now and w.start >= int(now) - RETENTION and not covered.covers(w)]
    assert drained(schedule(stored=stored), now) == due[::-1]


@given(SPANS, st.data())
def test_a_leased_or_postponed_window_is_not_queried_and_all_are_in_the_end(stored, data):
    one, leased, postponed, asked = schedule(stored=stored), [], [], []
    expected = drained(schedule(stored=stored))
    while window := one.next(NOW, 0.0):
        assert window not in asked
        asked.append(window)
        one.acquire(window)
        fate = data.draw(st.sampled_from(["done", "leased", "postpone"]))
        if fate == "done":
            one.store(window)
        elif fate == "leased":
            leased.append(window)
        else:
            one.postpone(window, 5.0)
            postponed.append(window)
    assert asked == expected
    for window in leased:
        one.release(window)
    assert drained(one) == sorted(leased, reverse=True)
    assert drained(one, tick=4.9) == []
    assert drained(one, tick=5.0) == sorted(postponed, reverse=True)


def test_a_retention_shorter_than_a_window_still_leaves_the_newest_one():
    one = schedule(window=7200, settle=30, retention=60)
    assert drained(one) == [Window(NOW - 7200 - 3600, NOW - 3600)]


def test_the_wait_ends_when_the_next_window_closes_and_settles():
    one = schedule()
    drained(one)
    assert one.wait(NOW, 0.0) == SETTLE
    assert drained(one, NOW + SETTLE - 0.01) == []
    assert drained(one, NOW + SETTLE) == [Window(NOW - LENGTH, NOW)]
    assert one.wait(NOW + SETTLE, 0.0) == LENGTH


def test_the_wait_ends_earlier_when_a_postponed_window_is_due():
    one = schedule()
    first, *_ = drained(one)
    one.load(Ranges([(NOW - 3600, first.start)]), [], 0)
    one.acquire(first)
    one.postpone(first, 103.0)
    assert one.wait(NOW, 100.0) == 3.0
    assert one.next(NOW, 102.0) is None
    assert one.next(NOW, 103.0) == first


def test_a_reload_queries_what_was_forgotten_but_not_what_is_leased():
    one = schedule()
    windows = drained(one)
    one.acquire(windows[3])
    one.load(Ranges([(NOW - 3600, windows[5].start), (windows[2].start, NOW)]), [], 0)
    assert drained(one) == [windows[4], windows[5]]


def test_after_a_change_of_length_a_window_is_queried_whole_where_any_of_it_is_missing():
    stored = [(NOW - 3600, NOW - 3600 + 3360)]
    assert drained(schedule(window=300, stored=stored, settle=0)) == [Window(NOW - 300, NOW)]


# ---- the source has not got that far


def lagging(one, frontier, *, now=NOW, tick=0.0):
    """Query what is due of a source that holds everything before `frontier`; returns the queries."""
    asked = []
    while window := one.next(now, tick):
        asked.append(window)
        one.acquire(window)
        if window.end <= frontier:
            one.store(window)
        else:
            one.not_yet(window, tick + SETTLE)
        assert len(asked) < 500
    return asked


def test_a_window_that_the_source_has_not_reached_is_queried_again_soon_and_older_ones_meanwhile():
    one = schedule()
    asked = lagging(one, NOW - 2 * LENGTH)
    assert asked == [Window(NOW - (n + 2) * LENGTH, NOW - (n + 1) * LENGTH) for n in range(len(asked))]
    assert one.wait(NOW, 1.0) == min(SETTLE - 1.0, SETTLE)
    assert lagging(one, NOW - LENGTH, tick=SETTLE - 0.1) == []
    assert lagging(one, NOW - LENGTH, tick=SETTLE) == [asked[0]]


def test_a_source_that_lags_is_queried_for_its_oldest_missing_window_alone_and_then_oldest_first():
    one = schedule(stored=[(NOW - 3600, NOW - 600)])
    lagging(one, NOW - 600)
    for turn in range(1, 20):
        assert lagging(one, NOW - 600, tick=turn * SETTLE) == [Window(NOW - 600, NOW - 540)]
    came = lagging(one, NOW - 120, tick=20.0 * SETTLE)
    assert came == [Window(NOW - 600 + n * LENGTH, NOW - 540 + n * LENGTH) for n in range(9)]


@given(st.integers(0, 60 * 24 * 90))
def test_the_frontier_of_a_lagging_source_is_found_with_few_queries(minutes):
    retention = 90 * 86400
    frontier = NOW - minutes * LENGTH
    one = schedule(retention=retention, stored=[(NOW - 100 * 86400, frontier)])
    asked = lagging(one, frontier)
    assert len(asked) <= 20
    again = lagging(one, frontier, tick=SETTLE)
    assert len(again) <= 1


def test_after_a_clock_jump_forward_and_back_everything_is_queried_again_soon():
    one = schedule(retention=400 * 86400, stored=[(NOW - 500 * 86400, NOW - 600)])
    assert len(lagging(one, NOW, now=NOW + 365 * 86400)) <= 20
    assert sorted(lagging(one, NOW, tick=SETTLE)) == [Window(s, s + LENGTH) for s in range(NOW - 600, NOW - LENGTH, LENGTH)]


def test_a_clock_that_jumps_back_makes_nothing_due():
    one = schedule(stored=[(NOW - 9000, NOW - 600)])
    assert len(drained(one)) == 9
    assert [drained(one, NOW - back) for back in (1, 60, 300, 7000)] == [[], [], [], []]


# ---- lost windows


def test_a_span_out_of_reach_is_overdue_until_it_is_written_off():
    one = schedule(stored=[(NOW - 1000, NOW)], lost=[Window(NOW - 3000, NOW - 2000)], since=NOW - 5000)
    oldest = NOW - RETENTION
    spans = [Window(NOW - 5000, NOW - 3000), Window(NOW - 2000, oldest)]
    assert one.overdue(NOW, 0.0) == one.overdue(NOW, 0.0) == spans
    one.write_off(spans[1])
    assert one.overdue(NOW, 0.0) == spans[:1]
    one.write_off(spans[0])
    assert one.overdue(NOW, 0.0) == []
    assert one.overdue(NOW + 120, 120.0) == [Window(oldest, oldest + 120)]
    assert one.overdue(NOW - 120, 120.0) == []


def test_a_leased_window_is_overdue_only_when_it_is_released_unstored():
    one = schedule(since=NOW - 1200)
    oldest = Window(NOW - 1200, NOW - 1140)
    next_oldest = Window(NOW - 1140, NOW - 1080)
    for window in (oldest, next_oldest):
        one.acquire(window)
    assert one.overdue(NOW + 120, 0.0) == []
    one.store(next_oldest)
    one.note_samples(next_oldest.end)
    one.postpone(oldest, 5.0)
    assert one.overdue(NOW + 120, 0.0) == []
    assert one.overdue(NOW + 120, 1200.0) == [oldest]


def test_a_span_that_was_never_expected_is_not_overdue():
    one = schedule(since=NOW - RETENTION)
    assert one.overdue(NOW, 0.0) == []


def test_a_clock_that_is_ahead_makes_nothing_overdue():
    year = 365 * 86400
    one = schedule(stored=[(NOW - 1000, NOW)], since=NOW - 1000)
    assert one.overdue(NOW + year, 0.0) == one.overdue(NOW + year + 120, 120.0) == []
    assert one.overdue(NOW + 120, 240.0) == []
    one.store(Window(NOW + 60, NOW + 120))
    assert one.overdue(NOW + RETENTION + 120, RETENTION + 120.0) == [Window(NOW, NOW + 60)]


def test_after_a_long_downtime_a_stored_window_proves_that_the_time_has_passed():
    one = schedule(stored=[(NOW - 60, NOW)], since=NOW - 60)
    later = NOW + 2 * RETENTION
    assert one.overdue(later, 0.0) == []
    one.store(Window(later - 120, later - 60))
    one.note_samples(later - 60)
    assert one.overdue(later, 0.0) == [Window(NOW, later - 60 - RETENTION)]


def test_a_window_without_samples_proves_no_time():
    month = 30 * 86400
    one = schedule(stored=[(NOW - 1000, NOW)], since=NOW - 1000)
    one.store(Window(NOW + month - 120, NOW + month - 60))
    assert one.overdue(NOW + month, 0.0) == []


def test_while_a_source_has_had_no_sample_at_all_nothing_is_overdue():
    month = 30 * 86400
    one = schedule(since=NOW - 1000)
    one.store(Window(NOW - 1000, NOW))
    one.store(Window(NOW + month - 120, NOW + month - 60))
    assert one.overdue(NOW + month, 0.0) == []


def test_a_time_from_which_a_clock_that_was_ahead_expected_data_proves_nothing_once_the_clock_is_right():
    """As of a ledger that was made again meanwhile."""
    month, year = 30 * 86400, 365 * 86400
    one = schedule(stored=[(NOW - 1000, NOW)], since=NOW + year - 1000)
    one.store(Window(NOW + year - 120, NOW + year - 60))  # without samples
    assert one.overdue(NOW + year, 0.0) == []
    one.expect(NOW - 1000)
    assert one.overdue(NOW + month, 60.0) == []
    one.store(Window(NOW, NOW + 60))
    one.note_samples(NOW + 60)
    assert one.overdue(NOW + month, RETENTION + 120.0) == []


def test_samples_prove_the_time_while_the_window_that_they_came_with_waits_for_the_writer():
    day = 86400
    one = schedule(since=NOW - RETENTION)
    assert one.proven_time(NOW + day, 0.0) == NOW + day  # not known better
    one.note_samples(NOW)
    assert one.proven_time(NOW + day, 60.0) == NOW
    assert one.proven_time(NOW + day, 90.0) == NOW + 30
    assert one.proven_time(NOW - 600, 90.0) == NOW - 600


def test_a_span_was_expected_only_after_a_stored_window():
    one = schedule(stored=[(NOW - 9000, NOW - 8000), (NOW - 600, NOW)], since=NOW - 5000)
    spans = [Window(NOW - 4000, NOW - 3000), Window(NOW, NOW + 60)]
    assert [one.was_expected(span) for span in spans] == [False, True]


def test_every_span_of_a_source_that_is_not_replayable_was_expected():
    assert schedule(replayable=False, since=NOW - 600).was_expected(Window(NOW - 600, NOW))


# ---- a source without a past


def test_a_source_that_is_not_replayable_is_queried_for_the_current_window_only():
    one = schedule(replayable=False, since=NOW - 600)
    assert drained(one, NOW + 20) == [Window(NOW, NOW + 60)]
    assert one.wait(NOW + 20, 0.0) == 40
    assert one.overdue(NOW + 20, 20.0) == [Window(NOW - 600, NOW)]
    one.write_off(Window(NOW - 600, NOW))
    assert drained(one, NOW + 59.9) == []
    assert drained(one, NOW + 60) == [Window(NOW + 60, NOW + 120)]
    assert one.overdue(NOW + 130, 130.0) == []
    assert one.overdue(NOW + 10_000, 150.0) == []


def test_a_clock_that_was_behind_at_the_start_hides_no_outage_once_it_is_right():
    one = schedule(replayable=False, since=NOW - 600)
    assert one.overdue(NOW - 10_000, 0.0) == []
    assert one.overdue(NOW + 30, 30.0) == [Window(NOW - 600, NOW)]
    assert one.overdue(NOW + 10_000, 40.0) == [Window(NOW - 600, NOW)]


# ---- days of 23 and 25 hours


def test_the_windows_of_days_of_23_and_25_hours_touch_and_none_crosses_midnight():
    zone = ZoneInfo("America/Los_Angeles")
    for year, month, day, hours in ((2018, 3, 11, 23), (2018, 11, 4, 25)):
        start = int(dt.datetime(year, month, day, tzinfo=zone).timestamp())
        end = int((dt.datetime(year, month, day, tzinfo=zone) + dt.timedelta(days=1)).timestamp())
        assert end - start == hours * 3600
        one = schedule(zone="America/Los_Angeles", window=7200, settle=0, retention=end - start)
        expected = [Window(s, min(s + 7200, end)) for s in range(start, end, 7200)]
        assert drained(one, end)[::-1] == expected
