"""A poller and what becomes of its windows: a writer that is slow, full or refuses, a ledger that forgets."""

import asyncio
from itertools import pairwise

import pytest
from polled_site import HOUR, NOON, SETTLE, WINDOW, sites, trouble, windows
from structlog.testing import capture_logs

from tokiod.errors import Refusal, Transient
from tokiod.window import Window


@pytest.fixture
def site(tmp_path, monkeypatch):
    with sites(tmp_path, monkeypatch) as make:
        yield make


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


@pytest.mark.parametrize("making", [0.2, 1.0, 60.0])
def test_a_window_comes_again_soon_after_its_file_is_made_and_seldom_while_that_takes_long(site, making):
    made = NOON + WINDOW + SETTLE + making

    async def scenario():
        s = site(answer=lambda _: None if s.clock.time() > made else Refusal("just being made", "busy"))
        s.has_all(NOON)
        async with s.polled():
            await s.advance(3 * WINDOW, by=0.05)
            return s.source.asked, s.writer.stored, s.poller.counts["busy"], s.poller.counts["transient"]

    asked, stored, busy, failed = asyncio.run(scenario())
    times = [time for time, _ in stored]
    assert made <= min(times) <= made + min(2, 0.1 + making) + 0.1
    assert {window for _, window in stored} >= {Window(NOON, NOON + WINDOW), Window(NOON + WINDOW, NOON + 2 * WINDOW)}
    assert (busy, failed) == (len(asked) - len(stored), 0)
    assert busy <= 2 * (4 + making / 2)


def test_windows_that_come_to_a_busy_writer_together_wait_no_longer_for_it(site):
    made = NOON + 0.6

    async def scenario():
        s = site(answer=lambda _: None if s.clock.time() > made else Refusal("just being made", "busy"))
        s.has_all(NOON - 5 * WINDOW)
        s.writer.holds = True
        async with s.polled():
            for _ in range(100):
                s.writer.release()
                await s.advance(0.05, by=0.05)
            return s.source.asked, s.writer.stored

    asked, ((stored, newest), *_) = asyncio.run(scenario())
    came = [time for time, window in asked if window == newest]
    assert len(asked) > len(came) > 2
    assert [later - before for before, later in pairwise(came)] == pytest.approx([0.1, 0.2, 0.4], abs=0.1)
    assert stored <= made + 0.3


def test_a_full_disk_is_waited_for_and_nothing_is_lost_by_it(site):
    async def scenario():
        s = site(answer=lambda _: Refusal("no space left on device", "retry"), retention=600)
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
        s = site(answer=lambda w: Refusal("its step is 10, the file's is 5", "never") if w == bad else None, retention=8 * HOUR)
        s.has_all(NOON - 10 * WINDOW, hours=9)
        async with s.polled():
            await s.advance(5 * HOUR, by=600)
            early = s.source.windows.count(bad)
            await s.advance(2 * HOUR, by=600)
            return early, s.source.windows.count(bad), s.ledger.unstored("lmt"), s.status.state, s.ledger.stored("lmt")

    early, later, (row,), state, stored = asyncio.run(scenario())
    assert (early, later) == (1, 2)
    assert (row.window, row.state, row.attempts, row.error_class) == (bad, "rejected", 2, "Refusal")
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
            return [(collected.meta.window, collected.meta.records, dict(collected.meta.dropped)) for collected, _ in s.writer.held]

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

        async def waiting_for_the_second(window):
            if window == second and not answer.done():
                await answer
            return await collect(window)

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
                s.ledger._database.sql.execute("PRAGMA query_only = ON")
                await s.advance(300)
                s.ledger._database.sql.execute("PRAGMA query_only = OFF")
                s.source.behave = lambda _: []
                await s.advance(600)
                return logs, s.status.state

    logs, state = asyncio.run(scenario())
    assert "attempt to write a readonly database" in {line["error"] for line in logs if line["event"] == "ledger.failed"}
    assert state == "running"
