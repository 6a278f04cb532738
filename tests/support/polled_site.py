"""A polled source with a real ledger, a source and a writer that a test scripts, and a clock that moves hours in milliseconds."""

import asyncio
import random
from contextlib import asynccontextmanager, contextmanager
from typing import ClassVar

import numpy as np
from structlog.testing import capture_logs

from tokiod.batch import Batch
from tokiod.collector import SourceConfig
from tokiod.errors import Transient
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.polling import poller
from tokiod.polling.poller import Poller
from tokiod.testing.clock import FakeClock
from tokiod.units import NEVER, Duration
from tokiod.window import Calendar, Window
from tokiod.window_data import WindowData, WindowMeta
from tokiod.window_result import Stored

NOON = 1_517_126_400 + 12 * 3600
WINDOW, SETTLE, HOUR = 60, 15, 3600


class Config(SourceConfig, frozen=True):
    @property
    def step(self):
        return 5


class WithoutPast(Config, frozen=True):
    replayable: ClassVar[bool] = False


class Source:
    """A collector that answers by `behave(window)`, which returns batches or raises; each answer takes `takes` seconds."""

    def __init__(self, clock, behave, *, replayable, takes):
        self.clock, self.behave, self.replayable, self.takes = clock, behave, replayable, takes
        self.asked, self.cancelled, self.running = [], 0, 0

    async def collect(self, window):
        self.asked.append((round(self.clock.time(), 2), window))
        self.running += 1
        assert self.running == 1, "two polls of one source at once"
        try:
            if self.takes:
                await self.clock.sleep(self.takes)
            return WindowData(list(self.behave(window)), 7, {"null": 2})
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    @property
    def windows(self):
        return [window for _, window in self.asked]


class Writer:
    """Stores what is submitted, in order, and answers, or by `answer(window)`; `holds` delays answers."""

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
            outcome = self.answer(collected.meta.window) if self.answer else None
            if outcome is None:
                entry = StoredEntry(collected.meta, 0, collected.is_empty)
                self.ledger.store([entry], self.clock.time())
                self.stored.append((round(self.clock.time(), 2), collected.meta.window))
            if not future.done():
                future.set_result(outcome or Stored(0, {}))


class Site:
    """A polled source with its ledger, clock and writer. `retention` is an hour by default, all stored but for what a test removes."""

    def __init__(self, path, *, clock=None, behave=lambda _: [], answer=None, replayable=True, takes=0.0, zone="UTC", seed=1, **config):
        fields = {"window": WINDOW, "settle": SETTLE, "retention": HOUR, "timeout": 60, "empty_after": NEVER} | config
        kind = Config if replayable else WithoutPast
        self.config = kind(name="lmt", kind="lmt", system="cscratch", heal_rate=0.0, **{k: Duration(v) for k, v in fields.items()})
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
        self.ledger.store([StoredEntry(WindowMeta("lmt", "lmt", "cscratch", Window(until - hours * HOUR, until)), 0)], 0.0)

    def has_not(self, start, end):
        self.ledger.forget("cscratch", Window(start, end), 0.0)

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


@contextmanager
def sites(directory, monkeypatch):
    """Yield what makes a Site, in silence.

    Gaps are queried in the same pieces as live data; tests/polling/test_healing.py tests the long queries and their rate.
    """
    monkeypatch.setattr(poller, "BULK_SECONDS", 0)
    with capture_logs():
        yield lambda **options: Site(directory / "ledger.sqlite3", **options)


def windows(start, end, length=WINDOW):
    return [Window(s, s + length) for s in range(start, end, length)]


def one_cell(window):
    """Return what a source returns that has one sample, 5 s before the window's end."""
    time, column, value = np.array([window.end - 5]), np.zeros(1, np.uint32), np.ones(1)
    return [Batch("datatargets/readrates", "gauge", 5, ("OST0000",), time, column, value)]


def trouble(text="gone", kind=Transient):
    def behave(_):
        raise kind(text)

    return behave
