"""A watched folder with a real ledger and real files; the kind and the writer are a test's own."""

import asyncio
import random
import time
from collections import Counter
from contextlib import asynccontextmanager

import numpy as np
import pytest

from tokiod.batch import Batch
from tokiod.clock import SimulatedClock
from tokiod.collector import SavedOptions
from tokiod.config.watched_folder import watched
from tokiod.errors import Fatal, Refusal, TokiodError, Transient
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.received_files import Totals
from tokiod.polling.watch.folder import REJECTED
from tokiod.polling.watch.intake import Intake
from tokiod.sample_spans import spans_of
from tokiod.window import Calendar
from tokiod.window_data import WindowData
from tokiod.window_result import Stored

NOON = 1_517_126_400 + 12 * 3600
STEP = 60


class Saved(SavedOptions, kw_only=True, frozen=True):
    step: int = STEP

    def datasets(self):
        return frozenset({"datatargets/readrates"})


class Lines:
    """Lines of "epoch value". Empty files hold nothing; any other text is no such file."""

    step, replayable, needs_sample_at_end = STEP, True, False

    def __init__(self, path, site):
        self.path, self.site = path, site
        site.opened.append(path.name)
        self.behave = site.behaviours.get(path.name)
        if self.behave:
            self.behave(path)

    def rows(self):
        try:
            rows = [tuple(map(int, line.split())) for line in self.path.read_text().splitlines()]
        except ValueError as error:
            raise Fatal(f"{self.path.name}: {error}") from None
        return np.array(rows, np.int64).reshape(-1, 2)

    async def spans(self):
        return spans_of(self.rows()[:, 0], STEP)

    async def collect(self, window):
        rows = self.rows()
        rows = rows[(rows[:, 0] >= window.start) & (rows[:, 0] < window.end)]
        zero = np.zeros(len(rows), np.uint32)
        return WindowData([Batch("datatargets/readrates", "gauge", STEP, ("ost",), rows[:, 0], zero, rows[:, 1] * 1.0)], None, {"odd": 1})

    async def count(self, _window):
        return None

    async def close(self):
        self.site.closed.append(self.path.name)


class Site:
    def __init__(self, directory):
        self.folder = directory / "spool"
        self.folder.mkdir()
        self.ledger = Ledger.open(directory / "ledger.sqlite3")
        self.clock = SimulatedClock(NOON, time.time(), 100.0)
        self.opened, self.closed, self.windows, self.behaviours, self.answers = [], [], [], {}, []

    async def submit(self, collected):
        answer = asyncio.get_running_loop().create_future()
        outcome = self.answers.pop(0) if self.answers else Stored(sum(map(len, collected.batches)), dict(collected.meta.dropped))
        answer.set_result(outcome)
        if isinstance(outcome, Stored):
            self.windows.append(collected)
        return answer

    @property
    def cells(self):
        return {
            (int(t), v)
            for collected in self.windows
            for batch in collected.batches
            for t, v in zip(batch.time, batch.value.tolist(), strict=True)
        }

    def put(self, name, text):
        (self.folder / f".{name}").write_text(text)
        (self.folder / f".{name}").rename(self.folder / name)

    @asynccontextmanager
    async def running(self, **options):
        config = watched(Saved)(name="spool", kind="lines", system="s", watch=str(self.folder), **options)
        calendar, room = Calendar("UTC"), asyncio.Semaphore(2)
        intake = Intake(config, lambda path: Lines(path, self), self.ledger, self.submit, room, calendar, self.clock, random.Random(1))
        task = asyncio.create_task(intake.run())
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait({task})

    @property
    def totals(self):
        return self.ledger.received_files("spool").totals()

    @property
    def state(self):
        (source,) = self.ledger.sources()
        return source.state, source.state_reason

    async def until(self, totals):
        async with asyncio.timeout(20):
            while self.totals != totals:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    made.ledger.close()


def lines(*minutes, start=NOON):
    return "".join(f"{start + STEP * minute} {minute + 1}\n" for minute in minutes)


def test_existing_and_new_files_are_collected_once_each_whole(site):
    site.put("early", lines(0, 1, 2, 100))

    async def scenario():
        async with site.running():
            await site.until(Totals(1, 0))
            site.put("late", lines(*range(200, 230)))
            await site.until(Totals(2, 0))
            return site.state

    assert asyncio.run(scenario()) == ("running", f"2 files of {site.folder} collected")
    assert site.cells == {(NOON + STEP * m, m + 1.0) for m in (0, 1, 2, 100, *range(200, 230))}
    assert (site.opened, site.closed) == (["early", "late"], ["early", "late"])
    assert {collected.meta.extent for collected in site.windows} == {"some"}
    assert all(c.meta.window.seconds <= 180 * STEP and c.meta.window.start % STEP == 0 for c in site.windows)


def test_spans_far_apart_are_collected_without_what_lies_between(site):
    site.put("one", lines(0) + lines(0, start=NOON - 10 * 365 * 86400))

    async def scenario():
        async with site.running():
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert len(site.windows) == 2


def test_the_same_content_under_another_name_is_not_collected_again_and_a_changed_file_is(site):
    async def scenario():
        async with site.running(scan=20.0):
            site.put("one", lines(0))
            await site.until(Totals(1, 0))
            site.put("two", lines(0))
            await asyncio.sleep(0.5)
            assert site.opened == ["one"]
            site.put("one", lines(0, 1))
            await site.until(Totals(2, 0))

    asyncio.run(scenario())
    assert site.opened == ["one", "one"]


def test_after_a_restart_only_new_files_are_collected(site):
    async def scenario(known):
        async with site.running():
            await site.until(known)

    site.put("one", lines(0))
    asyncio.run(scenario(Totals(1, 0)))
    site.put("two", lines(1))
    asyncio.run(scenario(Totals(2, 0)))
    assert site.opened == ["one", "two"]


def test_a_malformed_file_is_rejected_with_the_reason_and_the_others_are_collected(site):
    async def scenario():
        async with site.running():
            site.put("bad", "a line\n")
            site.put("good", lines(0))
            await site.until(Totals(1, 1))
            site.put("bad", "another line\n")
            await site.until(Totals(1, 2))
            return site.state

    state = asyncio.run(scenario())
    apart = site.folder / REJECTED
    assert state == ("running", f"1 files of {site.folder} collected, 2 rejected: see {apart}")
    assert (apart / "bad").read_text() == "a line\n"
    assert (apart / "bad.reason").read_text() == "bad: invalid literal for int() with base 10: 'a'\n"
    assert sorted(Counter(path.suffix for path in apart.iterdir()).values()) == [1, 1, 2]
    assert sorted(path.name for path in site.folder.iterdir()) == ["good", REJECTED]
    assert site.cells == {(NOON, 1.0)}


def test_a_rejected_file_that_is_moved_back_is_tried_again(site):
    def refuse(_path):
        raise TokiodError("not yet understood")

    site.behaviours["one"] = refuse

    async def scenario():
        async with site.running():
            site.put("one", lines(0))
            await site.until(Totals(0, 1))
            site.behaviours.clear()
            (site.folder / REJECTED / "one").rename(site.folder / "one")
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert site.cells == {(NOON, 1.0)}


def test_a_fault_in_the_collector_rejects_the_file_too(site):
    def stumble(_path):
        raise ZeroDivisionError("of all things")

    site.behaviours["one"] = stumble

    async def scenario():
        async with site.running():
            site.put("one", lines(0))
            await site.until(Totals(0, 1))

    asyncio.run(scenario())
    assert "a fault in the collector of lines: ZeroDivisionError: of all things" in (site.folder / REJECTED / "one.reason").read_text()


def test_a_full_disk_delays_a_file(site):
    failures = [Transient("no space"), Transient("no space")]

    def full(_path):
        if failures:
            raise failures.pop()

    site.behaviours["one"] = full
    site.answers = [Refusal("the disk is full", "retry")]

    async def scenario():
        async with site.running():
            site.put("one", lines(0))
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert (site.opened, site.cells) == (["one"] * 4, {(NOON, 1.0)})


def test_a_file_that_the_writer_can_never_store_is_rejected(site):
    site.answers = [Refusal("steps of 60 s, the file has 5 s", "never")]

    async def scenario():
        async with site.running():
            site.put("one", lines(0))
            await site.until(Totals(0, 1))

    asyncio.run(scenario())
    assert "steps of 60 s, the file has 5 s" in (site.folder / REJECTED / "one.reason").read_text()


def test_a_file_that_changes_while_it_is_collected_is_collected_again(site):
    changes = [lines(0, 1, 2)]

    def change(path):
        if changes:
            path.write_text(changes.pop())

    site.behaviours["one"] = change

    async def scenario():
        async with site.running():
            site.put("one", lines(0))
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert site.cells == {(NOON + STEP * m, m + 1.0) for m in range(3)}


def test_a_file_that_is_deleted_before_its_turn_is_skipped(site):
    def vanish(path):
        path.unlink()

    site.behaviours["one"] = vanish

    async def scenario():
        async with site.running():
            site.put("one", lines(0))
            site.put("two", lines(1))
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert not (site.folder / REJECTED).exists()


def test_a_missing_folder_is_reported_and_watched_once_it_exists(site):
    site.folder.rmdir()

    async def scenario():
        async with site.running():
            async with asyncio.timeout(10):
                while not site.ledger.sources() or site.state[0] != "waiting":
                    await asyncio.sleep(0.01)
            before = site.state
            site.folder.mkdir()
            site.put("one", lines(0))
            await site.until(Totals(1, 0))
            return before, site.state[0]

    before, then = asyncio.run(scenario())
    assert before[1].startswith(f"{site.folder} can't be watched: ")
    assert (before[0], then) == ("waiting", "running")


def test_an_empty_file_is_collected_and_holds_nothing(site):
    async def scenario():
        async with site.running():
            site.put("one", "")
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert site.windows == []
