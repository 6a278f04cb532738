"""What a right archive of GPFS holds: what mmperfmon's digits say, each bucket in the row of its begin; from the load alone."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.gpfs.sensors import BUCKET, OF_DISK, OF_SERVER, Gpfs, Printed
from tokiod.simulator.lmt.expected import Answer
from tokiod.simulator.stored_times import steps, within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokiod.simulator.site import Site
    from tokiod.window import Window

    Floats = NDArray[np.float64]

_NAMES = dict(zip(("readbytes", "writebytes", "readops", "writeops"), range(len(OF_DISK)), strict=True))


class GpfsAnswers:
    """What the files of a site's GPFS hold once the windows `stored` are in the archive, and no others.

    since: nothing before it is ever collected (the site's epoch if not given).
    """

    def __init__(self, site: Site, stored: Iterable[Window], since: int | None = None) -> None:
        self.site = site
        self.since = site.epoch if since is None else since
        self.stored = tuple(stored)
        self._load = _load(site)

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file that spans `file`.

        Raises ValueError for edges that don't lie on minutes.
        """
        times = steps(file, BUCKET)
        there = within(times, self.stored)
        known = there | (times < self.since)
        told = there & (times >= self._load.origin)
        buckets = (times[told] - self._load.origin) // BUCKET
        answers = {}
        for name, columns, cells in self._datasets(buckets):
            values = np.full((len(times), len(columns)), np.nan)
            values[told] = cells
            answers[name] = Answer(columns, times, values, known[:, np.newaxis].repeat(len(columns), axis=1))
        return answers

    def _datasets(self, buckets: NDArray[np.int64]) -> list[tuple[str, tuple[str, ...], Floats]]:
        """Return name, columns and the cells of these buckets, ascending, f8[n, columns]."""
        first, last = (int(buckets[0]), int(buckets[-1]) + 1) if len(buckets) else (0, 0)
        servers, disks = (_at(part, buckets - first) for part in (self._load.servers(first, last), self._load.disks(first, last)))
        hosts, nsds, home = self.site.nsd_server_names, self.site.nsd_names, np.arange(self.site.nsds) % self.site.nsd_servers
        found = []
        for kind, own, its in (("md", slice(0, 1), home == 0), ("data", slice(1, None), home != 0)):
            found += [(f"{kind}servers/{name}", hosts[own], values[:, own]) for name, values in _of_servers(servers).items()]
            columns = tuple(f"{hosts[home[j]]}:{nsds[j]}" for j in its.nonzero()[0].tolist())
            found += [(f"{kind}targets/{name}", columns, disks[:, its, metric]) for name, metric in _NAMES.items()]
        return found


def _at(printed: Printed, rows: NDArray[np.int64]) -> Floats:
    return np.asarray(printed.value[rows])


def _of_servers(values: Floats) -> dict[str, Floats]:
    """Return f8[n, servers] by name. Traffic is that of all networks but the one that leaves no server, or nothing where one is null."""
    user, system, total, free = (values[..., metric] for metric in range(4))
    received, sent = (sum(values[..., OF_SERVER.index(f"Network|{name}|net_{way}")] for name in ("eth0", "ib0")) for way in "rs")
    return {
        "cpuuser": user, "cpusys": system, "cpuload": user + system, "memtotal": total, "memfree": free,
        "netinbytes": np.asarray(received), "netoutbytes": np.asarray(sent),
    }  # fmt: skip


_load = lru_cache(maxsize=2)(Gpfs)
