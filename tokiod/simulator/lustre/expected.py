"""What a right archive of Lustre's targets holds: in each row what was to be seen then, if its window is stored; from the load alone."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.lmt.expected import Answer
from tokiod.simulator.lustre.client import Lustre
from tokiod.simulator.stored_times import steps, within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokiod.simulator.lustre.client import Moment
    from tokiod.simulator.site import Site
    from tokiod.window import Window

    Mask = NDArray[np.bool_]


class LustreAnswers:
    """What the files of a site's file systems hold once the windows `stored` are in the archive, and no others.

    A lost window is not among these, so its cells are missing.
    since: nothing before it is ever collected (the site's epoch if not given).
    """

    def __init__(self, site: Site, stored: Iterable[Window], since: int | None = None) -> None:
        self.site = site
        self.since = site.epoch if since is None else since
        self.stored = tuple(stored)
        self._load = _load(site)

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file that spans `file`.

        Raises ValueError for edges that don't lie on moments.
        """
        times, targets = steps(file, self.site.moment), self._load.targets
        osts = np.array([target.kind == "OST" for target in targets])
        there = within(times, self.stored)
        known = there | (times < self.since)
        used, total, inodes, all_inodes, away = np.full((5, len(times), len(targets)), np.nan)
        nids = self._nids
        counts = np.full((len(times), len(nids)), np.nan)
        for row in there.nonzero()[0].tolist():
            moment = self._load.at(int(times[row]) // self.site.moment)
            listed, served = self._seen(moment)
            used[row, listed], total[row, listed], away[row, served] = moment.used[listed], moment.total[listed], moment.away[served]
            inodes[row, listed], all_inodes[row, listed] = (one[listed] for one in moment.inodes)
            for j in np.flatnonzero(served & osts).tolist():
                place = nids.index(targets[j].nid(int(moment.away[j])))
                counts[row, place] = np.nan_to_num(counts[row, place]) + 1
        cells = {"fullness/bytes": (used, osts | True), "fullness/bytestotal": (total, osts | True)}
        cells |= {"fullness/inodes": (inodes, osts | True), "fullness/inodestotal": (all_inodes, osts | True)}
        cells |= {"failover/datatargets": (away, osts), "failover/mdtargets": (away, ~osts)}
        found = {name: self._answer(times, known, values, its) for name, (values, its) in cells.items()}
        return found | {"failover/dataservers": Answer(nids, times, counts, known[:, np.newaxis].repeat(len(nids), axis=1))}

    @property
    def _nids(self) -> tuple[str, ...]:
        """All servers that may serve an OST."""
        osts = [target for target in self._load.targets if target.kind == "OST"]
        return tuple(dict.fromkeys(target.nid(moved) for target in osts for moved in (0, 1)))

    def _seen(self, moment: Moment) -> tuple[Mask, Mask]:
        """Return for which targets the space is known, and for which the server is known."""
        answers = np.array([moment.failing[mount] is None for mount in self._load.mounts])
        return moment.listed & answers, moment.connected & (moment.failing["lctl"] is None)

    def _answer(self, times: NDArray[np.int64], known: Mask, values: NDArray[np.float64], its: Mask) -> Answer:
        columns = tuple(str(target) for target, one in zip(self._load.targets, its.tolist(), strict=True) if one)
        return Answer(columns, times, values[:, its], known[:, np.newaxis].repeat(len(columns), axis=1))


_load = lru_cache(maxsize=2)(Lustre)
