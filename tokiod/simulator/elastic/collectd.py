"""The values of collectd on a burst buffer's nodes: like LMT's load, a function of (seed, component, step).

A document is a series and a step. Its time is that of its host: a phase in the ten seconds that never changes, and jitter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.drawn import draw, power

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.simulator.site import Site

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

INTERVAL = 10
"""Seconds between two documents of a series."""

BLOCK = 30
"""Steps that are drawn together: five minutes, so that a server of many nodes holds little."""

JITTER = 3000
"""Milliseconds by which a sample comes early or late at most; a host's samples stay in order, two of them may share a cell."""

_QUIET, _PAUSE, _BURST = 0.3, 0.05, 0.97
"""Blocks without I/O, steps without, steps with eight times as much."""

MEMORY = ("buffered", "cached", "free", "slab_recl", "slab_unrecl", "used")
CPU = ("idle", "user", "system")


class Fate(IntEnum):
    """The fate of a document. The last four have malformed numbers; documents.py decides which of a disk's two is hit."""

    WRITTEN = 0
    ABSENT = 1
    TWICE = 2
    NULL = 3
    TEXT = 4
    FIRST_ONLY = 5
    SECOND_ONLY = 6


_ODDS = {
    Fate.ABSENT: 1 / 250,
    Fate.TWICE: 1 / 100,
    Fate.NULL: 1 / 800,
    Fate.TEXT: 1 / 800,
    Fate.FIRST_ONLY: 1 / 800,
    Fate.SECOND_ONLY: 1 / 800,
}


@dataclass(frozen=True, slots=True)
class Series:
    """One of the measurements of a host, as its documents name it; `instance` is a device, a core or nothing, `kind` an idle, a used."""

    plugin: str
    type: str
    instance: str = ""
    kind: str = ""

    @property
    def disk(self) -> bool:
        """Whether its documents hold two numbers, read and write."""
        return self.plugin == "disk"


def series_of(site: Site) -> tuple[Series, ...]:
    """Return the values of each host, in storage order. The last two are not archived."""
    disks = [Series("disk", type_, device) for type_ in ("disk_octets", "disk_ops") for device in site.device_names]
    memory = [Series("memory", "memory", kind=kind) for kind in MEMORY]
    cores = [Series("cpu", "percent", str(core), kind) for kind in CPU for core in range(site.cores)]
    return (*disks, *memory, *cores, Series("disk", "disk_octets", "sda"), Series("load", "load"))


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """Which documents there are of a block's steps.

    time: i8[BLOCK, hosts], UTC epoch milliseconds; found: i8[BLOCK, hosts, series], from when on a search finds them;
    fate: u1[BLOCK, hosts, series].
    """

    time: Ints
    found: Ints
    fate: NDArray[np.uint8]


class Collectd:
    """The documents of a site's nodes; steps are counted from `origin`, the epoch on the grid of INTERVAL."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.origin = site.epoch // INTERVAL * INTERVAL
        self.series = series_of(site)
        self.phase = (INTERVAL * 1000 * draw(site, "bb phase", 0, site.hosts)).astype(np.int64)
        self.told = lru_cache(maxsize=8)(self._told)
        self.numbers = lru_cache(maxsize=4)(self._numbers)

    def _told(self, block: int) -> Told:
        """Return which documents there are, without their numbers."""
        site, shape = self.site, (BLOCK, self.site.hosts, len(self.series))
        steps = block * BLOCK + np.arange(BLOCK)[:, np.newaxis]
        time = (self.origin + steps * INTERVAL) * 1000 + self.phase + self._jitter(block)
        luck = draw(site, "bb late", block, *shape)
        # Of all documents one in fifty lies in a queue; the others wait a second for the next refresh.
        queued = np.where(luck < site.trouble / 50, luck * 50 * (site.late - 1), 0)
        fate = self._fate(draw(site, "bb fate", block, *shape))
        fate[self._silent(block)] = Fate.ABSENT
        return Told(time, time[:, :, np.newaxis] + 1000 + (1000 * queued).astype(np.int64), fate)

    def _jitter(self, block: int) -> Ints:
        happens, size = draw(self.site, "bb jitter", block, 2, BLOCK, self.site.hosts)
        return np.where(happens < self.site.trouble / 20, np.round(JITTER * (2 * size - 1)), 0).astype(np.int64)

    def _fate(self, luck: Floats) -> NDArray[np.uint8]:
        edges = np.cumsum(list(_ODDS.values())) * self.site.trouble
        fates = np.array([*_ODDS, Fate.WRITTEN], np.uint8)
        return fates[np.searchsorted(edges, luck, side="right")]

    def _silent(self, block: int) -> NDArray[np.bool_]:
        """Return when a host says nothing at all: it does not exist yet, is down for a spell or misses a beat."""
        site, hosts = self.site, self.site.hosts
        steps = np.arange(BLOCK)[:, np.newaxis]
        down, begin, length = draw(site, "bb down", block, 3, hosts)
        inside = (down < site.trouble / 60) & (BLOCK * begin <= steps) & (steps < BLOCK * begin + 2 + 15 * length)
        missed = draw(site, "bb missed", block, BLOCK, hosts) < site.trouble / 150
        appears = np.zeros(hosts)
        appears[-1] = (site.growth or 0) / INTERVAL
        return np.asarray(inside | missed | (block * BLOCK + steps < appears))

    def _numbers(self, block: int) -> Floats:
        """Return f8[2, BLOCK, hosts, series]: what each would say; a disk read [0] and written [1], the others in [1] and NaN in [0]."""
        site, at, cores = self.site, 2 * self.site.devices, self.site.cores
        noise = draw(site, "bb step", block, 2, BLOCK, site.hosts, len(self.series))
        level = draw(site, "bb level", block, 2, 1, site.hosts, len(self.series))
        numbers = np.full(noise.shape, np.nan)
        octets, ops = [*range(site.devices), len(self.series) - 2], slice(site.devices, at)
        numbers[..., octets] = _rate(9.5, level[..., octets], noise[..., octets])
        numbers[..., ops] = _rate(4.5, level[..., ops], noise[..., ops])
        memory, cpu = slice(at, at + len(MEMORY)), slice(at + len(MEMORY), -2)
        numbers[1][..., memory] = 4096 * np.floor(1.2e7 * level[1][..., memory] + 1e4 * noise[1][..., memory])
        numbers[1][..., cpu] = _percents(level[1][..., cpu], noise[1][..., cpu], cores)
        numbers[1][..., -1] = level[1][..., -1]
        return numbers


def _rate(decades: float, level: Floats, noise: Floats) -> Floats:
    """Return rates of which a third are exactly 0: no I/O in the block, or none in the step."""
    burst = np.where(noise > _BURST, 8, np.where(noise < _PAUSE, 0, 1))
    return np.asarray(np.where(level > _QUIET, power(10, decades * level), 0) * burst * (0.5 + noise))


def _percents(level: Floats, noise: Floats, cores: int) -> Floats:
    """Return all cores' idle, then user, then system; some exactly 0, some exactly 100, with all the digits of a double."""
    idle = np.clip(140 * level[..., :cores] + 20 * noise[..., :cores] - 20, 0.0, 100.0)
    user = (100 - idle) * noise[..., cores : 2 * cores]
    return np.concatenate([idle, user, (100 - idle - user) * noise[..., 2 * cores :]], axis=-1)
