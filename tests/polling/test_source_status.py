"""A source that is down, its return, and its lost windows: what is reported, and what follows."""

import asyncio
import sqlite3
from dataclasses import replace

import pytest
from polled_site import HOUR, NOON, SETTLE, WINDOW, one_cell, sites, trouble, windows
from structlog.testing import capture_logs

from tokiod.dropped import Why
from tokiod.errors import Fatal, NotYet, Transient
from tokiod.ledger.ledger import StoredEntry
from tokiod.ranges import Ranges
from tokiod.testing.clock import FakeClock
from tokiod.window import Window
from tokiod.window_data import WindowMeta


@pytest.fixture
def site(tmp_path, monkeypatch):
    with sites(tmp_path, monkeypatch) as make:
        yield make


# ---- a source of which a part is down


def test_a_source_of_which_a_part_is_down_is_stored_and_says_so_once(site):
    """No outage, no backoff: the sentence is in the ledger's state until the part is back."""
    clock = FakeClock(NOON)

    async def scenario():
        s = site(clock=clock, takes=0.5, retention=8 * HOUR)
        collect = s.source.collect

        async def collect_in_part(window):
            data = await collect(window)
            return replace(data, trouble="oss2 is down" if clock.time() < NOON + HOUR else "")

        s.source.collect = collect_in_part
        s.has_all(NOON - WINDOW, hours=9)
        with capture_logs() as logs:
            async with s.polled():
                await s.advance(HOUR - 300, by=30)
                during = s.status.state, s.status.state_reason, len(s.writer.stored)
                await s.advance(HOUR, by=30)
                return during, s.status.state, s.status.state_reason, [line["event"] for line in logs], list(s.ledger.stored("lmt"))

    (state, reason, stored), after, nothing, events, covered = asyncio.run(scenario())
    assert (state, reason, after, nothing) == ("running", "oss2 is down", "running", "")
    assert stored > 30
    assert (events.count("source.partial"), events.count("source.up"), events.count("source.down")) == (1, 1, 0)
    assert len(covered) == 1


# ---- records that are dropped


def test_the_first_example_of_a_reason_is_recorded_and_logged_once_and_an_unreadable_window_is_partial(site):
    """The ledger has it for `status`; the sentence is the source's state while every record of its windows is dropped."""
    clock = FakeClock(NOON)

    async def scenario():
        s = site(clock=clock, takes=0.5)
        collect = s.source.collect

        async def collect_without_hosts(window):
            data = await collect(window)
            batches = [] if clock.time() < NOON + HOUR / 2 else one_cell(window)
            example = f"{{'at': {window.start}}}"
            return replace(data, batches=batches, dropped={"no host": 2, "old": 1}, why={"no host": Why(example, "set host_field")})

        s.source.collect = collect_without_hosts
        s.has_all(NOON - WINDOW, hours=2)
        with capture_logs() as logs:
            async with s.polled():
                await s.advance(300, by=30)
                during = s.status.state_reason, s.ledger.why_dropped("lmt")
                await s.advance(HOUR, by=30)
                return during, s.status.state_reason, [line for line in logs if line["event"] == "records.dropped"]

    (reason, why), after, (event,) = asyncio.run(scenario())
    assert reason.startswith('nothing could be read, dropped: 2 x no host, for example "{')
    assert reason.endswith('}" (set host_field); 1 x old')
    assert (list(why), why["no host"].remedy, after) == (["no host"], "set host_field", "")
    assert (event["reason"], event["example"], event["remedy"], event["records"]) == (
        "no host",
        why["no host"].example,
        "set host_field",
        2,
    )


# ---- a source that is down


def test_a_source_that_was_down_for_six_hours_is_healed_newest_first_and_live_polling_is_never_late(site):
    down = range(NOON, NOON + 6 * HOUR)
    clock = FakeClock(NOON)

    def behave(_):
        if int(clock.time()) in down:
            raise Transient("connection refused")
        return []

    async def scenario():
        s = site(clock=clock, behave=behave, takes=0.5, retention=8 * HOUR)
        s.has_all(NOON - WINDOW, hours=9)
        async with s.polled():
            await s.advance(6 * HOUR, by=300)
            during = len(s.source.asked)
            assert (s.status.state, s.status.state_reason) == ("waiting", "connection refused")
            await s.advance(HOUR, by=120)
            return during, s.writer.stored, list(s.ledger.stored("lmt")), s.status.state, s.ledger.unstored("lmt")

    during, stored, covered, state, unstored = asyncio.run(scenario())
    assert 60 < during < 400  # backing off: at most every few minutes on average, not every second
    first = stored[0][0]
    assert first < NOON + 6 * HOUR + 300
    live = [(t, w) for t, w in stored if w.end + SETTLE >= first]
    assert max(t - (w.end + SETTLE) for t, w in live) <= 1.5  # the window being healed, then its own collecting
    healed = [w for _, w in stored if w.end + SETTLE < first]
    assert healed == sorted(healed, reverse=True)
    assert len(healed) > 300
    assert covered == [(NOON - WINDOW - 9 * HOUR, NOON + 7 * HOUR - WINDOW)]
    assert (state, unstored) == ("running", [])


def test_while_a_source_is_down_the_ledger_records_attempts_reason_and_next_try(site):
    async def scenario():
        s = site(behave=trouble("connection refused"), window=HOUR, retention=2 * HOUR)
        s.has_all(NOON - HOUR)
        async with s.polled():
            await s.advance(120)
            return len(s.source.asked), s.ledger.unstored("lmt"), s.clock.time(), s.poller.counts

    attempts, rows, now, counts = asyncio.run(scenario())
    (row,) = rows
    assert (row.window, row.state, row.attempts) == (Window(NOON - HOUR, NOON), "failed", attempts)
    assert (row.error_class, row.error) == ("Transient", "connection refused")
    assert row.last_try <= now < row.next_try
    assert counts == {"transient": attempts}


def test_the_attempts_at_a_window_are_counted_on_after_a_restart(site):
    async def scenario():
        s = site(behave=trouble(), window=HOUR, retention=2 * HOUR)
        s.has_all(NOON - HOUR)
        s.ledger.failed("lmt", Window(NOON - HOUR, NOON), "Transient", "gone", 41, NOON, NOON)
        async with s.polled():
            await s.advance(SETTLE)
            return s.ledger.unstored("lmt")[0].attempts, len(s.source.asked)

    attempts, asked = asyncio.run(scenario())
    assert attempts == 41 + asked


def test_a_window_that_always_fails_delays_no_other(site):
    poison = Window(NOON - 10 * WINDOW, NOON - 9 * WINDOW)

    def behave(window):
        if window == poison:
            raise Transient("too big")
        return []

    async def scenario():
        s = site(behave=behave, retention=3 * HOUR)
        s.has_all(hours=4)
        s.has_not(NOON - HOUR, NOON)
        async with s.polled():
            await s.advance(2 * HOUR, by=120)
            return s.source.windows.count(poison), list(s.ledger.stored("lmt")), s.ledger.unstored("lmt")

    times, stored, unstored = asyncio.run(scenario())
    assert stored == [(NOON - 4 * HOUR, poison.start), (poison.end, NOON + 2 * HOUR - WINDOW)]
    assert [(row.window, row.attempts) for row in unstored] == [(poison, times)]
    assert 5 < times < 40


def test_an_answer_that_takes_too_long_is_cut_off_and_counted_as_a_timeout(site):
    async def scenario():
        s = site(takes=1e9, timeout=0, window=HOUR, retention=2 * HOUR)
        s.has_all(NOON - HOUR)
        async with s.polled():
            await s.advance(SETTLE)
            return s.poller.counts, s.source.cancelled, s.ledger.unstored("lmt")[0], s.status.state

    counts, cancelled, row, state = asyncio.run(scenario())
    assert counts == {"timeout": cancelled}
    assert cancelled > 0
    assert (row.error_class, row.error, state) == ("TimeoutError", "no answer within 0 s", "waiting")


def test_a_fault_in_a_collector_is_logged_with_its_traceback_and_stops_no_other(site):
    def behave(window):
        if window.start == NOON - 5 * WINDOW:
            raise ZeroDivisionError("a bug")
        return []

    async def scenario():
        s = site(behave=behave)
        s.has_all()
        s.has_not(NOON - HOUR // 2, NOON)
        with capture_logs() as logs:
            async with s.polled():
                await s.advance(HOUR // 2)
                return logs, list(s.ledger.stored("lmt")), s.ledger.unstored("lmt"), s.poller.counts

    logs, stored, unstored, counts = asyncio.run(scenario())
    reported = [line for line in logs if line["event"] == "window.failed"]
    assert isinstance(reported[0].pop("exc_info"), ZeroDivisionError)
    assert reported[0] == {
        "event": "window.failed", "log_level": "error", "source": "lmt", "window": "[2018-01-28T19:55:00Z, 2018-01-28T19:56:00Z)",
        "error_class": "ZeroDivisionError", "error": "a bug", "times": 1,
    }  # fmt: skip
    assert [(row.window.start, row.error_class) for row in unstored] == [(NOON - 5 * WINDOW, "ZeroDivisionError")]
    assert stored == [(NOON - 2 * HOUR, NOON - 5 * WINDOW), (NOON - 4 * WINDOW, NOON + HOUR // 2 - WINDOW)]
    assert counts["bug"] == unstored[0].attempts


def test_a_fatal_error_is_retried_after_ten_minutes(site):
    behave = trouble("no such table: TIMESTAMP_INFO", Fatal)

    async def scenario():
        s = site(behave=behave)
        s.has_all()
        s.has_not(NOON - WINDOW, NOON)
        async with s.polled():
            await s.advance(WINDOW)
            s.poller.reload()
            await s.idle()
            fatal = s.status.state, s.status.state_reason, len(s.source.asked)
            s.source.behave = lambda _: []
            await s.advance(500)
            still = len(s.source.asked)
            await s.advance(100)
            return fatal, still, s.status.state, list(s.ledger.stored("lmt"))

    fatal, still, state, stored = asyncio.run(scenario())
    assert (fatal, still) == (("fatal", "no such table: TIMESTAMP_INFO", 1), 1)
    assert (state, stored) == ("running", [(NOON - 2 * HOUR, NOON + 660 - WINDOW)])


def test_an_outage_is_logged_when_it_begins_when_it_ends_and_now_and_then_meanwhile(site):
    async def scenario():
        s = site(behave=trouble(), retention=2 * HOUR)
        s.has_all()
        with capture_logs() as logs:
            async with s.polled():
                await s.advance(HOUR)
                s.source.behave = lambda _: []
                await s.advance(600)
        return [line for line in logs if line["log_level"] != "debug"], s.poller.counts["transient"]

    logs, failures = asyncio.run(scenario())
    events = [line["event"] for line in logs]
    assert (events.count("source.down"), events.count("source.up"), events[-1]) == (1, 1, "source.up")
    reported = [line["times"] for line in logs if line["event"] == "window.failed"]
    assert reported[0] == 1
    assert len(reported) <= HOUR / 300 + 1
    assert failures - 10 < sum(reported) <= failures


def test_an_answer_to_a_query_from_before_the_failure_does_not_mean_that_the_source_is_up(site):
    async def scenario():
        s = site(window=HOUR, retention=3 * HOUR)
        s.writer.holds = True
        s.source.behave = lambda w: [] if w.end == NOON - HOUR else trouble("gone")(w)
        async with s.polled():
            s.writer.release()
            await s.idle()
            before = s.status.state
            s.source.behave = lambda _: []
            s.writer.holds = False
            await s.advance(600)
            return before, s.status.state

    assert asyncio.run(scenario()) == ("waiting", "running")


# ---- lost windows


def test_what_is_older_than_the_retention_is_lost_with_a_reason_in_one_row(site):
    async def scenario():
        s = site(behave=trouble("gone for good"), retention=600)
        s.has_all()
        s.ledger.register(s.config, NOON - 600)
        async with s.polled():
            await s.advance(HOUR)
            return s.ledger.unstored("lmt"), s.ledger.watermark("lmt"), s.status.since

    rows, watermark, since = asyncio.run(scenario())
    lost = [row for row in rows if row.state == "lost"]
    assert [(row.window, row.error) for row in lost] == [(Window(NOON, NOON + HOUR - 600), "older than the 600 s that the source keeps")]
    assert (watermark, since) == (NOON + HOUR - 600, NOON - 600)
    assert all(row.window.start >= NOON + HOUR - 600 for row in rows if row.state == "failed")


def test_what_a_source_deletes_before_its_first_stored_window_was_never_expected(site):
    """A fresh archive fills newest first: the far end of the retention passes by before it is reached."""

    async def scenario():
        s = site(behave=trouble(), retention=600)
        async with s.polled():
            await s.advance(HOUR)
            unasked = s.ledger.unstored("lmt"), s.status.since
            s.source.behave = lambda _: []
            await s.advance(HOUR)
            return unasked, s.ledger.unstored("lmt"), s.ledger.stored("lmt").total, s.status.since

    (rows, since), at_last, seconds, first = asyncio.run(scenario())
    assert {row.state for row in rows} == {"failed"}
    assert all(row.window.start >= since == NOON + HOUR - 600 for row in rows)
    assert (at_last, first) == ([], pytest.approx(since, abs=360))
    assert seconds == NOON + 2 * HOUR - WINDOW - first


def test_a_source_that_is_not_replayable_is_queried_once_in_each_window_and_what_was_missed_is_lost(site):
    async def scenario():
        s = site(replayable=False, window=300)
        async with s.polled():
            await s.advance(900)
            s.source.behave = trouble("lfs: command not found")
            await s.advance(900)
            s.source.behave = lambda _: []
            await s.advance(900)
            return s.source.asked, s.ledger.unstored("lmt"), s.ledger.stored("lmt")

    asked, rows, stored = asyncio.run(scenario())
    assert asked[:3] == [(pytest.approx(w.start, abs=0.01), w) for w in windows(NOON, NOON + 900, 300)]
    assert all(w.start <= t < w.end for t, w in asked)
    assert stored.covers(Window(NOON, NOON + 900))
    reasons = {row.error for row in rows if row.state == "lost"}
    assert reasons == {"the source can't be queried about the past, and it was down: lfs: command not found"}
    lost = Ranges((row.window.start, row.window.end) for row in rows)
    assert lost.within(NOON, NOON + 2700) == stored.holes(NOON, NOON + 2700)
    assert lost.covers(Window(NOON + 1200, NOON + 1500))


def test_a_source_that_is_not_replayable_loses_the_time_without_a_daemon(site):
    async def scenario():
        s = site(replayable=False, window=300)
        s.ledger.register(s.config, NOON - 1500)
        s.ledger.store([StoredEntry(WindowMeta("lmt", "lmt", "cscratch", Window(NOON - 1500, NOON - 1200)), 0)], 0.0)
        async with s.polled():
            return s.ledger.unstored("lmt"), s.source.windows

    (row,), asked = asyncio.run(scenario())
    assert (row.window, row.state, row.error) == (Window(NOON - 1200, NOON), "lost", "the source can't be queried about the past")
    assert asked == [Window(NOON, NOON + 300)]


def test_what_a_source_that_is_not_replayable_missed_before_its_first_stored_window_is_lost_too(site):
    async def scenario():
        s = site(replayable=False, window=300, behave=trouble("lfs: command not found"))
        async with s.polled():
            await s.advance(900)
            s.source.behave = lambda _: []
            await s.advance(300)
            return s.ledger.unstored("lmt"), s.ledger.sources()[0].since

    rows, since = asyncio.run(scenario())
    assert since == NOON
    assert [(row.window, row.state) for row in rows] == [(Window(NOON, NOON + 900), "lost")]


def test_a_loss_is_recorded_also_if_the_window_before_it_is_stored_only_after_a_restart(site):
    """The collectors are killed with their first window in flight; their next start can't see it in the ledger yet."""

    async def scenario():
        s = site(replayable=False, window=300)
        s.ledger.register(s.config, NOON - 600)
        async with s.polled():
            s.ledger.store([StoredEntry(WindowMeta("lmt", "lmt", "cscratch", Window(NOON - 600, NOON - 300)), 0)], 0.0)
            return s.ledger.unstored("lmt"), s.ledger.stored("lmt").holes(NOON - 600, NOON)

    (row,), holes = asyncio.run(scenario())
    assert (row.window, row.state) == (Window(NOON - 300, NOON), "lost")
    assert holes == [row.window]


def test_a_loss_that_the_ledger_could_not_record_is_recorded_as_soon_as_it_can(site):
    async def scenario():
        with capture_logs() as logs:
            s = site(replayable=False, window=300)
            other = sqlite3.connect(s.ledger.path, isolation_level=None)
            s.ledger._database.sql.execute("PRAGMA busy_timeout = 0")
            async with s.polled():
                s.source.behave = trouble("lfs: command not found")
                other.execute("BEGIN IMMEDIATE")
                await s.advance(900)
                before = s.ledger.unstored("lmt")
                other.close()
                s.source.behave = lambda _: []
                await s.advance(300)
                return before, s.ledger.unstored("lmt"), [log["window"] for log in logs if log["event"] == "window.lost"]

    before, (row,), reported = asyncio.run(scenario())
    assert before == []
    assert (row.window, row.state) == (Window(NOON + 300, NOON + 900), "lost")
    assert reported == [str(row.window)]


def test_minutes_of_a_clock_that_is_a_year_ahead_write_nothing_off_and_move_no_watermark(site):
    clock = FakeClock(NOON)
    true = lambda: NOON + clock.monotonic()  # noqa: E731 - the source's own clock

    def behave(window):
        if window.end > true():
            raise NotYet("in the future")
        return []

    async def scenario():
        s = site(clock=clock, behave=behave, retention=HOUR)
        s.has_all()
        async with s.polled():
            clock.jump(365 * 24 * HOUR)
            await s.advance(120)
            ahead = s.ledger.watermark("lmt")
            clock.jump(-365 * 24 * HOUR)
            await s.advance(600)
            return ahead, s.ledger.watermark("lmt"), s.ledger.unstored("lmt"), s.ledger.sources()[0].since

    ahead, watermark, rows, since = asyncio.run(scenario())
    assert ahead <= NOON + 120
    assert NOON + 600 <= watermark <= NOON + 720
    assert [row for row in rows if row.state == "lost"] == []
    assert since <= NOON + 720 - HOUR
