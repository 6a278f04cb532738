"""Healing: gaps are queried in long pieces, newest first, after live data, and never faster than `heal_rate`."""

import asyncio
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tokiod.collector import SourceConfig
from tokiod.errors import Transient
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.polling.poller import Poller
from tokiod.polling.schedule import MAX_LIVE_RUN, Schedule
from tokiod.ranges import Ranges
from tokiod.testing.clock import FakeClock
from tokiod.units import NEVER, Duration
from tokiod.window import BULK_SECONDS, Calendar, Window
from tokiod.window_data import WindowData, WindowMeta
from tokiod.window_result import Stored

LENGTH, SETTLE, HOUR = 60, 15, 3600
NOON = 1_517_126_400 + 12 * HOUR
UTC = Calendar("UTC")


class Config(SourceConfig, frozen=True):
    @property
    def step(self):
        return 5


def config(*, rate=0.0, window=LENGTH, retention=6 * HOUR):
    durations = {"window": Duration(window), "settle": Duration(SETTLE), "retention": Duration(retention)}
    return Config(name="lmt", kind="lmt", system="fs", heal_rate=rate, empty_after=NEVER, **durations)


def schedule(*, stored=(), zone="UTC", **options):
    made = Schedule(config(**options), Calendar(zone), replayable=True)
    made.load(Ranges(stored), [], 0)
    return made


def drained(one, now, longest, tick=0.0):
    """Every span that is queried at one moment, in order, each stored at once."""
    spans = []
    while span := one.next(now, tick, longest):
        one.begin(span, now, tick)
        one.store(span)
        spans.append(span)
        assert len(spans) < 1000
    return spans


# ---- in long pieces

STORED = st.lists(
    st.tuples(st.integers(-6 * HOUR, 60), st.integers(1, 2 * HOUR)).map(lambda s: (NOON + s[0], NOON + s[0] + s[1])), max_size=8
)


@given(STORED, st.sampled_from([60, 120, 300]), st.integers(0, 1000))
def test_long_queries_hold_the_same_windows_newest_first_each_once(stored, window, longest):
    spans = drained(schedule(stored=stored, window=window), NOON + SETTLE, longest)
    covered = Ranges(stored)
    # Six hours back from now a window has begun already, and is out of reach.
    every = [Window(s, s + window) for s in range(NOON - 6 * HOUR + window, NOON, window)]
    assert [w for span in spans for w in reversed(list(UTC.split(span, window)))] == [w for w in every if not covered.covers(w)][::-1]
    assert all(span.seconds <= max(longest, window) for span in spans)
    assert all(span.seconds == window for span in spans if span.end == NOON)


@settings(max_examples=15)
@given(st.integers(0, 1000), st.sampled_from(["America/Los_Angeles", "Asia/Kathmandu", "America/St_Johns"]))
def test_no_long_query_crosses_midnight(longest, zone):
    calendar = Calendar(zone)
    for span in drained(schedule(zone=zone, retention=30 * HOUR, window=300), NOON + SETTLE, longest):
        assert calendar.day(span.start) == calendar.day(span.end - 1)


def test_days_of_gaps_do_not_need_a_query_a_minute():
    one = schedule(retention=2 * 86400)
    assert len(drained(one, NOON, BULK_SECONDS)) == pytest.approx(2 * 86400 / BULK_SECONDS, abs=3)


def test_a_failed_long_query_is_repeated_window_by_window_and_its_neighbours_are_not():
    one = schedule()
    drained_first = one.next(NOON + SETTLE, 0.0, 180)
    one.begin(drained_first, NOON + SETTLE, 0.0)
    one.store(drained_first)
    span = one.next(NOON + SETTLE, 0.0, 180)
    assert span.seconds == 120
    one.begin(span, NOON + SETTLE, 0.0)
    one.postpone(span, 5.0, singly=True)
    neighbour = one.next(NOON + SETTLE, 1.0, 180)
    assert (neighbour.end, neighbour.seconds) == (span.start, 180)
    singles = []
    while (window := one.next(NOON + SETTLE, 5.0, 180)).start >= span.start:
        singles.append(window)
        one.begin(window, NOON + SETTLE, 5.0)
        one.store(window)
    assert singles == list(UTC.split(span, LENGTH))[::-1]


def test_the_stored_part_of_a_released_span_is_not_due_again():
    one = schedule()
    one.acquire(span := Window(NOON - 3600, NOON - 3420))
    one.store(Window(NOON - 3540, NOON - 3480))
    one.release(span)
    assert Window(NOON - 3540, NOON - 3480) not in [w for s in drained(one, NOON, 0) for w in UTC.split(s, LENGTH)]


# ---- never quicker than it may be, never late, never not at all


def played(one, seconds, takes, longest, *, now=NOON):
    """Make one query after the other for so many seconds; `takes(span)` each. Returns (when, span), when in seconds from `now`."""
    tick, asked = 0.0, []
    while tick < seconds:
        span = one.next(now + tick, tick, longest)
        if span is None:
            tick += one.wait(now + tick, tick) + 1e-6
            continue
        asked.append((tick, span))
        one.begin(span, now + tick, tick)
        tick += takes(span)
        one.store(span)
    return asked


def is_past(when, span):
    return span.end < (NOON + when - SETTLE) // LENGTH * LENGTH


@settings(max_examples=50)
@given(st.sampled_from([1.0, 7.5, 60.0, 500.0]), st.sampled_from([0, 180, 600]), st.floats(0, 20), STORED)
def test_gaps_are_queried_no_faster_than_the_rate_plus_one_query(rate, longest, takes, stored):
    asked = [(t, s) for t, s in played(schedule(rate=rate, stored=stored), 900, lambda _: takes, longest) if is_past(t, s)]
    total = 0.0
    owed = []
    for when, span in asked:
        owed.append(total - rate * when)
        total += span.seconds
        # Over [t0, t1]: what was asked is at most rate x (t1 - t0), and the last question itself.
        assert total - rate * when - min(owed) <= max(longest, LENGTH) + 1e-3


@settings(max_examples=40)
@given(st.sampled_from([1.0, 60.0, 0.0]), st.floats(0.01, 25))
def test_a_window_that_has_just_closed_waits_for_one_query_at_most_while_six_hours_heal(rate, takes):
    asked = played(schedule(rate=rate), 1800, lambda _: takes, BULK_SECONDS)
    live = {span.start: when for when, span in asked if not is_past(when, span)}
    closed = list(range(NOON, NOON + 1700 - LENGTH, LENGTH))
    assert [start for start in closed if start not in live] == []
    assert all(live[start] - (start + LENGTH + SETTLE - NOON) <= takes + 1e-3 for start in closed)


@given(st.floats(60, 600))
def test_the_gaps_of_a_source_that_is_too_slow_for_live_data_are_healed_all_the_same(takes):
    asked = played(schedule(), 60 * takes, lambda _: takes, LENGTH)
    kinds = [is_past(when, span) for when, span in asked]
    assert kinds.count(True) >= len(kinds) // (MAX_LIVE_RUN + 1) - 1
    assert kinds.count(False) > 0


def test_a_window_that_a_backfill_leases_does_not_count_as_healed():
    one = schedule(rate=1.0)
    one.acquire(Window(NOON - HOUR, NOON - HOUR + 180))
    first = one.next(NOON + SETTLE, 0.0, 180)
    one.begin(first, NOON + SETTLE, 0.0)
    assert one.next(NOON + SETTLE, 0.0, 180) is not None


def test_a_rate_of_zero_is_no_limit():
    assert sum(span.seconds for span in drained(schedule(rate=0.0), NOON + SETTLE, BULK_SECONDS)) == 6 * HOUR - LENGTH


# ---- the poller


class Source:
    """A source whose answers take `takes` seconds for each minute of data; `behave(window)` may raise."""

    replayable = True

    def __init__(self, clock, takes, behave=lambda _: None):
        self.clock, self.takes, self.behave = clock, takes, behave
        self.asked = []

    async def collect(self, window):
        self.asked.append((self.clock.time() - NOON, window))
        await self.clock.sleep(self.takes * window.seconds / 60)
        self.behave(window)
        return WindowData()


def healed(path, seconds, takes, *, rate=0.0, behave=lambda _: None):
    """Poll a source for so long with six hours missing; returns its queries and the ledger's ranges."""

    async def scenario():
        clock = FakeClock(NOON)
        source = Source(clock, takes, behave)
        with Ledger.open(path) as ledger, capture_logs():
            ledger.store([StoredEntry(WindowMeta("lmt", "lmt", "fs", Window(NOON - 9 * HOUR, NOON - 6 * HOUR)), 0)], NOON)

            async def submit(one):
                ledger.store([StoredEntry(one.meta, 0)], clock.time())
                answer = asyncio.get_running_loop().create_future()
                answer.set_result(Stored(0, {}))
                return answer

            one = Poller(config(rate=rate, retention=8 * HOUR), source, ledger, submit, UTC, clock, random.Random(1))
            polling = asyncio.create_task(one.run())
            for _ in range(int(seconds / 0.5)):
                for _ in range(12):
                    await asyncio.sleep(0)
                await clock.advance(0.5)
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            return source.asked, list(ledger.stored("lmt"))

    return asyncio.run(scenario())


def test_six_hours_heal_at_the_rate_in_few_queries(tmp_path):
    asked, stored = healed(tmp_path / "ledger", 300, 0.1, rate=120.0)
    assert stored == [(NOON - 9 * HOUR, NOON + 300 - LENGTH)]
    assert max(when for when, span in asked if is_past(when, span)) == pytest.approx(6 * HOUR / 120, rel=0.1)
    assert len(asked) < 6 * HOUR / BULK_SECONDS + 30


@pytest.mark.parametrize("takes", [0.5, 5.0, 9.0])
def test_the_slower_a_source_answers_the_shorter_are_the_queries(tmp_path, takes):
    asked, _ = healed(tmp_path / "ledger", 400, takes)
    past = [span.seconds for when, span in asked[2:] if is_past(when, span)]
    assert all(seconds <= max(LENGTH, LENGTH / 2 / (takes / 60)) for seconds in past)
    assert max(past) == (BULK_SECONDS if takes <= 9 else LENGTH)
    live = [when - (span.end + SETTLE - NOON) for when, span in asked if not is_past(when, span) and span.end > NOON]
    assert max(live) < LENGTH / 2 + 1


def test_one_window_that_always_fails_does_not_delay_its_neighbours(tmp_path):
    bad = NOON - 2 * HOUR

    def behave(window):
        if window.start <= bad < window.end:
            raise Transient("not this one")

    asked, stored = healed(tmp_path / "ledger", 600, 0.1, behave=behave)
    assert stored == [(NOON - 9 * HOUR, bad), (bad + LENGTH, NOON + 600 - LENGTH)]
    assert [span.seconds for _, span in asked if span.start <= bad < span.end][:2] == [180, 60]


def test_long_queries_follow_each_other_from_new_to_old(tmp_path):
    asked, _ = healed(tmp_path / "ledger", 30, 0.01)
    past = [span for when, span in asked if is_past(when, span)]
    assert all(later.end == earlier.start for earlier, later in pairwise(past))


def test_a_pause_of_healing_does_not_pause_live_polling():
    one = schedule()
    one.pause_healing(10.0)
    newest = one.next(NOON + SETTLE, 0.0, 180)
    assert newest == Window(NOON - LENGTH, NOON)
    one.begin(newest, NOON + SETTLE, 0.0)
    one.store(newest)
    assert (one.next(NOON + SETTLE, 9.9, 180), one.wait(NOON + SETTLE, 9.0)) == (None, 1.0)
    assert one.next(NOON + SETTLE, 10.0, 180).end == newest.start
