"""Recount with a real ledger, a source that a test scripts, and a clock that moves days in milliseconds."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tokiod.collector import SourceConfig
from tokiod.errors import Transient
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.polling.recount import MAX_COUNT_SECONDS, Recount
from tokiod.polling.schedule import FreeLease
from tokiod.ranges import Ranges
from tokiod.testing.clock import FakeClock
from tokiod.units import Duration
from tokiod.window import Window
from tokiod.window_data import WindowMeta

NOON = 1_517_126_400 + 12 * 3600
HOUR, DAY = 3600, 86400


class Live(FreeLease):
    """Live polling that has nothing to do, and by whose samples the clock is right, or ahead by so many seconds."""

    def __init__(self, clock):
        self.clock = clock
        self.ahead = 0.0

    def passed_time(self):
        return self.clock.time() - self.ahead


class Site:
    """A source with `holds[window start]` records a minute."""

    def __init__(self, directory, recount=(HOUR, DAY)):
        self.clock = FakeClock(NOON)
        self.ledger = Ledger.open(directory / "ledger.sqlite3")
        self.config = SourceConfig(name="one", kind="x", system="fs", recount=tuple(map(Duration, recount)))
        self.holds, self.asked, self.fails, self.fails_at, self.cannot = {}, [], False, 0, False
        self.live = Live(self.clock)

    async def count(self, window):
        self.asked.append((self.clock.time() - NOON, window))
        if self.fails or len(self.asked) == self.fails_at:
            raise Transient("connection refused")
        return None if self.cannot else sum(self.holds.get(start, 0) for start in range(window.start, window.end, 60))

    async def close(self):
        pass

    def store(self, minutes, records=10, start=NOON - HOUR):
        """Store some minutes and let the source hold as much."""
        for minute in range(minutes):
            window = Window(start + 60 * minute, start + 60 * minute + 60)
            self.holds[window.start] = records
            self.ledger.store([StoredEntry(WindowMeta("one", "x", "fs", window, records=records), 5)], self.clock.time())

    def runs(self, seconds, by=60):
        async def run():
            task = asyncio.ensure_future(Recount(self.config, self, self.live, self.ledger, self.clock).run())
            for _ in range(int(seconds / by)):
                await self.clock.advance(by)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(run())

    @property
    def left(self):
        return [one.window for one in self.ledger.counts("one").due(self.clock.time() + 10 * DAY, (0,))]

    @property
    def again(self):
        return [(job.source, job.span, job.force) for job in self.ledger.jobs.all()]


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    with capture_logs():
        yield site
    site.ledger.close()


def test_windows_are_recounted_after_an_hour_and_a_day_in_one_query_and_then_forgotten(site):
    site.store(30)
    site.runs(HOUR - 120)
    assert site.asked == []
    site.runs(300)
    span = Window(NOON - HOUR, NOON - HOUR + 1800)
    assert [window for _, window in site.asked] == [span]
    site.runs(DAY, by=600)
    assert [window for _, window in site.asked] == [span, span]
    assert (site.left, site.again) == ([], [])


def test_only_the_window_that_grew_is_collected_again(site):
    site.store(30)
    site.holds[NOON - HOUR + 600] += 1
    site.runs(HOUR + 300)
    assert site.again == [("one", Window(NOON - HOUR + 600, NOON - HOUR + 660), True)]
    assert len(site.asked) <= 11


def test_a_source_that_counts_more_records_than_it_returns_is_collected_again_only_once(site):
    site.store(3)
    window = Window(NOON - HOUR, NOON - HOUR + 60)
    site.holds[window.start] = 12
    reported = []

    async def play():
        task = asyncio.ensure_future(Recount(site.config, site, site.live, site.ledger, site.clock).run())
        for _ in range(6):
            await site.clock.advance(HOUR + 60)
            for job in site.ledger.jobs.all():  # the backfill: the source hands out ten of its twelve again
                if not job.finished:
                    reported.append(job.span)
                    site.ledger.store([StoredEntry(WindowMeta("one", "x", "fs", window, records=10), 5)], site.clock.time())
                    site.ledger.jobs.set_state(job, "done", site.clock.time())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with capture_logs() as logged:
        asyncio.run(play())
    assert reported == [window]
    overcounted = [(one["window"], one["records"], one["found"]) for one in logged if one["event"] == "window.overcounted"]
    assert overcounted == [(str(window), 10, 12)]
    site.holds[window.start] = 13
    site.clock.jump(DAY)
    site.runs(120)
    assert [span for _, span, _ in site.again] == [window, window]


def end_jobs(site, state):
    """End the backfills that are not finished; return their spans."""
    jobs = site.ledger.jobs.unfinished("one")
    for job in jobs:
        site.ledger.jobs.set_state(job, state, site.clock.time(), "no such file: secret")
    return [job.span for job in jobs]


def test_a_backfill_that_failed_is_added_again_later_and_later_until_one_is_done(site):
    """As where the source's secret could not be read just then: no other request for these records follows."""
    site.store(30)
    window = Window(NOON - HOUR + 600, NOON - HOUR + 660)
    site.holds[window.start] += 1
    ended = []

    async def play():
        task = asyncio.ensure_future(Recount(site.config, site, site.live, site.ledger, site.clock).run())
        for _ in range(20 * 60):
            await site.clock.advance(60)
            if spans := end_jobs(site, "failed" if len(ended) < 4 else "done"):
                assert spans == [window]
                ended.append((site.clock.time() - NOON) / 60)
                if len(ended) == 5:
                    site.ledger.store([StoredEntry(WindowMeta("one", "x", "fs", window, records=11), 5)], site.clock.time())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())
    waits = [after - before for before, after in pairwise(ended)]
    assert [round(wait / 10) for wait in waits] == [1, 2, 4, 8]
    assert all(one.span == window for one in site.ledger.jobs.all())


def test_a_backfill_that_failed_is_added_again_after_a_restart(site):
    site.store(1)
    site.holds[NOON - HOUR] += 1
    site.runs(HOUR + 120)
    assert end_jobs(site, "failed") == [Window(NOON - HOUR, NOON - HOUR + 60)]
    site.runs(120)
    assert end_jobs(site, "failed") == [Window(NOON - HOUR, NOON - HOUR + 60)]


def test_a_window_that_grew_is_not_counted_again_while_it_waits_for_its_backfill(site):
    site.store(1)
    site.holds[NOON - HOUR] += 1
    site.runs(3 * HOUR)
    assert (len(site.asked), len(site.again)) == (1, 1)


def test_a_window_whose_backfill_was_cancelled_is_not_collected_again_by_the_same_recount(site):
    site.store(1)
    site.holds[NOON - HOUR] += 1

    async def play():
        task = asyncio.ensure_future(Recount(site.config, site, site.live, site.ledger, site.clock).run())
        for _ in range(5 * 60):
            await site.clock.advance(60)
            end_jobs(site, "cancelled")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())
    assert len(site.again) == 1


def test_a_window_that_grew_while_the_ledger_failed_is_collected_again_once_it_works(site):
    """The job of the first attempt was not recorded: it shows nothing of what another collection returns."""
    site.store(1)
    site.holds[NOON - HOUR] += 1
    site.clock.jump(HOUR)
    site.ledger._database.sql.execute("ALTER TABLE job RENAME TO elsewhere")
    with capture_logs() as reported:
        site.runs(60)
    assert {one["event"] for one in reported} == {"window.grown", "recount.failed"}
    site.ledger._database.sql.execute("ALTER TABLE elsewhere RENAME TO job")
    site.runs(120)
    assert site.again == [("one", Window(NOON - HOUR, NOON - HOUR + 60), True)]


def test_a_ledger_that_cannot_be_read_is_logged_without_a_traceback(site):
    site.store(1)
    site.ledger._database.sql.execute("ALTER TABLE counted RENAME TO elsewhere")
    with capture_logs() as reported:
        site.runs(60)
    line, *_ = [one for one in reported if one["event"] == "recount.failed"]
    assert (line["log_level"], line["error"], "exc_info" in line) == ("warning", "no such table: counted", False)


def test_what_was_stored_while_the_clock_was_fast_is_recounted_when_its_window_is_over(site):
    """An hour fast: half of the window that was not over was collected, and nothing of those after it."""
    site.clock.jump(HOUR)
    site.store(1, records=5, start=NOON - 60)
    site.store(30, records=0, start=NOON)
    site.store(1, records=10, start=NOON - 120)
    site.clock.jump(-HOUR)
    site.holds |= dict.fromkeys(range(NOON - 60, NOON + 1800, 60), 10)
    site.runs(120)
    assert site.again[0] == ("one", Window(NOON - 60, NOON), True)
    assert all(span.end <= site.clock.time() for _, span, _ in site.again)
    site.runs(2000)
    again = sorted(span.start for _, span, _ in site.again)
    assert again == list(range(NOON - 60, NOON + 1800, 60))
    assert len(site.left) == 32


def logged(site, event):
    """(window, records, found) of each log event about windows when an hour is over."""
    site.clock.jump(HOUR)
    with capture_logs() as reported:
        site.runs(60)
    return [(one["window"], one["records"], one["found"]) for one in reported if one["event"] == event and one["source"] == "one"]


def test_a_clock_that_is_ahead_makes_no_recount_due(site):
    site.store(30)
    site.clock.jump(30 * DAY)
    site.live.ahead = 30 * DAY
    site.runs(1200)
    assert site.asked == []
    site.clock.jump(-30 * DAY)
    site.live.ahead = 0
    site.runs(HOUR)
    assert len(site.asked) == 1


def test_a_window_that_shrank_is_reported_and_replaces_nothing(site):
    site.store(3)
    site.holds[NOON - HOUR] = 4
    assert logged(site, "window.shrunk") == [(str(Window(NOON - HOUR, NOON - HOUR + 60)), 10, 4)]
    assert site.again == []


def test_neighbours_that_shrank_are_reported_together_and_counted_once(site):
    site.store(8)
    start = NOON - HOUR
    site.holds |= {start + 60 * minute: 10 - minute for minute in (2, 3, 4, 6)}
    runs = Window(start + 120, start + 300), Window(start + 360, start + 420)
    assert logged(site, "window.shrunk") == [(str(runs[0]), 30, 21), (str(runs[1]), 10, 4)]
    assert site.left == [Window(start + 60 * minute, start + 60 * minute + 60) for minute in range(8)]
    assert logged(site, "window.shrunk") == []


def test_a_window_that_grew_is_found_also_next_to_one_that_shrank(site):
    site.store(30)
    site.holds[NOON - HOUR + 600] += 1
    site.holds[NOON - HOUR + 660] -= 5
    assert len(logged(site, "window.shrunk")) == 1
    assert [span for _, span, _ in site.again] == [Window(NOON - HOUR + 600, NOON - HOUR + 660)]


def test_an_empty_source_takes_one_query_and_one_log_event(site):
    site.store(30)
    site.holds.clear()
    assert logged(site, "window.shrunk") == [(str(Window(NOON - HOUR, NOON - HOUR + 1800)), 300, 0)]
    assert len(site.asked) == 1


def test_what_was_found_before_a_source_failed_is_reported(site):
    site.store(2)
    site.holds[NOON - HOUR] = 4
    site.fails_at = 3
    assert len(logged(site, "window.shrunk")) == 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_windows_of_any_length_are_recounted_by_what_they_hold_now(tmp_path_factory, changed):
    """(minutes, records now) of windows that touch, each stored with two records; a change that keeps the sum is not noticed."""
    site = Site(tmp_path_factory.mktemp("recount"))
    start, grown, shrunk = NOON - HOUR, [], 0
    for minutes, now in changed:
        window = Window(start, start + 60 * minutes)
        site.ledger.store([StoredEntry(WindowMeta("one", "x", "fs", window, records=2), 5)], site.clock.time())
        site.holds[start] = now
        start = window.end
        grown += [window] * (now > 2)
        shrunk += max(2 - now, 0)
    reported = logged(site, "window.shrunk")
    found = [span for _, span, _ in site.again]
    site.ledger.close()
    assert set(found) <= set(grown)
    assert sum(records - now for _, records, now in reported) <= shrunk
    if not (grown and shrunk):
        assert (found, sum(records - now for _, records, now in reported)) == (grown, shrunk)


def test_neighbours_are_counted_together_up_to_an_hour_and_never_across_a_gap(site):
    site.store(90)
    site.store(2, start=NOON + 6 * HOUR)
    site.runs(HOUR + 300)
    start = NOON - HOUR
    later = Window(NOON + 6 * HOUR, NOON + 6 * HOUR + 120)
    assert [window for _, window in site.asked] == [
        Window(start, start + MAX_COUNT_SECONDS),
        Window(start + MAX_COUNT_SECONDS, start + 5400),
        later,
    ]


def test_what_could_not_be_counted_stays_due(site):
    site.store(3)
    site.fails = True
    site.runs(HOUR + 300)
    assert len(site.asked) > 2
    site.fails, before = False, len(site.asked)
    site.runs(180)
    assert len(site.asked) == before + 1


def test_a_source_that_cannot_count_is_queried_once_per_stage(site):
    site.store(3)
    site.cannot = True
    site.runs(2 * DAY, by=600)
    assert (len(site.asked), site.left) == (2, [])


def test_without_recounts_nothing_is_counted_and_nothing_kept(tmp_path):
    site = Site(tmp_path, recount=())
    site.store(3)
    site.runs(120)
    assert (site.asked, site.left) == ([], [])
    site.ledger.close()


def test_a_window_that_is_stored_again_starts_at_the_first_stage(site):
    site.store(1)
    site.runs(HOUR + 120)
    site.store(1, records=12)
    site.runs(HOUR - 240)
    assert len(site.asked) == 1
    site.runs(300)
    assert len(site.asked) == 2


def test_live_polling_goes_first(site):
    class Busy(Live):
        busy = True

        def live_is_due(self):
            return self.busy

    site.live = Busy(site.clock)
    site.store(1)
    site.runs(HOUR + 180)
    assert site.asked == []
    site.live.busy = False
    site.runs(120)
    assert len(site.asked) == 1


def test_records_of_neighbouring_windows_add_up_and_are_unknown_where_one_is(site):
    site.store(3)
    start = NOON - HOUR
    assert site.ledger.counts("one").records(Window(start, start + 180)) == 30
    assert site.ledger.counts("one").records(Window(start, start + 240)) is None
    site.ledger.store([StoredEntry(WindowMeta("one", "x", "fs", Window(start + 60, start + 120)), 5)], NOON)
    assert site.ledger.counts("one").records(Window(start, start + 180)) is None


@pytest.mark.parametrize(("part", "records"), [((60, 120), 3), ((0, 60), 3), ((60, 180), 30)])
def test_a_part_that_is_collected_again_leaves_the_rest_to_be_recounted_and_protected(site, part, records):
    whole = Window(NOON, NOON + 180)
    site.ledger.store([StoredEntry(WindowMeta("one", "x", "fs", whole, records=30), 5)], site.clock.time())
    window = Window(NOON + part[0], NOON + part[1])
    site.ledger.store([StoredEntry(WindowMeta("one", "x", "fs", window, records=records), 5)], site.clock.time() + 1)
    assert list(Ranges((one.start, one.end) for one in site.left)) == [(whole.start, whole.end)]
    known = site.ledger.counts("one").records(whole)
    assert known == (3 if part == (60, 120) else 30)
