"""The rates of ESnet's routers at a site's edge, by interface, when each is first available, and the row of an archive it is in."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.drawn import draw, power
from tokiod.simulator.expected import Answer, Expected, steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.simulator.site import Site
    from tokiod.window import Window

    Floats = NDArray[np.float64]


INTERVAL = 30
"""Seconds between two points."""
DIRECTIONS = ("in", "out")

BLOCK, _SPELL = 120, 10
"""Points that are drawn together, and those of a spell of as much traffic."""
_LINE = 1.25e10
"""Bytes a second that a line of 100 Gb/s takes."""


class Esnet:
    """The points of a site's interfaces. Point k is at origin + k * INTERVAL, the first that does not lie before the site's epoch."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.origin = -(-site.epoch // INTERVAL) * INTERVAL
        self._block = lru_cache(maxsize=32)(self._drawn)

    def rates(self, first: int, last: int) -> Floats:
        """Return what the points [first, last) tell once they are there: f8[2, n, interfaces] by direction, NaN for what never is."""
        return self._cut(0, first, last)

    def told_at(self, first: int, last: int) -> Floats:
        """Return from which epoch second on they are there: f8[2, n, interfaces]. Until then they are null."""
        return self._cut(1, first, last)

    def _cut(self, part: int, first: int, last: int) -> Floats:
        blocks = range(first // BLOCK, max(-(-last // BLOCK), first // BLOCK + 1))
        whole = np.concatenate([self._block(block)[part] for block in blocks], axis=1)
        return whole[:, first - blocks[0] * BLOCK : last - blocks[0] * BLOCK]

    def _drawn(self, block: int) -> tuple[Floats, Floats]:
        site, shape = self.site, (2, BLOCK, self.site.interfaces)
        level = draw(site, "esnet level", block, 2, BLOCK // _SPELL, site.interfaces).repeat(_SPELL, axis=1)
        noise, absent, late = draw(site, "esnet point", block, 3, *shape)
        # Quarter of the time nothing moves, and the router says so: 0, which is not null.
        rates = np.round(_LINE * power(np.maximum(level - 0.25, 0), 3) * noise, 2)
        silent = draw(site, "esnet silent", block, BLOCK // _SPELL, site.interfaces).repeat(_SPELL, axis=0) < site.trouble / 60
        rates[silent | (absent < site.trouble / 100)] = np.nan
        # A rate is not available before its interval is over.
        taken = self.origin + INTERVAL * (block * BLOCK + np.arange(1, BLOCK + 1))[:, np.newaxis]
        return rates, taken + site.late * late


DATASETS = ("datatargets/readrates", "datatargets/writerates")
"""What comes in and what goes out, seen from the router: what is read at the site, and what is written there."""


class EsnetAnswers(Expected):
    """What the files of a site's interfaces hold."""

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for both datasets of a file."""
        times, load = steps(file, INTERVAL), _load(self.site)
        values = np.full((2, len(times), self.site.interfaces), np.nan)
        told = self.in_archive(times) & (times >= load.origin)
        points = (times[told] - load.origin) // INTERVAL
        if len(points):
            first = int(points[0])
            values[:, told] = load.rates(first, int(points[-1]) + 1)[:, points - first]
        return {name: self.answer(self.site.interface_names, times, cells) for name, cells in zip(DATASETS, values, strict=True)}


_load = lru_cache(maxsize=2)(Esnet)
