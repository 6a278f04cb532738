"""What a client sees of a site's Lustre file systems, moment by moment: how full targets are, who serves them, and what can't be seen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.drawn import draw
from tokiod.simulator.fake_commands import failing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.simulator.site import Site

MOUNTS = ("/scratch1", "/scratch2")
SECOND = "lus-2_b"
"""The second file system: four OSTs on two servers, two MDTs on one each."""
OUTAGE = 600
"""Seconds for which a server stands still, from a multiple of them on; the next server serves its targets then."""

STATES = ("", " D", " RN", ": inactive device", ": Cannot send after transport endpoint shutdown", "silent")
"""What may be wrong with a target: flags, an error in the place of numbers, or no row at all."""
_HEALTHY = 3


@dataclass(frozen=True, slots=True)
class Target:
    """kind: OST or MDT; server, servers: which of how many it is at home on; group: tells these servers from others."""

    filesystem: str
    kind: str
    index: int
    server: int
    servers: int
    group: int

    def __str__(self) -> str:
        return f"{self.filesystem}-{self.kind}{self.index:04x}"

    def nid(self, moved: int = 0) -> str:
        """Return the address of its home, or of a server behind that."""
        return f"10.100.{self.group}.{11 + (self.server + moved) % self.servers}@o2ib"


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """All targets as they are seen.

    used, total: KiB, i8[targets]; state: of STATES; away: by how many servers each was moved; connected: whether the client knows who
    serves it; failing: what is wrong with the commands, by mount and for lctl.
    """

    used: NDArray[np.int64]
    total: NDArray[np.int64]
    state: NDArray[np.int64]
    away: NDArray[np.int64]
    connected: NDArray[np.bool_]
    failing: dict[str, str | None]

    @property
    def inodes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Used and total inodes, i8[targets]."""
        return self.used // 128, self.total // 64

    @property
    def listed(self) -> NDArray[np.bool_]:
        """Which targets have numbers, if their mount answers."""
        return np.asarray(self.state < _HEALTHY)


class Lustre:
    """The file systems of a site; a moment is whole for site.moment seconds."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.targets = _targets(site)
        self.mounts = tuple(MOUNTS[target.filesystem == SECOND] for target in self.targets)
        self.at = lru_cache(maxsize=4096)(self._at)

    def homes(self) -> dict[str, str]:
        """Return the address of each target's home."""
        return {str(target): target.nid() for target in self.targets}

    def _at(self, moment: int) -> Moment:
        """Return what is seen from moment * site.moment on."""
        site, width, time = self.site, len(self.targets), moment * self.site.moment
        size, begin = draw(site, "lustre begin", 0, 2, width)
        changing, strange, state, connected = draw(site, "lustre moment", moment, 4, width)
        total = (9e10 * (0.5 + size)).astype(np.int64)
        used = (total * (0.2 + 0.6 * begin + 0.05 * changing)).astype(np.int64)
        kind = np.where(strange < site.trouble / 20, 1 + (state * (len(STATES) - 1)).astype(np.int64), 0)
        failed = {name: failing(site, f"lustre {name}", time, ("error", "hang"), 25) for name in (*MOUNTS, "lctl")}
        # A client that gets no answer of a file system has lost its servers, too.
        lost = np.array([failed[mount] is not None for mount in self.mounts])
        return Moment(used, total, kind, self._away(time), (connected >= site.trouble / 60) & ~lost, failed)

    def _away(self, time: int) -> NDArray[np.int64]:
        down = draw(self.site, "lustre outage", time // OUTAGE, 4, max(target.servers for target in self.targets)) < self.site.trouble / 12
        return np.array([int(target.servers > 1 and down[target.group, target.server]) for target in self.targets])


def _targets(site: Site) -> tuple[Target, ...]:
    osss, mdss = site.osss, len(site.mds_names)
    groups = (
        [(site.filesystem, "MDT", j, j // 2, mdss, 0) for j in range(site.mdts)]
        + [(site.filesystem, "OST", j, j % osss, osss, 1) for j in range(site.osts)]
        + [(SECOND, "MDT", j, j, 2, 2) for j in range(2)]
        + [(SECOND, "OST", j, j % 2, 2, 3) for j in range(4)]
    )
    return tuple(starmap(Target, groups))
