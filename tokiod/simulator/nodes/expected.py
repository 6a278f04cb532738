"""What a right archive of a site's nodes holds: in each row what was measured then, if its window is stored; from the cluster alone."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.lmt.expected import Answer
from tokiod.simulator.nodes.cluster import METRICS, STEP, Cluster
from tokiod.simulator.stored_times import steps, within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.simulator.site import Site
    from tokiod.window import Window


class NodeAnswers:
    """What the files of a site's nodes hold once the windows `stored` are in the archive, and no others.

    A node whose agent did not answer in time has no cells in that row, until a recount asks it again.
    """

    def __init__(self, site: Site, stored: Iterable[Window]) -> None:
        self.site, self.stored = site, tuple(stored)
        self._cluster = _cluster(site)

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file that spans `file`. Raises ValueError for edges that don't lie on rows."""
        times, nodes = steps(file, STEP), self._cluster.names
        there = within(times, self.stored) & (times >= self.site.epoch)
        cells = np.full((len(METRICS), len(times), len(nodes)), np.nan)
        for row in there.nonzero()[0].tolist():
            for column, node in enumerate(nodes):
                values = self._cluster.values(node, int(times[row]))
                cells[:, row, column] = [values[metric.name] for metric in METRICS]
        determined = (there | (times < self.site.epoch))[:, np.newaxis].repeat(len(nodes), axis=1)
        return {f"nodes/{metric.name}": Answer(nodes, times, cells[place], determined) for place, metric in enumerate(METRICS)}


_cluster = lru_cache(maxsize=2)(Cluster)
