"""What a right archive of ESnet's rates holds: each point in its row, from the load alone."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.esnet.rates import INTERVAL, Esnet
from tokiod.simulator.lmt.expected import Answer
from tokiod.simulator.stored_times import steps, within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.simulator.site import Site
    from tokiod.window import Window

DATASETS = ("datatargets/readrates", "datatargets/writerates")
"""What comes in and what goes out, seen from the router: what is read at the site, and what is written there."""


class EsnetAnswers:
    """What the files of a site's interfaces hold once the windows `stored` are in the archive, and no others.

    since: nothing before it is ever collected (the site's epoch if not given).
    """

    def __init__(self, site: Site, stored: Iterable[Window], since: int | None = None) -> None:
        self.site = site
        self.since = site.epoch if since is None else since
        self.stored = tuple(stored)
        self._load = _load(site)

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for both datasets of a file that spans `file`.

        Raises ValueError for edges that don't lie on steps of half a minute.
        """
        times = steps(file, INTERVAL)
        there = within(times, self.stored)
        values = np.full((2, len(times), self.site.interfaces), np.nan)
        told = there & (times >= self._load.origin)
        points = (times[told] - self._load.origin) // INTERVAL
        if len(points):
            first = int(points[0])
            values[:, told] = self._load.rates(first, int(points[-1]) + 1)[:, points - first]
        known = (there | (times < self.since))[:, np.newaxis].repeat(self.site.interfaces, axis=1)
        return {name: Answer(self.site.interface_names, times, cells, known) for name, cells in zip(DATASETS, values, strict=True)}


_load = lru_cache(maxsize=2)(Esnet)
