"""What GPFS's sensors measure, as precisely as mmperfmon prints it: numbers of few digits, some of them in units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.drawn import draw, power

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.simulator.site import Site

    Floats = NDArray[np.float64]

BUCKET = 60
"""Seconds of a bucket; bucket k begins at origin + k * BUCKET."""
BLOCK = 60
NETWORKS = ("lo", "eth0", "ib0")
OF_SERVER = (
    "CPU|cpu_user", "CPU|cpu_sys", "Memory|mem_total", "Memory|mem_free",
    *(f"Network|{network}|{way}" for network in NETWORKS for way in ("net_r", "net_s")),
)  # fmt: skip
OF_DISK = ("gpfs_nsdds_bytes_read", "gpfs_nsdds_bytes_written", "gpfs_nsdds_read_ops", "gpfs_nsdds_write_ops")
UNITS = ("", "kB", "MB", "GB", "TB")

_CPUS, _MEMORIES = 2, 4
"""Where those of a server end."""
_MEMORY = 31371.0
"""MB of each server."""


@dataclass(frozen=True, slots=True, eq=False)
class Printed:
    """What is printed: the number, NaN where that is null, and which of UNITS stands behind it; both [n, of, metrics]."""

    number: Floats
    unit: NDArray[np.int64]

    @property
    def value(self) -> Floats:
        """What that says, in bytes where it has a unit."""
        return np.asarray(self.number * (1 << 10 * self.unit))


class Gpfs:
    """The buckets of a site's GPFS, by server (OF_SERVER) and by disk (OF_DISK)."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.origin = -(-site.epoch // BUCKET) * BUCKET
        self._block = lru_cache(maxsize=32)(lambda block: (self._servers(block), self._disks(block)))

    def servers(self, first: int, last: int) -> Printed:
        """Return the buckets [first, last), 0 <= first <= last, of all servers."""
        return self._cut(0, first, last)

    def disks(self, first: int, last: int) -> Printed:
        """Return the same of all disks."""
        return self._cut(1, first, last)

    def _cut(self, part: int, first: int, last: int) -> Printed:
        start = first // BLOCK
        blocks = [self._block(block)[part] for block in range(start, max(-(-last // BLOCK), start + 1))]
        cut = slice(first - start * BLOCK, last - start * BLOCK)
        return Printed(np.concatenate([one.number for one in blocks])[cut], np.concatenate([one.unit for one in blocks])[cut])

    def _servers(self, block: int) -> Printed:
        site = self.site
        load, absent = draw(site, "gpfs server", block, 2, BLOCK, site.nsd_servers, len(OF_SERVER))
        number, unit = np.empty_like(load), np.zeros(load.shape, np.int64)
        number[..., :_CPUS] = np.round(50 * power(load[..., :_CPUS], 4), 2)
        number[..., _CPUS] = _MEMORY
        number[..., _CPUS + 1] = np.round(_MEMORY * (0.2 + 0.6 * load[..., _CPUS + 1]), 1)
        unit[..., _CPUS:_MEMORIES] = 2
        traffic = power(2, 35 * load[..., _MEMORIES:])
        unit[..., _MEMORIES:] = 1 + (traffic >= 2**20) + (traffic >= 2**30)
        number[..., _MEMORIES:] = np.round(traffic / (1 << 10 * unit[..., _MEMORIES:]), 1)
        number[absent < site.trouble / 250] = np.nan
        return Printed(number, unit)

    def _disks(self, block: int) -> Printed:
        site = self.site
        load, absent = draw(site, "gpfs disk", block, 2, BLOCK, site.nsds, len(OF_DISK))
        number = np.floor(np.array([2**40, 2**40, 2**20, 2**20]) * power(np.maximum(load - 0.3, 0), 5))
        number[absent < site.trouble / 250] = np.nan
        return Printed(number, np.zeros(number.shape, np.int64))
