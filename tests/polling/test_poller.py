"""A poller that asks: what, when, how often; clocks that jump; its end."""

import asyncio
import random
import sqlite3
from itertools import pairwise

import pytest
from polled_site import HOUR, NOON, SETTLE, WINDOW, one_cell, sites, windows
from structlog.testing import capture_logs

from tokiod.errors import NotYet, Transient
from tokiod.testing.clock import FakeClock
from tokiod.times import iso
from tokiod.window import Calendar, Window


@pytest.fixture
def site(tmp_path, monkeypatch):
    with sites(tmp_path, monkeypatch) as make:
        yield make


# ---- the normal course


def test_a_source_is_polled_once_for_each_window_at_the_moment_when_it_has_settled(site):
    async def scenario():
        async with site().polled() as s:
            s.source.asked.clear()
            await s.advance(HOUR)
            return s.source.asked

    expected = [(w.end + SETTLE, w) for w in windows(NOON - WINDOW, NOON + HOUR - WINDOW)]
    assert [(pytest.approx(t, abs=0.02), w) for t, w in asyncio.run(scenario())] == expected


def test_a_fresh_ledger_is_filled_newest_first_as_far_as_the_source_goes_back(site):
    async def scenario():
        async with site(behave=one_cell).polled() as s:
            return s.source.windows, list(s.ledger.stored("lmt")), s.ledger.watermark("lmt")

    asked, stored, watermark = asyncio.run(scenario())
    assert asked == windows(NOON - HOUR, NOON - WINDOW)[::-1]
    assert (stored, watermark) == ([(NOON - HOUR, NOON - WINDOW)], NOON - WINDOW)


@pytest.mark.parametrize("seed", range(5))
def test_after_a_restart_exactly_the_windows_are_collected_that_the_ledger_cannot_prove(site, seed):
    rng = random.Random(seed)
    s = site()
    s.has_all()
    holes = rng.sample(windows(NOON - HOUR, NOON - WINDOW), 7)
    for hole in holes:
        s.has_not(hole.start, hole.end)

    async def scenario():
        async with s.polled():
            return s.source.windows

    assert asyncio.run(scenario()) == sorted(holes, reverse=True)


def test_a_window_without_data_is_stored_like_any_other(site):
    async def scenario():
        async with site().polled() as s:
            return s.status

    status = asyncio.run(scenario())
    assert (status.windows, status.cells, status.state) == (HOUR // WINDOW - 1, 0, "running")


def test_a_poller_that_is_late_is_not_faster_for_it(site):
    async def scenario():
        async with site(takes=90.0).polled() as s:
            s.source.asked.clear()
            await s.advance(HOUR)
            return s.source.asked

    times = [t for t, _ in asyncio.run(scenario())]
    assert all(b - a == pytest.approx(90.0, abs=0.1) for a, b in pairwise(times))


@pytest.mark.parametrize(("date", "hours"), [("2018-03-11", 23), ("2018-11-04", 25)])
def test_a_day_of_23_or_25_hours_is_collected_whole_in_aligned_windows(site, date, hours):
    day = next(
        d for d in (Calendar("America/Los_Angeles").day(t) for t in range(1_520_000_000, 1_545_000_000, 86_400)) if str(d.date) == date
    )

    async def scenario():
        s = site(clock=FakeClock(day.start), zone="America/Los_Angeles", window=7200, retention=7200)
        async with s.polled():
            s.source.asked.clear()
            await s.advance(hours * HOUR + SETTLE, by=HOUR)
            return s.source.windows, list(s.ledger.stored("lmt"))

    asked, stored = asyncio.run(scenario())
    expected = [Window(start, min(start + 7200, day.end)) for start in range(day.start, day.end, 7200)]
    assert day.end - day.start == hours * HOUR
    assert asked[-len(expected) :] == expected
    assert stored[0][1] == day.end


# ---- a source that has not got that far


def test_a_source_that_lags_is_asked_now_and_then_and_that_is_no_failure(site):
    clock = FakeClock(NOON)

    def behave(window):
        if window.end > clock.time() - 90:
            raise NotYet("newest is older")
        return []

    async def scenario():
        s = site(clock=clock, behave=behave)
        s.has_all(NOON - WINDOW)
        async with s.polled():
            await s.advance(HOUR)
            return s.writer.stored, s.ledger.unstored("lmt"), s.poller.counts, s.status.state

    stored, unstored, counts, state = asyncio.run(scenario())
    assert [w for _, w in stored] == windows(NOON - WINDOW, NOON + HOUR - 2 * WINDOW)
    assert max(t - (w.end + 90) for t, w in stored) <= SETTLE
    assert (unstored, state, set(counts)) == ([], "running", {"not_yet"})
    assert counts["not_yet"] <= HOUR / SETTLE + 2


def test_a_source_that_has_stopped_is_late_for_what_it_says_itself(site):
    """LMT's cerebro stands still: `status` said "late" and nothing more, and the log had nothing."""
    clock = FakeClock(NOON)

    def behave(window):
        if window.end > NOON and NOON + 1800 <= clock.time() < NOON + 2100:
            raise Transient("no answer")
        if window.end > NOON:
            raise NotYet(f"the database has reached {iso(NOON)}, not yet {iso(window.end)}")
        return []

    async def scenario():
        s = site(clock=clock, behave=behave)
        s.has_all(NOON - WINDOW)
        seen = []
        with capture_logs() as logs:
            async with s.polled():
                for seconds in (2 * WINDOW, 2000 - 2 * WINDOW, HOUR - 2000):
                    await s.advance(seconds)
                    seen.append((s.status.state, s.status.state_reason))
        return seen, [line["event"] for line in logs if line["log_level"] == "warning"]

    seen, logged = asyncio.run(scenario())
    assert seen[:2] == [("running", ""), ("waiting", "no answer")]
    assert seen[2][0] == "running"
    assert seen[2][1].startswith(f"the database has reached {iso(NOON)}, not yet ")
    assert logged.count("source.partial") == 2


# ---- clocks


def test_a_clock_that_jumps_forth_asks_for_windows_that_are_not_there_yet_and_harms_nothing(site):
    clock = FakeClock(NOON)
    true = lambda: NOON + clock.monotonic()  # noqa: E731 - the source's own clock

    def behave(window):
        if window.end > true():
            raise NotYet("in the future")
        return []

    async def scenario():
        s = site(clock=clock, behave=behave, retention=4 * HOUR)
        s.has_all(NOON - WINDOW, hours=5)
        with capture_logs() as logs:
            async with s.polled():
                await s.advance(600)
                clock.jump(2 * HOUR)
                s.source.asked.clear()
                await s.advance(600)
                asked = len(s.source.asked)
                clock.jump(-2 * HOUR)
                await s.advance(600)
                return asked, logs, list(s.ledger.stored("lmt")), s.poller.counts["clock_jump"]

    asked, logs, stored, jumps = asyncio.run(scenario())
    assert stored == [(NOON - WINDOW - 5 * HOUR, NOON + 1800 - WINDOW)]
    assert asked < 80
    assert ([line["seconds"] for line in logs if line["event"] == "clock.jumped"], jumps) == ([7200.0, -7200.0], 2)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_source_still_holds_stays_expected_while_the_clock_is_ahead(site, restarts):
    clock = FakeClock(NOON)

    def behave(window):
        if window.end > NOON + clock.monotonic():
            raise NotYet("in the future")
        if window.start < NOON - 600:
            raise Transient("the older records come later")
        return one_cell(window)

    async def scenario():
        s = site(clock=clock, behave=behave)
        async with s.polled():
            await s.advance(WINDOW)
            clock.jump(HOUR - 900)
            if restarts:
                s.poller = s.new_poller()
                task = asyncio.create_task(s.poller.run())
            await s.advance(WINDOW)
            if restarts:
                task.cancel()
            return s.ledger.watermark("lmt")

    # The source keeps an hour.
    assert NOON - HOUR <= asyncio.run(scenario()) <= NOON + 2 * WINDOW - HOUR


def test_a_first_start_by_a_clock_that_is_ahead_expects_what_the_source_still_holds(site):
    """Seed 534000114: until the clock was right again, the watermark was of what the source would have held by then."""
    clock = FakeClock(NOON)

    def behave(window):
        if window.end > NOON + clock.monotonic():
            raise NotYet("in the future")
        return one_cell(window)

    async def scenario():
        s = site(clock=clock, behave=behave)
        clock.jump(HOUR - 900)
        async with s.polled():
            s.writer.stored.clear()
            await s.advance(3 * WINDOW)
            return s.ledger.since("lmt"), s.ledger.watermark("lmt"), len(s.writer.stored)

    # The source keeps an hour; what is older than the clock believes is not collected.
    since, watermark, stored = asyncio.run(scenario())
    assert NOON - HOUR - WINDOW <= since == watermark <= NOON + 3 * WINDOW - HOUR
    assert stored > 3


def test_a_clock_that_is_behind_at_a_start_makes_nothing_expected_that_was_not(site):
    """A dead real-time clock: with a day of old data, all between it and the first start was called lost once the clock was right."""

    async def scenario():
        s = site(behave=one_cell)
        async with s.polled():
            await s.advance(2 * HOUR)
            s.has_all(until=NOON - 4000 * HOUR)
            before = s.ledger.since("lmt")
            s.clock.jump(-8000 * HOUR)
            s.poller = s.new_poller()
            task = asyncio.create_task(s.poller.run())
            await s.advance(WINDOW)
            s.clock.jump(8000 * HOUR)
            await s.advance(2 * WINDOW)
            task.cancel()
            return before, s.ledger.since("lmt"), [one.window for one in s.ledger.unstored("lmt") if one.state == "lost"]

    before, after, lost = asyncio.run(scenario())
    assert (after >= before, lost) == (True, [])


def test_until_the_ledger_is_read_no_time_has_certainly_passed(site):
    """Seed 310014520 of the simulation: the clock was ahead at a start, all recounts were made at once, and a late record never came."""

    async def scenario():
        s = site()
        s.has_all()
        s.clock.jump(1000 * HOUR)
        before = s.poller.passed_time()
        async with s.polled():
            return before, s.poller.passed_time()

    before, after = asyncio.run(scenario())
    assert before == 0.0
    assert NOON <= after < NOON + 60


def test_a_clock_that_jumps_back_makes_nothing_due_until_it_has_caught_up(site):
    async def scenario():
        s = site(retention=4 * HOUR)
        s.has_all(hours=6)
        async with s.polled():
            await s.advance(600)
            s.source.asked.clear()
            s.clock.jump(-HOUR)
            await s.advance(HOUR - WINDOW)
            quiet = list(s.source.windows)
            await s.advance(2 * WINDOW)
            return quiet, s.source.windows, list(s.ledger.stored("lmt"))

    quiet, after, stored = asyncio.run(scenario())
    assert (quiet, after) == ([], [Window(NOON + 600 - WINDOW, NOON + 600)])
    assert stored == [(NOON - 6 * HOUR, NOON + 600)]


# ---- stopping


def test_a_poller_that_is_stopped_cancels_its_question_and_waits_for_answers_under_way(site):
    async def scenario():
        s = site(window=HOUR, retention=3 * HOUR)
        s.writer.holds = True
        task = asyncio.create_task(s.poller.run())
        await s.idle()
        s.source.takes = 1e9
        s.has_not(NOON - 9 * HOUR, NOON)
        await s.clock.advance(HOUR)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (s.source.cancelled, s.status.state) == (1, "stopped")
        held = len(s.writer.held)
        assert await s.poller.drain(0.0) == held > 0
        asyncio.get_running_loop().call_soon(s.writer.release)
        assert await s.poller.drain(60.0) == 0
        return len(s.writer.stored), held

    stored, held = asyncio.run(scenario())
    assert stored == held


def test_windows_that_nobody_will_answer_any_more_are_due_again(site):
    async def scenario():
        s = site(window=HOUR, retention=2 * HOUR)
        s.writer.holds = True
        async with s.polled():
            first = list(s.source.windows)
            for _, answer in s.writer.held:
                answer.cancel()
            s.writer.held.clear()
            s.writer.holds = False
            await s.idle()
            return first, s.source.windows

    first, asked = asyncio.run(scenario())
    assert asked == first * 2


def test_a_ledger_that_can_not_be_read_just_now_ends_nothing_and_nothing_is_asked_until_it_can(site):
    async def scenario():
        with capture_logs() as logs:
            one = site()
            other = sqlite3.connect(one.ledger.path, isolation_level=None)
            one.ledger._database.sql.execute("PRAGMA busy_timeout = 0")
            other.execute("BEGIN IMMEDIATE")
            async with one.polled() as s:
                await s.advance(20, by=1)
                before = list(s.source.asked)
                other.execute("ROLLBACK")
                other.close()
                await s.advance(6, by=1)
                return before, len(s.source.asked), [log["error"] for log in logs if log["event"] == "ledger.failed"]

    before, after, errors = asyncio.run(scenario())
    assert (before, after > 50, errors) == ([], True, ["database is locked"])
