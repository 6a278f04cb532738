"""What a right archive of collectd's documents holds: every cell, from the load alone, and nothing from what was served.

A cell holds the last sample of its series by time. Cells of CPUs hold the mean of all samples of all cores.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.elastic.collectd import BLOCK, CPU, INTERVAL, MEMORY, Collectd, Fate
from tokiod.simulator.expected import Answer, Expected, steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokiod.simulator.site import Site
    from tokiod.window import Window

    Mask = NDArray[np.bool_]
    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

MEMORY_DATASETS = {
    "buffered": "dataservers/membuffered",
    "cached": "dataservers/memcached",
    "free": "dataservers/memfree",
    "slab_recl": "dataservers/memslab",
    "slab_unrecl": "dataservers/memslab_unrecl",
    "used": "dataservers/memused",
}
CPU_DATASETS = {"idle": "dataservers/cpuload", "user": "dataservers/cpuuser", "system": "dataservers/cpusys"}

_WHOLE = (Fate.WRITTEN, Fate.TWICE)
_GOOD_READ = (*_WHOLE, Fate.TEXT, Fate.FIRST_ONLY)
_GOOD_WRITE = (*_WHOLE, Fate.NULL, Fate.SECOND_ONLY)
"""What leaves a disk's first number, or its second one, a number."""


class CollectdAnswers(Expected):
    """What the files of a site's nodes hold."""

    def __init__(self, site: Site, stored: Iterable[Window], since: int | None = None) -> None:
        super().__init__(site, stored, since)
        self._load = _load(site)

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file."""
        times = steps(file, INTERVAL)
        cells = self._datasets(times, self.in_archive(times))
        return {name: self.answer(self._columns(name), times, values, exact=name not in _MEANS) for name, values in cells.items()}

    def _datasets(self, times: Ints, stored: Mask) -> dict[str, Floats]:
        """Return the cells f8[n, c] of each dataset, NaN for cells that are not stored or not reported."""
        devices, memory, rows = self.site.devices, 2 * self.site.devices, stored.nonzero()[0]
        (first, second), means = self._samples(times[stored])
        cells = {
            "datatargets/readrates": first[:, :, :devices],
            "datatargets/writerates": second[:, :, :devices],
            "datatargets/readoprates": first[:, :, devices:memory],
            "datatargets/writeoprates": second[:, :, devices:memory],
        }
        cells |= {MEMORY_DATASETS[kind]: second[:, :, memory + i] for i, kind in enumerate(MEMORY)}
        cells |= {CPU_DATASETS[kind]: means[:, :, i] for i, kind in enumerate(CPU)}
        return {name: _in_rows(values, rows, len(times)) for name, values in cells.items()}

    def _samples(self, times: Ints) -> tuple[Floats, Floats]:
        """Return what the cells at these times (ascending) hold, NaN for nothing.

        f8[2, n, hosts, series]: the last sample of each series; f8[n, hosts, 3]: the means of the CPUs' samples, load, user, system.
        """
        shape = (len(times), self.site.hosts)
        last = np.full((2, *shape, len(self._load.series)), np.nan)
        total, count = np.zeros((2, *shape, len(CPU)))
        if not len(times):
            return last, total
        steps = (times - self._load.origin) // INTERVAL
        first = int(steps[0]) - 1  # whose sample can have come late, as that behind the last can have come early
        numbers, cells = self._told(first, int(steps[-1]) + 2)
        for late in (1, 0, -1):  # in the order of time: of two samples in a cell the later step's is the later one
            moved = np.roll(np.where((cells == late)[:, :, np.newaxis], numbers, np.nan), late, axis=1)[:, steps - first]
            last = np.where(np.isnan(moved), last, moved)
            cores = moved[1, :, :, -2 - len(CPU) * self.site.cores : -2].reshape(*shape, len(CPU), self.site.cores)
            cores[:, :, 0] = 100 - cores[:, :, 0]
            total += np.nansum(cores, axis=-1)
            count += (~np.isnan(cores)).sum(axis=-1)
        return last, np.where(count, total / np.maximum(count, 1), np.nan)

    def _told(self, first: int, last: int) -> tuple[Floats, Ints]:
        """Return the good numbers of the steps [first, last) and, i8[n, hosts], in how many cells behind its own step each lies."""
        numbers = np.full((2, last - first, self.site.hosts, len(self._load.series)), np.nan)
        cells = np.zeros(numbers.shape[1:3], np.int64)
        disk = np.array([series.disk for series in self._load.series])
        for block in range(max(0, first // BLOCK), -(-last // BLOCK)):
            begin, end = max(first, block * BLOCK), min(last, (block + 1) * BLOCK)
            to, within = slice(begin - first, end - first), slice(begin - block * BLOCK, end - block * BLOCK)
            told, drawn = self._load.told(block), self._load.numbers(block)[:, within]
            fate = told.fate[within]
            good = np.stack([np.isin(fate, _GOOD_READ) & disk, np.where(disk, np.isin(fate, _GOOD_WRITE), np.isin(fate, _WHOLE))])
            numbers[:, to] = np.where(good, drawn, np.nan)
            nominal = self._load.origin // INTERVAL + np.arange(begin, end)[:, np.newaxis]
            cells[to] = told.time[within] // (INTERVAL * 1000) - nominal
        return numbers, cells

    def _columns(self, name: str) -> tuple[str, ...]:
        hosts, devices = self.site.host_names, self.site.device_names
        return hosts if name.startswith("dataservers/") else tuple(f"{host}:{device}" for host in hosts for device in devices)


_MEANS = frozenset(CPU_DATASETS.values())

_load = lru_cache(maxsize=2)(Collectd)
"""A site's load, kept from one look at its archive to the next."""


def _in_rows(values: Floats, rows: NDArray[np.intp], height: int) -> Floats:
    placed = np.full((height, math.prod(values.shape[1:])), np.nan)
    placed[rows] = values.reshape(len(rows), placed.shape[1])
    return placed
