"""A poller with a real ledger, a source and a writer that a test scripts, and a clock that moves hours in milliseconds."""

import asyncio
import random
import sqlite3
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from tokiod import poller
from tokiod.bus.unacknowledged import Rejected, Stored
from tokiod.collector import SourceConfig
from tokiod.errors import Fatal, NotYet, Transient
from tokiod.ledger import Ledger, StoredEntry
from tokiod.poller import Poller
from tokiod.ranges import Ranges
from tokiod.testing import FakeClock
from tokiod.units import Duration
from tokiod.window import Calendar, Window

NOON = 1_517_126_400 + 12 * 3600
WINDOW, SETTLE, HOUR = 60, 15, 3600


class Config(SourceConfig, frozen=True):
    @property
    def step(self):
        return 5


class Source:
    """A collector that answers as `behave(window)` says: by returning (batches), or by raising; each answer takes `takes` seconds."""

    def __init__(self, clock, behave, *, replayable, takes):
        self.clock, self.behave, self.replayable, self.takes = clock, behave, replayable, takes
        self.asked, self.cancelled, self.running = [], 0, 0

    async def collect(self, window, tally):
        tally.records, tally.dropped["null"] = 7, 2
        self.asked.append((round(self.clock.time(), 2), window))
        self.running += 1
        assert self.running == 1, "two polls of one source at once"
        try:
            if self.takes:
                await self.clock.sleep(self.takes)
            for batch in self.behave(window):
                yield batch
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    @property
    def windows(self):
        return [window for _, window in self.asked]


class Writer:
    """Stores what is submitted, in order, and answers; or as `answer(window)` says; `holds` keeps answers back."""

    def __init__(self, ledger, clock, answer=None):
        self.ledger, self.clock, self.answer = ledger, clock, answer
        self.holds = False
        self.held = []
        self.stored = []

    async def submit(self, collected):
        future = asyncio.get_running_loop().create_future()
        self.held.append((collected, future))
        if not self.holds:
            self.release()
        return future

    def release(self):
        held, self.held = self.held, []
        for collected, future in held:
            outcome = self.answer(collected.window) if self.answer else None
            if outcome is None:
                entry = StoredEntry(collected.source, collected.kind, collected.system, collected.window, 0)
                self.ledger.store([entry], self.clock.time())
                self.stored.append((round(self.clock.time(), 2), collected.window))
            if not future.done():
                future.set_result(outcome or Stored(0, {}))


class Site:
    """What a test has in hand. `retention` is an hour where not said otherwise, all of it stored but for what a test takes out."""

    def __init__(self, path, *, clock=None, behave=lambda _: [], answer=None, replayable=True, takes=0.0, zone="UTC", seed=1, **config):
        fields = {"window": WINDOW, "settle": SETTLE, "retention": HOUR, "timeout": 60} | config
        self.config = Config(name="lmt", kind="lmt", system="cscratch", heal_rate=0.0, **{k: Duration(v) for k, v in fields.items()})
        self.clock = clock or FakeClock(NOON)
        self.ledger = Ledger.open(path)
        self.source = Source(self.clock, behave, replayable=replayable, takes=takes)
        self.writer = Writer(self.ledger, self.clock, answer)
        self.calendar = Calendar(zone)
        self.seed = seed
        self.poller = self.new_poller()

    def new_poller(self):
        rng = random.Random(self.seed)
        return Poller(self.config, self.source, self.ledger, self.writer.submit, self.calendar, self.clock, rng)

    def has_all(self, until=NOON, hours=2):
        self.ledger.store([StoredEntry("lmt", "lmt", "cscratch", Window(until - hours * HOUR, until), 0)], 0.0)

    def has_not(self, start, end):
        self.ledger.forget("cscratch", Window(start, end))

    @property
    def status(self):
        (status,) = self.ledger.sources()
        return status

    @asynccontextmanager
    async def polled(self):
        task = asyncio.create_task(self.poller.run())
        try:
            await self.idle()
            yield self
        finally:
            assert not task.done() or task.exception() is None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.ledger.close()

    async def idle(self):
        """Let the poller run until it sleeps."""
        before = -1
        while before != (before := len(self.source.asked)):
            for _ in range(40):
                await asyncio.sleep(0)

    async def advance(self, seconds, by=WINDOW / 4):
        """Move the clock, letting the poller come to rest after each step."""
        while seconds > 0:
            await self.clock.advance(min(by, seconds))
            await self.idle()
            seconds -= by


@pytest.fixture(autouse=True)
def _quiet():
    with capture_logs():
        yield


@pytest.fixture(autouse=True)
def _window_by_window(monkeypatch):
    """The past is asked for in the same pieces as the present; how it is otherwise, and how quickly, is in tests/test_healing.py."""
    monkeypatch.setattr(poller, "LONGEST", 0)


@pytest.fixture
def site(tmp_path):
    def make(**options):
        return Site(tmp_path / "ledger.sqlite3", **options)

    return make


def windows(start, end, length=WINDOW):
    return [Window(s, s + length) for s in range(start, end, length)]


def trouble(text="gone", kind=Transient):
    def behave(_):
        raise kind(text)

    return behave


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
        async with site().polled() as s:
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


def test_while_a_source_is_down_the_ledger_says_how_often_it_was_asked_why_not_and_when_it_is_again(site):
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


def test_the_attempts_at_a_window_go_on_counting_after_a_restart(site):
    async def scenario():
        s = site(behave=trouble(), window=HOUR, retention=2 * HOUR)
        s.has_all(NOON - HOUR)
        s.ledger.failed("lmt", Window(NOON - HOUR, NOON), "Transient", "gone", 41, NOON, NOON)
        async with s.polled():
            await s.advance(SETTLE)
            return s.ledger.unstored("lmt")[0].attempts, len(s.source.asked)

    attempts, asked = asyncio.run(scenario())
    assert attempts == 41 + asked


def test_a_window_that_always_fails_holds_nobody_up(site):
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


def test_an_answer_that_takes_too_long_is_cut_off_and_counted_apart(site):
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


def test_a_fault_in_a_collector_is_told_with_its_traceback_and_stops_nobody(site):
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
    told = [line for line in logs if line["event"] == "window.failed"]
    assert isinstance(told[0].pop("exc_info"), ZeroDivisionError)
    assert told[0] == {
        "event": "window.failed", "log_level": "error", "source": "lmt", "window": "[2018-01-28T19:55:00Z, 2018-01-28T19:56:00Z)",
        "error_class": "ZeroDivisionError", "error": "a bug", "times": 1,
    }  # fmt: skip
    assert [(row.window.start, row.error_class) for row in unstored] == [(NOON - 5 * WINDOW, "ZeroDivisionError")]
    assert stored == [(NOON - 2 * HOUR, NOON - 5 * WINDOW), (NOON - 4 * WINDOW, NOON + HOUR // 2 - WINDOW)]
    assert counts["bug"] == unstored[0].attempts


def test_a_fatal_error_waits_for_a_person_who_may_have_come_after_ten_minutes(site):
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


def test_an_outage_is_one_line_when_it_begins_one_when_it_ends_and_now_and_then_one_meanwhile(site):
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
    told = [line["times"] for line in logs if line["event"] == "window.failed"]
    assert told[0] == 1
    assert len(told) <= HOUR / 300 + 1
    assert failures - 10 < sum(told) <= failures


def test_an_answer_to_a_question_from_before_the_failure_does_not_say_that_the_source_is_up(site):
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


# ---- the writer


def test_a_window_on_its_way_to_the_writer_is_not_collected_again_however_long_that_takes(site):
    async def scenario():
        s = site(retention=600)
        s.writer.holds = True
        async with s.polled():
            await s.advance(300)
            asked = s.source.windows
            s.writer.release()
            s.writer.holds = False
            await s.advance(WINDOW)
            return asked, s.source.windows, list(s.ledger.stored("lmt"))

    first, all_of_them, stored = asyncio.run(scenario())
    assert len(first) == len(set(first)) == 9 + 5
    assert len(set(all_of_them)) == len(all_of_them)
    assert stored == [(NOON - 600, NOON + 360 - WINDOW)]


def test_nothing_is_collected_while_the_writer_has_no_room(site):
    room = asyncio.Semaphore(3)

    async def scenario():
        s = site()
        submit = s.writer.submit

        async def bounded(collected):
            await room.acquire()
            return await submit(collected)

        s.poller._submit = bounded
        async with s.polled():
            await s.advance(HOUR / 2)
            return len(s.source.asked)

    assert asyncio.run(scenario()) == 4


def test_a_full_disk_is_waited_for_and_nothing_is_lost_by_it(site):
    async def scenario():
        s = site(answer=lambda _: Rejected("no space left on device", retry=True), retention=600)
        async with s.polled():
            await s.advance(HOUR)
            during = s.status, len(s.source.asked)
            s.writer.answer = None
            await s.advance(600)
            return during, s.status.state, list(s.ledger.stored("lmt"))

    (status, asked), state, stored = asyncio.run(scenario())
    assert (status.state, status.state_reason) == ("waiting", "the writer refused it: no space left on device")
    assert asked < 100
    assert (state, stored[-1][1] - stored[0][0] >= 600, stored[-1][1]) == ("running", True, NOON + HOUR + 600 - WINDOW)


def test_a_window_that_can_never_be_stored_is_told_and_left_alone_and_others_go_on(site):
    bad = Window(NOON - 5 * WINDOW, NOON - 4 * WINDOW)

    async def scenario():
        s = site(answer=lambda w: Rejected("its step is 10, the file's is 5", retry=False) if w == bad else None, retention=8 * HOUR)
        s.has_all(NOON - 10 * WINDOW, hours=9)
        async with s.polled():
            await s.advance(5 * HOUR, by=600)
            early = s.source.windows.count(bad)
            await s.advance(2 * HOUR, by=600)
            return early, s.source.windows.count(bad), s.ledger.unstored("lmt"), s.status.state, s.ledger.stored("lmt")

    early, later, (row,), state, stored = asyncio.run(scenario())
    assert (early, later) == (1, 2)
    assert (row.window, row.state, row.attempts, row.error_class) == (bad, "rejected", 2, "Unstorable")
    assert row.error == "the writer refused it: its step is 10, the file's is 5"
    assert state == "running"
    assert stored.holes(NOON - HOUR, NOON + 7 * HOUR - WINDOW) == [bad]


def test_the_writer_gets_what_the_collector_says_of_a_window(site):
    async def scenario():
        s = site()
        s.has_all()
        s.writer.holds = True
        async with s.polled():
            await s.advance(WINDOW + SETTLE)
            return [(collected.window, collected.records, dict(collected.dropped)) for collected, _ in s.writer.held]

    assert asyncio.run(scenario()) == [(Window(NOON, NOON + WINDOW), 7, {"null": 2})]


def test_what_the_ledger_forgets_is_collected_again_after_a_reload_and_only_that(site):
    async def scenario():
        s = site()
        async with s.polled():
            s.source.asked.clear()
            s.has_not(NOON - 30 * WINDOW, NOON - 27 * WINDOW)
            s.poller.reload()
            await s.idle()
            return s.source.windows

    assert asyncio.run(scenario()) == windows(NOON - 30 * WINDOW, NOON - 27 * WINDOW)[::-1]


def test_an_answer_that_came_before_a_reload_does_not_overrule_what_the_ledger_says(site):
    first, second = Window(NOON - HOUR, NOON), Window(NOON - 2 * HOUR, NOON - HOUR)

    async def scenario():
        s = site(window=HOUR, retention=3 * HOUR, settle=0)
        s.has_all(second.start, hours=3)
        s.writer.holds = True
        answer = asyncio.get_running_loop().create_future()
        collect = s.source.collect

        async def waiting_for_the_second(window, tally):
            if window == second and not answer.done():
                await answer
            async for batch in collect(window, tally):
                yield batch

        s.source.collect = waiting_for_the_second
        async with s.polled():
            answer.set_exception(Transient("gone"))  # the poller will go on before it hears of the answer
            s.writer.release()
            s.has_not(first.start, first.end)
            s.poller.reload()
            s.writer.holds = False
            await s.advance(WINDOW)
            return s.source.windows, list(s.ledger.stored("lmt"))

    assert asyncio.run(scenario()) == ([first, first, second], [(second.start - 3 * HOUR, NOON)])


def test_a_ledger_that_cannot_be_written_stops_nothing(site):
    async def scenario():
        s = site(behave=trouble(), retention=2 * HOUR)
        with capture_logs() as logs:
            async with s.polled():
                s.ledger._sql.execute("PRAGMA query_only = ON")
                await s.advance(300)
                s.ledger._sql.execute("PRAGMA query_only = OFF")
                s.source.behave = lambda _: []
                await s.advance(600)
                return logs, s.status.state

    logs, state = asyncio.run(scenario())
    assert "attempt to write a readonly database" in {line["error"] for line in logs if line["event"] == "ledger.failed"}
    assert state == "running"


# ---- what can't be had any more


def test_what_falls_out_of_the_retention_is_lost_with_a_reason_in_one_row(site):
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


def test_what_a_source_drops_before_it_was_ever_had_was_never_expected(site):
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


def test_a_source_without_a_past_is_asked_once_in_each_window_and_what_was_missed_is_lost(site):
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
    assert reasons == {"the source can't be asked about the past, and then: lfs: command not found"}
    lost = Ranges((row.window.start, row.window.end) for row in rows)
    assert lost.within(NOON, NOON + 2700) == stored.holes(NOON, NOON + 2700)
    assert lost.covers(Window(NOON + 1200, NOON + 1500))


def test_a_source_without_a_past_loses_the_time_when_nobody_ran(site):
    async def scenario():
        s = site(replayable=False, window=300)
        s.ledger.register(s.config, NOON - 1500)
        s.ledger.store([StoredEntry("lmt", "lmt", "cscratch", Window(NOON - 1500, NOON - 1200), 0)], 0.0)
        async with s.polled():
            return s.ledger.unstored("lmt"), s.source.windows

    (row,), asked = asyncio.run(scenario())
    assert (row.window, row.state, row.error) == (Window(NOON - 1200, NOON), "lost", "the source can't be asked about the past")
    assert asked == [Window(NOON, NOON + 300)]


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
            one.ledger.sql.execute("PRAGMA busy_timeout = 0")
            other.execute("BEGIN IMMEDIATE")
            async with one.polled() as s:
                await s.advance(20, by=1)
                before = list(s.source.asked)
                other.execute("ROLLBACK")
                other.close()
                await s.advance(6, by=1)
                return before, len(s.source.asked), [log["error"] for log in logs if log["event"] == "ledger.failed"]

    before, after, told = asyncio.run(scenario())
    assert (before, after > 50, told) == ([], True, ["database is locked"])
