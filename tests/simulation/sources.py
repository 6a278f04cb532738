"""The sources of a simulated site: dictionaries of all that each ever held, and what a collector gets of it at some time.

A row is a step, counted from the first midnight. The samples of a late row can't be had before its time; a correction replaces a sample at
its time. Both are known to the oracle, which expects in the end what the dictionary says then.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tokiod.batch import Batch
from tokiod.errors import NotYet, Transient
from tokiod.window import Window
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.clock import MachineClock
    from tokiod.window import Calendar

STOPPED_SECONDS = 600
"""After which a database without a new time stamp says that it has stopped, as LMT's collector does."""
COUNTER, GAUGE, FULLNESS = "datatargets/readbytes", "dataservers/memused", "fullness/bytes"
LATENCY_SECONDS = 5.0

SOURCES: dict[str, Source] = {}
"""The sources of the site that is being simulated, by their names: a kind of source finds them here."""

Column = dict[int, int]
"""Samples by row."""


@dataclass
class Source:
    """One source. origin: the first midnight of which it holds anything; end: epoch seconds after which it holds no more.

    live: the midnight from which its data are polled; old: an earlier day that only a backfill reaches, with nothing between the two but
    the first row after it; is_old_wanted: an operator has asked for that day. At the `kill_at_query`th query of that day or of the row
    after it from now on, `kill` is called.

    reports_progress: it reports that it has not reached a window (NotYet), as databases do; others return what there is, as Elasticsearch
    does. lag: seconds after a row's end at which the row can be had. born: the first day of a component, by its number.
    """

    name: str
    system: str
    datasets: tuple[str, ...]
    calendar: Calendar
    origin: int
    live: int
    old: Window | None
    end: int
    step: int
    reports_progress: bool
    lag: float
    seed: str
    max_step: float = 0.0
    samples: dict[str, dict[str, Column]] = field(default_factory=dict)
    late: dict[int, float] = field(default_factory=dict)
    corrections: dict[tuple[str, str, int], list[tuple[float, int]]] = field(default_factory=dict)
    born: dict[str, int] = field(default_factory=dict)
    sick: list[tuple[float, float, str]] = field(default_factory=list)
    is_old_wanted: bool = False
    kill_at_query: int = 0
    kill: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed}/{self.name}")

    @property
    def rows(self) -> int:
        """How many rows the source ever holds."""
        return (self.end - self.origin) // self.step

    def fill(self, columns: int, faults: float) -> None:
        """Make all samples. faults: per row and column."""
        rng = self.rng
        for number in range(columns):
            name = f"OST{7 + 2 * number:04x}"
            first = rng.randrange(self.row(self.live), self.rows) if number and rng.random() < 0.3 else 0
            day = self.calendar.day(self.origin + first * self.step)
            self.born[name] = day.start
            begins = max(0, (day.start - self.origin) // self.step)
            last_old, live = self.last_old_row, self.row(self.live)
            for dataset in self.datasets:
                column = _counter(rng, self.rows, faults) if dataset == COUNTER else _gauge(rng, self.rows, faults)
                self.samples.setdefault(dataset, {})[name] = {
                    row: value for row, value in column.items() if row >= begins and (row <= last_old or row >= live)
                }

    @property
    def last_old_row(self) -> int:
        """The row after the old day, whose sample closes the day's last cell; -1 without an old day."""
        return -1 if self.old is None else self.row(self.old.end)

    @property
    def wanted(self) -> list[Window]:
        """The spans that are to be stored in the end."""
        return [*([self.old] if self.old is not None and self.is_old_wanted else []), Window(self.live, self.end)]

    def row(self, time: int) -> int:
        """Return the row of a time."""
        return (time - self.origin) // self.step

    def note_query(self, window: Window) -> None:
        """Note that a window is queried."""
        if self.kill_at_query and window.start < self.live:
            self.kill_at_query -= 1
            if not self.kill_at_query:
                self.kill()

    def value(self, dataset: str, name: str, row: int, now: float) -> int:
        """Return what the source says of a sample at a time of the world."""
        changes = self.corrections.get((dataset, name, row), [])
        at = bisect_right(changes, now, key=lambda one: one[0])
        return changes[at - 1][1] if at else self.samples[dataset][name][row]

    def final(self, dataset: str, name: str) -> Column:
        """Return all samples of a column as they are in the end."""
        return {row: self.value(dataset, name, row, float("inf")) for row in self.samples[dataset][name]}

    def holds(self, span: Window) -> bool:
        """Return whether the source has a sample of a span in the end."""
        rows = range(self.row(span.start), self.row(span.end))
        return any(row in column for columns in self.samples.values() for column in columns.values() for row in rows)

    def names(self, window: Window) -> tuple[str, ...]:
        """Return the components that are known on the day of a window, none on a day without any data."""
        if self.last_old_row < self.row(window.start) < self.row(self.live):
            return ()
        return tuple(name for name, day in self.born.items() if day <= self.calendar.day(window.start).start)

    def data(self, window: Window, now: float) -> WindowData:
        """Return what can be had of a window at a time of the world."""
        reached = int((now - self.lag - self.origin) // self.step)
        first, last = max(0, self.row(window.start)), min(self.row(window.end), self.rows, reached)
        rows = [row for row in range(first, last) if self.late.get(row, 0.0) <= now]
        names = self.names(window)
        batches = [self._batch(dataset, names, rows, now) for dataset in self.datasets]
        return WindowData([batch for batch in batches if batch.columns], sum(map(len, batches)))

    def collector(self, clock: MachineClock) -> SourceCollector:
        """Return a collector."""
        return SourceCollector(self, clock)

    def _batch(self, dataset: str, names: tuple[str, ...], rows: list[int], now: float) -> Batch:
        columns = self.samples[dataset]
        found = [(row, i, self.value(dataset, name, row, now)) for row in rows for i, name in enumerate(names) if row in columns[name]]
        row, column, value = np.array(found, np.int64).reshape(-1, 3).T
        form, dtype = ("counter", np.int64) if dataset == COUNTER else ("gauge", np.float64)
        return Batch(dataset, form, self.step, names, self.origin + row * self.step, column.astype(np.uint32), value.astype(dtype))


class SourceCollector:
    """The contract's Collector over a source, in the time of the world."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = True

    def __init__(self, source: Source, clock: MachineClock) -> None:
        self.step = source.step
        self._source = source
        self._clock = clock

    async def collect(self, window: Window) -> WindowData:
        """Return what the source has, after some seconds; raise where it is sick."""
        self._source.note_query(window)
        await self._answer()
        now = self._clock.true_time()
        if self._source.reports_progress and window.end > min(now - self._source.lag, self._source.end):
            has_stopped = now - self._source.lag > self._source.end + STOPPED_SECONDS
            raise NotYet(f"{self._source.name} has not reached {window}", self._source.end if has_stopped else None)
        return self._source.data(window, now)

    async def count(self, window: Window) -> int | None:
        """Return how many samples the source has."""
        await self._answer()
        return self._source.data(window, self._clock.true_time()).records

    async def close(self) -> None:
        """Have nothing open."""

    async def _answer(self) -> None:
        source = self._source
        await asyncio.sleep(LATENCY_SECONDS * source.rng.random())
        now = self._clock.true_time()
        for start, end, how in source.sick:
            if start <= now < end:
                if how == "hangs":
                    await asyncio.sleep(end - now)
                elif how == "fails" or source.rng.random() < 0.5:
                    raise Transient(f"{source.name} is down")


def _counter(rng: random.Random, rows: int, faults: float) -> Column:
    """Return a counter that rises, with resets, dips, spikes, zeros and holes."""
    value, column, absent, zeros = rng.choice((0, 1, 40, 2**53)), {}, 0, 0
    for row in range(rows):
        value += rng.choice((0, 1, 2, 7, 20))
        fault = rng.choice(("hole", "hole", "zeros", "reset", "dip", "spike")) if rng.random() < faults else ""
        if fault == "hole":
            absent = rng.choice((1, 1, 2, 5, 30))
        elif fault == "zeros":
            zeros = rng.choice((1, 2, 4))
        elif fault == "reset":
            value = rng.choice((0, 1, 3))
        if absent:
            absent -= 1
        elif zeros:
            zeros -= 1
            column[row] = 0
        else:
            column[row] = max(0, value - 30) if fault == "dip" else value + 5000 if fault == "spike" else value
    return column


def _gauge(rng: random.Random, rows: int, faults: float) -> Column:
    return {row: rng.randrange(1000) for row in range(rows) if rng.random() >= faults}
