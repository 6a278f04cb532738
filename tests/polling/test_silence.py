"""A source that answers without records: a state of its own, whose windows are not stored and come again."""

import asyncio
import random

import pytest
from polled_site import HOUR, NOON, SETTLE, WINDOW, one_cell, sites
from structlog.testing import capture_logs

from tokiod.polling.silence import EMPTY_IN_BACKFILL, EmptyWindow, decide
from tokiod.units import NEVER
from tokiod.window import Window

EMPTY_AFTER = 900


@pytest.fixture
def site(tmp_path, monkeypatch):
    with sites(tmp_path, monkeypatch) as make:
        yield make


class Records:
    """A source whose records a query finds from the moment at which `found` is set: of all windows that `has` holds."""

    def __init__(self, has=lambda _window: True, *, found=False):
        self.has, self.found = has, found

    def __call__(self, window):
        return one_cell(window) if self.found and self.has(window) else []


NEWEST = {
    "may_return": True, "premature": 0.0, "age": 75.0, "is_older": False, "has_data": True, "silence": 60, "empty_after": EMPTY_AFTER,
}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        ({}, None),
        ({"silence": EMPTY_AFTER - 1}, None),
        ({"silence": EMPTY_AFTER}, EMPTY_AFTER),
        ({"silence": EMPTY_AFTER, "age": 7200.0}, 7200.0),
        ({"silence": EMPTY_AFTER, "is_older": True}, EMPTY_AFTER),
        ({"silence": EMPTY_AFTER, "may_return": False}, None),
        ({"has_data": False}, None),
        ({"is_older": True, "silence": 0}, None),
        ({"is_older": True}, EMPTY_AFTER),
        ({"is_older": True, "has_data": False, "silence": 0}, EMPTY_AFTER),
        ({"is_older": True, "may_return": False}, None),
        ({"premature": 300.0}, 300.0),
        ({"premature": 300.0, "silence": EMPTY_AFTER, "age": -225.0}, 300.0),
        ({"premature": 300.0, "may_return": False}, None),
    ],
)
def test_a_window_without_records_is_stored_or_kept_apart_for_some_time(facts, seconds):
    assert decide(EmptyWindow(**NEWEST | facts)) == seconds


def empty(s):
    return [(one.window.start, one.window.end) for one in s.ledger.unstored("lmt") if one.state == "empty"]


async def settle(s, hours=1):
    """Let time pass, with the backfills that the poller requested done as they would be."""
    await s.advance(hours * HOUR)
    for job in s.ledger.jobs.unfinished("lmt"):
        collected = [w for w in s.calendar.split(job.span, WINDOW) if s.source.behave(w)]
        s.backfilled += collected
        s.ledger.jobs.set_state(job, "done", s.clock.time())


def test_a_source_without_any_record_is_empty_after_a_while_and_its_windows_are_not_stored(site):
    async def scenario():
        s = site(behave=Records(), empty_after=EMPTY_AFTER)
        with capture_logs() as logs:
            async with s.polled():
                await s.advance(WINDOW)
                return s.status, empty(s), list(s.ledger.stored("lmt")), [line for line in logs if line["event"] == "source.empty"]

    status, kept, stored, logs = asyncio.run(scenario())
    assert status.state == "empty"
    assert status.state_reason.startswith("up, but no record in the last ")
    # The first quarter of an hour is stored before the silence is known to be long; it is queried again, as the next test shows.
    assert stored == [(NOON - EMPTY_AFTER, NOON - WINDOW)]
    assert kept == [(NOON - HOUR, NOON - EMPTY_AFTER), (NOON - WINDOW, NOON)]
    assert len(logs) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_all_of_the_past_is_collected_once_the_cause_is_removed_also_by_a_restart(site, restarts):
    async def scenario():
        records = Records()
        s = site(behave=records, empty_after=EMPTY_AFTER, retention=4 * HOUR)
        s.backfilled = []
        task = asyncio.create_task(s.poller.run())
        await s.idle()
        await s.advance(HOUR / 2)
        records.found = True
        if restarts:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            s.poller = s.new_poller()
            task = asyncio.create_task(s.poller.run())
        await settle(s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return s.status.state_reason, empty(s), list(s.ledger.stored("lmt")), s.backfilled

    reason, kept, stored, backfilled = asyncio.run(scenario())
    reach = NOON + HOUR // 2 + WINDOW - 4 * HOUR
    assert (reason, kept) == ("", [])  # nor is anything expected any more that is beyond the retention by then
    assert stored == [(reach, NOON + HOUR + HOUR // 2 - WINDOW)]
    # What was stored while it was not yet known that the source is empty.
    assert min(w.start for w in backfilled) == NOON - EMPTY_AFTER
    assert sum(w.seconds for w in backfilled) >= EMPTY_AFTER - WINDOW


def test_a_short_silence_is_stored_and_nothing_is_queried_twice(site):
    async def scenario():
        records = Records(lambda w: not NOON <= w.start < NOON + 600, found=True)
        s = site(behave=records, empty_after=EMPTY_AFTER)
        async with s.polled():
            states = set()
            for _ in range(40):
                await s.advance(WINDOW)
                states.add(s.status.state)
            return states, empty(s), s.ledger.jobs.all(), s.source.windows, list(s.ledger.stored("lmt"))

    states, kept, jobs, asked, stored = asyncio.run(scenario())
    assert (states, kept, jobs) == ({"running"}, [], [])
    assert len(asked) == len(set(asked))
    assert stored == [(NOON - HOUR, NOON + 40 * WINDOW - WINDOW)]


def test_a_silence_that_ends_while_the_ledger_fails_is_queried_again_once_it_works(site):
    async def scenario():
        records = Records()
        s = site(behave=records, empty_after=EMPTY_AFTER)
        async with s.polled():
            await s.advance(HOUR / 2)
            records.found = True
            s.ledger._database.sql.execute("ALTER TABLE job RENAME TO elsewhere")
            await s.advance(WINDOW)
            s.ledger._database.sql.execute("ALTER TABLE elsewhere RENAME TO job")
            await s.advance(2 * WINDOW)
            return [job.span for job in s.ledger.jobs.unfinished("lmt")]

    spans = asyncio.run(scenario())
    assert any(span.start <= NOON - EMPTY_AFTER and span.end >= NOON - WINDOW for span in spans)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_backfill_found_empty_is_backfilled_again_once_records_come(site, restarts):
    old = Window(NOON - 48 * HOUR, NOON - 47 * HOUR)

    async def scenario():
        records = Records(found=True)
        s = site(behave=records, empty_after=EMPTY_AFTER)
        task = asyncio.create_task(s.poller.run())
        await s.idle()
        await s.advance(HOUR / 2)
        records.found = False
        await s.advance(HOUR)
        s.ledger.empty("lmt", old, EMPTY_IN_BACKFILL, s.clock.time())
        if restarts:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            s.poller = s.new_poller()
            task = asyncio.create_task(s.poller.run())
        await s.advance(HOUR / 2)
        before = s.ledger.jobs.all()
        records.found = True
        await s.advance(4 * WINDOW)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return before, [job.span for job in s.ledger.jobs.all() if not job.force]

    assert asyncio.run(scenario()) == ([], [old])


def test_a_true_silence_is_queried_once_more_when_records_come_and_is_stored_then(site):
    silent = Window(NOON, NOON + HOUR)

    async def scenario():
        records = Records(lambda w: not silent.start <= w.start < silent.end, found=True)
        s = site(behave=records, empty_after=EMPTY_AFTER, retention=4 * HOUR)
        s.backfilled = []
        async with s.polled():
            await s.advance(HOUR)
            state, kept = s.status.state, empty(s)
            await settle(s)
            return state, kept, s.status.state, empty(s), list(s.ledger.stored("lmt")), s.source.windows

    state, kept, state_after, kept_after, stored, asked = asyncio.run(scenario())
    assert (state, state_after, kept_after) == ("empty", "running", [])
    assert kept == [(NOON + EMPTY_AFTER - WINDOW, NOON + HOUR - WINDOW)]
    assert stored == [(NOON - 4 * HOUR, NOON + 2 * HOUR - WINDOW)]
    again = [w for w in asked if silent.start + EMPTY_AFTER <= w.start < silent.end - WINDOW]
    # Once in its turn, while it was silent now and then for late records, and once when records came.
    assert 2 * len(set(again)) <= len(again) <= 6 * len(set(again))


@pytest.mark.parametrize("ahead", [300, 2 * HOUR])
def test_windows_of_a_time_that_has_not_come_are_not_stored_while_the_clock_is_ahead(site, ahead):
    async def scenario():
        now = lambda: NOON + s.clock.monotonic()  # noqa: E731 - the source's own clock
        s = site(behave=Records(lambda w: w.end <= now(), found=True), empty_after=EMPTY_AFTER, retention=4 * HOUR)
        async with s.polled():
            await s.advance(600)
            s.clock.jump(ahead)
            await s.advance(600)
            stored = list(s.ledger.stored("lmt"))
            s.clock.jump(-ahead)
            await s.advance(2 * WINDOW)
            state = s.status.state
            await s.advance(ahead + HOUR)
            return stored, state, list(s.ledger.stored("lmt")), empty(s), s.ledger.jobs.all(), s.writer.stored

    stored, state, stored_after, kept, jobs, answers = asyncio.run(scenario())
    assert (stored, state) == ([(NOON - 4 * HOUR, NOON + 1200)], "running")
    assert stored_after[0][1] >= NOON + 1200 + ahead + HOUR - WINDOW
    assert (len(stored_after), kept, jobs) == (1, [], [])
    assert all(w.end <= time for time, w in answers)


def test_late_records_of_an_empty_window_are_found_while_the_source_stays_silent(site):
    late = HOUR
    clock_holder = []

    def behave(window):
        return one_cell(window) if window.end + late <= clock_holder[0].time() else []

    async def scenario():
        s = site(behave=behave, empty_after=EMPTY_AFTER, retention=4 * HOUR)
        clock_holder.append(s.clock)
        async with s.polled():
            await s.advance(4 * HOUR)
            return s.status.state, s.writer.stored

    state, stored = asyncio.run(scenario())
    with_records = {w for time, w in stored if w.end + late <= time}
    assert state == "empty"
    assert {Window(t, t + WINDOW) for t in range(NOON + HOUR, NOON + 2 * HOUR, WINDOW)} <= with_records


def test_a_source_that_may_be_silent_never_is_empty(site):
    async def scenario():
        s = site(behave=Records(), empty_after=NEVER)
        async with s.polled():
            await s.advance(2 * HOUR)
            return s.status.state, empty(s), list(s.ledger.stored("lmt"))

    assert asyncio.run(scenario()) == ("running", [], [(NOON - HOUR, NOON + 2 * HOUR - WINDOW)])


def test_a_source_without_a_past_is_empty_too_and_its_windows_are_stored_because_they_can_not_come_again(site):
    async def scenario():
        s = site(behave=Records(), empty_after=EMPTY_AFTER, replayable=False)
        async with s.polled():
            await s.advance(HOUR)
            return s.status.state, empty(s), list(s.ledger.stored("lmt"))

    assert asyncio.run(scenario()) == ("empty", [], [(NOON, NOON + HOUR + WINDOW)])


def test_an_outage_of_an_empty_source_is_an_outage_and_afterwards_it_is_empty_again(site):
    state_at = {}

    async def scenario():
        s = site(behave=Records(), empty_after=EMPTY_AFTER)
        records = s.source.behave
        async with s.polled():
            state_at["empty"] = s.status.state

            def gone(_window):
                raise OSError("gone")

            s.source.behave = gone
            await s.advance(600)
            state_at["down"] = s.status.state
            s.source.behave = records
            await s.advance(HOUR)
            state_at["up"] = s.status.state

    asyncio.run(scenario())
    assert state_at == {"empty": "empty", "down": "waiting", "up": "empty"}


def test_a_silence_longer_than_the_retention_ends_as_lost_and_holds_up_no_watermark(site):
    async def scenario():
        records = Records(found=True)
        s = site(behave=records, empty_after=EMPTY_AFTER, retention=2 * HOUR)
        async with s.polled():
            await s.advance(HOUR)
            records.found = False
            await s.advance(5 * HOUR)
            records.found = True
            await settle(s, hours=3)
            return s.ledger.unstored("lmt"), s.ledger.watermark("lmt"), s.clock.time()

    unstored, watermark, now = asyncio.run(scenario())
    (lost,) = unstored
    assert lost.state == "lost"
    assert NOON + HOUR < lost.window.start < NOON + HOUR + EMPTY_AFTER
    assert lost.error == "the source had no record of it, and keeps none that is older than 7200 s"
    assert NOON + 3 * HOUR < lost.window.end <= NOON + 4 * HOUR + 2 * WINDOW
    assert watermark >= now - 2 * WINDOW - SETTLE


def test_empty_windows_beyond_the_retention_are_not_lost_where_the_source_never_had_a_record(site):
    async def scenario():
        s = site(behave=Records(), empty_after=EMPTY_AFTER, retention=HOUR)
        async with s.polled():
            await s.advance(2 * HOUR)
            return [one.state for one in s.ledger.unstored("lmt")], empty(s)

    states, kept = asyncio.run(scenario())
    assert set(states) == {"empty"}
    assert kept[-1][1] >= NOON + 2 * HOUR - WINDOW - SETTLE


@pytest.mark.parametrize("seed", [0, 2])
def test_in_whatever_order_records_come_and_go_no_window_that_has_some_in_the_end_is_left_out(site, seed):
    """The source is fixed, broken and restarted at random; in the end every window with records is stored after they were there."""
    rng = random.Random(seed)

    async def scenario():
        records = Records(lambda w: random.Random(w.start // 1800).random() < 0.7)
        s = site(behave=records, empty_after=EMPTY_AFTER, retention=6 * HOUR)
        s.backfilled = []
        got = set()

        def behave(window):
            found = records(window)
            got.update({t for t in range(window.start, window.end, WINDOW) if found})
            return found

        s.source.behave = behave
        for _ in range(6):
            task = asyncio.create_task(s.poller.run())
            await s.idle()
            await s.advance(rng.choice([600, 1800, 4000]))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            records.found = rng.random() < 0.5
            s.poller = s.new_poller()
        records.found = True
        task = asyncio.create_task(s.poller.run())
        await settle(s, hours=2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        end = int(s.clock.time()) // WINDOW * WINDOW - 2 * WINDOW
        has = {t for t in range(NOON - 2 * HOUR, end, WINDOW) if records.has(Window(t, t + WINDOW))}
        return has - got

    assert asyncio.run(scenario()) == set()
