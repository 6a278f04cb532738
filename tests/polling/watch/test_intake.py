"""A watched folder with a real ledger and real files; the kind and the writer are a test's own."""

import asyncio
import hashlib
import os
import random
import time
from collections import Counter
from contextlib import asynccontextmanager

import numpy as np
import pytest
from structlog.testing import capture_logs

from tokiod.batch import Batch
from tokiod.clock import SimulatedClock
from tokiod.collector import SavedOptions
from tokiod.config.watched_folder import watched
from tokiod.errors import Fatal, Refusal, TokiodError, Transient
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.received_files import Totals
from tokiod.polling.watch.beneath import REJECTED, found_at
from tokiod.polling.watch.intake import MAX_ATTEMPTS, Intake
from tokiod.sample_spans import spans_of
from tokiod.window import Calendar, Window
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
        self.path, self.site, self.exposure = path, site, site.exposure
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
        self.exposure = ""
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
            yield intake
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


def test_a_window_of_a_file_that_is_too_large_is_stored_in_parts(site, monkeypatch):
    monkeypatch.setattr("tokiod.crossing.parts.MAX_WINDOW_BYTES", 3 * 20)
    site.put("large", lines(*range(10)))

    async def scenario():
        async with site.running():
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert site.cells == {(NOON + STEP * minute, minute + 1.0) for minute in range(10)}
    assert [len(one.batches[0]) for one in site.windows] == [2, 3, 2, 3]


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


def test_files_that_are_read_with_access_to_the_network_are_reported_once_and_in_the_status(site):
    site.exposure = "the network (Operation not permitted)"

    async def scenario():
        async with site.running():
            for count in (1, 2):
                site.put(f"file{count}", lines(count))
                await site.until(Totals(count, 0))
            return site.state

    with capture_logs() as logs:
        state = asyncio.run(scenario())
    assert state == ("running", f"2 files of {site.folder} collected; read with access to the network (Operation not permitted)")
    reported = [log["reason"] for log in logs if log["event"] == "reader.not_isolated"]
    assert reported == ["files are read with access to the network (Operation not permitted)"]


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
            (site.folder / path.name).write_text(changes.pop())

    site.behaviours["one"] = change

    async def scenario():
        async with site.running():
            site.put("one", lines(0))
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert site.cells == {(NOON + STEP * m, m + 1.0) for m in range(3)}


def test_a_file_that_is_deleted_before_its_turn_is_skipped(site):
    def vanish(path):
        (site.folder / path.name).unlink()

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


def test_after_a_restart_files_that_are_older_than_the_retention_are_still_known(site):
    for name, minute in (("first", 0), ("second", 1)):
        site.put(name, lines(minute))

    async def scenario(totals, *, late=None):
        async with site.running(retention=60):
            if late:
                await asyncio.sleep(0.01)
                site.put(late, lines(5))
            await site.until(totals)
            await asyncio.sleep(0.2)

    asyncio.run(scenario(Totals(2, 0)))
    site.clock = SimulatedClock(NOON + 86400, time.time(), 100.0)
    asyncio.run(scenario(Totals(3, 0), late="third"))
    asyncio.run(scenario(Totals(3, 0)))
    assert sorted(site.opened) == ["first", "second", "third"]


def make_unreadable(monkeypatch, name):
    """Let the file of a name be unreadable until monkeypatch.undo(); root may read everything."""
    real = os.open

    def refuse(path, *arguments, **keywords):
        if path == name:
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", refuse)


def test_one_unreadable_file_stops_no_younger_one(site, monkeypatch):
    site.put("bad", lines(0))
    os.utime(site.folder / "bad", ns=(0, 1))
    make_unreadable(monkeypatch, "bad")

    async def scenario():
        async with site.running(scan=20.0):
            site.put("good", lines(1))
            await site.until(Totals(1, 0))
            monkeypatch.undo()
            await site.until(Totals(2, 0))

    asyncio.run(scenario())
    assert site.opened == ["good", "bad"]


def test_of_files_with_samples_of_the_same_time_the_newest_counts_even_if_an_older_one_is_collected_later(site, monkeypatch):
    for name, text, mtime in (("old", "1", 1), ("corrected", "2", 2), ("again", "3", 3), ("other", "4", 4)):
        start = NOON + (86400 if name == "other" else 0)
        site.put(name, f"{start} {text}\n" + (f"{NOON + 3600} {text}\n" if name in {"corrected", "again"} else ""))
        os.utime(site.folder / name, ns=(0, mtime))
    make_unreadable(monkeypatch, "old")

    async def scenario():
        async with site.running(scan=20.0):
            await site.until(Totals(3, 0))
            monkeypatch.undo()
            await site.until(Totals(4, 0))
            async with asyncio.timeout(20):
                while site.opened.count("again") < 2:
                    await asyncio.sleep(0.01)
            await site.until(Totals(4, 0))

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert site.opened == ["corrected", "again", "other", "old", "corrected", "again"]
    (told,) = [one for one in logs if one["event"] == "file.older"]
    assert (told["path"], told["number"]) == (str(site.folder / "old"), 2)
    assert told["newer"] == [str(site.folder / name) for name in ("again", "corrected")]
    last = {int(t): v for one in site.windows for batch in one.batches for t, v in zip(batch.time, batch.value.tolist(), strict=True)}
    assert last == {NOON: 3.0, NOON + 3600: 3.0, NOON + 86400: 4.0}


def test_a_file_of_two_days_that_is_collected_again_because_one_is_lost_does_not_undo_a_correction_of_the_other(site):
    site.put("two days", f"{NOON} 1\n{NOON + 60} 1\n{NOON + 86400} 1\n")
    os.utime(site.folder / "two days", ns=(0, 1))
    (site.folder / "corrected").write_text(f"{NOON + 86400} 2\n")

    async def scenario():
        async with site.running() as intake:
            await site.until(Totals(2, 0))
            site.ledger.forget("s", Window(NOON - 12 * 3600, NOON + 12 * 3600), NOON)
            intake.reload()
            async with asyncio.timeout(20):
                while site.opened.count("corrected") < 2:
                    await asyncio.sleep(0.01)
            await site.until(Totals(2, 0))

    asyncio.run(scenario())
    last = {int(t): v for one in site.windows for batch in one.batches for t, v in zip(batch.time, batch.value.tolist(), strict=True)}
    assert last == {NOON: 1.0, NOON + 60: 1.0, NOON + 86400: 2.0}


def test_a_name_that_is_not_utf_8_is_collected_and_stops_no_other(site):
    odd = os.fsdecode(b"odd-\xff")
    (site.folder / odd).write_text(lines(0))

    async def scenario():
        async with site.running():
            site.put("good", lines(1))
            await site.until(Totals(2, 0))
            (site.folder / os.fsdecode(b"bad-\xff")).write_text("a line\n")
            await site.until(Totals(2, 1))

    asyncio.run(scenario())
    assert site.cells == {(NOON, 1.0), (NOON + STEP, 2.0)}
    assert (site.folder / REJECTED / os.fsdecode(b"bad-\xff")).is_file()


def test_the_files_of_a_lost_day_are_collected_again_and_no_others(site):
    site.put("lost", lines(0))
    site.put("kept", lines(0, start=NOON - 86400))

    async def scenario():
        async with site.running() as intake:
            await site.until(Totals(2, 0))
            site.ledger.forget("s", Window(NOON - 12 * 3600, NOON + 12 * 3600), NOON)
            intake.reload()
            assert site.totals == Totals(1, 0)
            await site.until(Totals(2, 0))

    asyncio.run(scenario())
    assert Counter(site.opened) == {"lost": 2, "kept": 1}


def test_a_file_that_was_being_collected_when_a_day_was_lost_is_collected_again(site):
    intakes = []

    def lose(_path):
        site.behaviours.clear()
        intakes[0].reload()

    site.behaviours["one"] = lose

    async def scenario():
        async with site.running() as intake:
            intakes.append(intake)
            site.put("one", lines(0))
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert site.opened == ["one", "one"]


def test_a_file_whose_collection_never_ends_is_rejected_at_the_fourth_attempt(site):
    received = site.ledger.received_files("spool")

    async def scenario():
        async with site.running():
            site.put("one", lines(0))
            await site.until(Totals(0, 1))

    digest = _digest(lines(0))
    for _ in range(MAX_ATTEMPTS):
        received.begin(digest)
    asyncio.run(scenario())
    assert site.opened == []
    assert (site.folder / REJECTED / "one.reason").read_text() == "3 attempts to collect it began and never ended\n"


@pytest.mark.parametrize("others", [(), ("one", "two")])
def test_attempts_at_files_that_are_gone_are_forgotten(site, others):
    """A power loss took the record that a file was rejected, after it was moved; or it was deleted while no collectors ran."""
    received = site.ledger.received_files("spool")
    received.begin(_digest("gone"))
    for number, name in enumerate(others):
        site.put(name, lines(number))

    async def scenario():
        async with site.running(scan=10.0), asyncio.timeout(20):
            while received.has_unended():
                await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert site.totals == Totals(len(others), 0)
    assert received.begin(_digest("gone")) == 0


def test_an_attempt_is_recorded_before_it_begins_and_ends_with_it(site):
    seen = []

    def look(_path):
        seen.append(site.ledger.received_files("spool").begin(_digest(lines(0))))

    site.behaviours["one"] = look

    async def scenario():
        async with site.running():
            site.put("one", lines(0))
            await site.until(Totals(1, 0))

    asyncio.run(scenario())
    assert seen == [1]
    assert site.ledger.received_files("spool").begin(_digest(lines(0))) == 0


def test_a_file_that_is_too_large_or_sparse_is_rejected_without_being_read(site):
    async def scenario():
        async with site.running(max_size=1000):
            (site.folder / "large").write_text("x" * 1001)
            await site.until(Totals(0, 1))
            site.put("good", lines(0))
            await site.until(Totals(1, 1))

    asyncio.run(scenario())
    assert site.opened == ["good"]
    assert (site.folder / REJECTED / "large.reason").read_text() == "the file has 1001 bytes, more than the 1000 of max_size\n"


def test_nothing_outside_is_collected_or_moved_through_a_directory_that_becomes_a_link(site, tmp_path):
    """As a user of the folder does it while the daemon reads another file."""
    outside = tmp_path / "archive"
    outside.mkdir()
    (outside / "day").write_text("the archive's")

    def swap(_path):
        (site.folder / "sub").rename(site.folder / ".old")
        (site.folder / "sub").symlink_to(outside)

    site.behaviours["a-slow"] = swap
    (site.folder / "sub").mkdir()
    (site.folder / "sub" / "day").write_text("the archive's")
    site.put("a-slow", lines(0))
    os.utime(site.folder / "a-slow", ns=(0, 1))

    async def scenario():
        async with site.running(scan=20.0):
            await site.until(Totals(1, 0))
            await asyncio.sleep(0.5)

    asyncio.run(scenario())
    assert site.opened == ["a-slow"]
    assert [path.name for path in outside.iterdir()] == ["day"]
    assert found_at(site.folder, site.folder / "sub" / "day") is None


def _digest(text):
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


async def reaches(site, *state):
    async with asyncio.timeout(60):
        while not site.ledger.sources() or site.state != state:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("options", [{}, {"empty_after": 600}])
def test_a_folder_that_never_had_a_file_is_empty_after_a_while_until_one_comes(site, options):
    site.clock = SimulatedClock(NOON, time.time(), 1000.0)

    async def scenario():
        async with site.running(**options):
            empty = f"up, but no file was ever collected from {site.folder}{{}}; check kind = 'lines' and watch"
            await reaches(site, "empty", empty.format(""))
            site.put("bad", "no numbers")
            await reaches(site, "empty", empty.format(f", 1 rejected: see {site.folder / REJECTED}"))
            site.put("first", lines(1))
            await site.until(Totals(1, 1))
            await reaches(site, "running", f"1 files of {site.folder} collected, 1 rejected: see {site.folder / REJECTED}")
            if options:
                again = f"up, but no file in 600 s from {site.folder}, 1 rejected: see {site.folder / REJECTED}"
                await reaches(site, "empty", f"{again}; check kind = 'lines' and watch")

    asyncio.run(scenario())
