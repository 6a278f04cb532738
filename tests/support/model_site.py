"""What a source of the model test knows: counters of a few columns over some site days, with every fault that counters have."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tokiod.batch import Batch
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.window import Day

STEP = 3600
COUNTER, GAUGE = "datatargets/readbytes", "dataservers/cpuload"
EVERYTHING = (COUNTER, GAUGE)
NAMES = ("OST0009", "OST0010", "OST000a")
"""In an order that is not the natural one of sealed files. The last of them appears when a test says so."""

NIGHTS = {
    "UTC": 1_517_184_000,
    "America/Los_Angeles": 1_541_228_400,
    "Europe/Berlin": 1_521_846_000,
    "Asia/Kolkata": 1_517_164_200,
}
"""A midnight of each zone; two of them come the day before the clocks change: the second day has 24, 25, 23 and 24 hours."""

SMALL_STEP = 12
"""The largest plausible difference per row at a site whose counters are limited: a little more than what they mostly grow by."""


@dataclass
class Site:
    """Samples by dataset, column and row, counted from the first midnight; those in `late` can't be had yet.

    max_step: the largest plausible difference of a counter per row, drawn from the seed: some sites have no limit.
    """

    zone: str
    seed: int
    length: int = 2
    system: str = "fs"
    max_step: float = field(init=False)
    days: list[Day] = field(init=False)
    edges: list[int] = field(init=False)
    samples: dict[str, dict[str, dict[int, int]]] = field(init=False)
    late: set[int] = field(init=False)
    names: tuple[str, ...] = NAMES[:-1]

    def __post_init__(self) -> None:
        calendar, self.days = Calendar(self.zone), []
        for _ in range(self.length):
            self.days.append(calendar.day(self.days[-1].end if self.days else NIGHTS[self.zone]))
        self.edges = [self.row(day.start) for day in self.days] + [self.row(self.days[-1].end)]
        rng = random.Random(self.seed)
        self.samples = {dataset: {name: _column(rng, self.edges[-1]) for name in NAMES} for dataset in EVERYTHING}
        self.late = set(rng.sample(range(self.edges[-1]), rng.choice((0, 0, 6))))
        self.max_step = rng.choice((math.inf, SMALL_STEP))

    @property
    def source(self) -> str:
        """The name of its only source."""
        return f"{self.system}-lmt"

    @property
    def max_rates(self) -> dict[str, float]:
        """The largest plausible rates per second, by dataset."""
        return {} if math.isinf(self.max_step) else {COUNTER: (self.max_step + 0.5) / STEP}

    def row(self, time: int) -> int:
        return (time - NIGHTS[self.zone]) // STEP

    def day_of(self, row: int) -> int:
        return next(day for day in range(self.length) if row < self.edges[day + 1])

    def window(self, first: int, last: int) -> Window:
        return Window(NIGHTS[self.zone] + first * STEP, NIGHTS[self.zone] + last * STEP)

    def cut(self, first: int, last: int) -> list[tuple[int, int]]:
        """Cut rows at midnights, as windows are."""
        inside = [edge for edge in self.edges if first < edge < last]
        return list(pairwise([first, *inside, last]))

    def collected(self, first: int, last: int, datasets: Sequence[str] = EVERYTHING, *, seam: bool = False) -> Collected:
        """Return what a collector yields of rows [first, last)."""
        batches = [self._batch(dataset, first, last) for dataset in datasets if not seam or dataset == COUNTER]
        extent = "seam" if seam else "whole" if set(datasets) == set(EVERYTHING) else "some"
        meta = WindowMeta(self.source, "lmt", self.system, self.window(first, last), records=sum(map(len, batches)), extent=extent)
        return Collected(meta, batches)

    def records(self, window: Window) -> int:
        """Return how many samples a window has by now."""
        return self.collected(self.row(window.start), self.row(window.end)).meta.records or 0

    def _batch(self, dataset: str, first: int, last: int) -> Batch:
        columns, rows = self.samples[dataset], [row for row in range(first, last) if row not in self.late]
        found = [(row, i, columns[n][row]) for row in rows for i, n in enumerate(self.names) if row in columns[n]]
        row, column, value = np.array(found, np.int64).reshape(-1, 3).T
        form, dtype = ("counter", np.int64) if dataset == COUNTER else ("gauge", np.float64)
        return Batch(dataset, form, STEP, self.names, NIGHTS[self.zone] + row * STEP, column.astype(np.uint32), value.astype(dtype))


# Mostly counters that rise without a hole, because what is quick about them is what is intricate; and a fault or two in them.
def _column(rng: random.Random, rows: int) -> dict[int, int]:
    value, column = rng.choice((0, 0, 1, 40, 2**53)), {}
    for row in range(rows):
        value += rng.choice((0, 0, 1, 2, 7))
        column[row] = value
    for _ in range(rng.choice((1, 1, 1, 2))):
        places = sorted(rng.sample(range(rows), rng.choice((1, 3, 6, 12))))
        column = _with_fault(rng, column, rng.choice(("", "holes", "holes", "zeros", "dips", "spikes", "resets", "sparse")), places)
    return column


def _with_fault(rng: random.Random, column: dict[int, int], fault: str, places: list[int]) -> dict[int, int]:
    if fault == "sparse":
        return {row: column[row] for row in places if row in column}
    for place in places:
        for row in range(place, place + rng.choice((1, 1, 1, 2, 5))):
            if row not in column:
                continue
            if fault == "holes":
                del column[row]
            elif fault == "zeros":
                column[row] = 0
            elif fault == "dips":
                column[row] = max(0, column[row] - rng.choice((1, 3, 50)))
            elif fault == "spikes":
                column[row] += rng.choice((20, 5000))
        if fault == "resets" and place in column:
            column = {row: max(0, value - (column[place] if row >= place else 0)) for row, value in column.items()}
    return column
