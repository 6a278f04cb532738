"""The datasets that the outputs of both commands fill."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokiod.dropped import Dropped

FULLNESS = ("fullness/bytes", "fullness/bytestotal")
"""lfs df: used and total KiB."""
INODES = ("fullness/inodes", "fullness/inodestotal")
"""lfs df -i: used and total inodes."""
AWAY = ("failover/datatargets", "failover/mdtargets")
"""lctl dl -t: 1 where a target is served by another server than its home."""
SERVED = "failover/dataservers"
"""lctl dl -t: how many OSTs each server serves, by its NID."""
FAILOVER = (*AWAY, SERVED)

UNKNOWN_HOME = "target whose home is unknown"

Cells = dict[str, dict[str, float]]
"""The values of one moment, by dataset and column."""


def fullness(targets: Mapping[str, tuple[float, float]], names: tuple[str, str] = FULLNESS) -> Cells:
    """Return the use and the size of each target, in KiB, or as INODES."""
    used, total = names
    return {used: {name: float(both[1]) for name, both in targets.items()}, total: {name: float(both[0]) for name, both in targets.items()}}


def failover(away: Mapping[str, bool | None], served: Mapping[str, str], dropped: Dropped) -> Cells:
    """Return 1.0 for each target that is away from home, 0.0 for one at home; and how many OSTs each server has.

    served: the NID of each target's server.
    """
    osts, mdts = AWAY
    counts = Counter(nid for target, nid in served.items() if target[-7:-4] == "OST")
    cells: Cells = {osts: {}, mdts: {}, SERVED: {nid: float(count) for nid, count in counts.items()}}
    for name, is_away in away.items():
        if is_away is None:
            dropped.add(UNKNOWN_HOME, 1, name, "name its server in `homes`, of saved outputs with --home")
        else:
            cells[osts if name[-7:-4] == "OST" else mdts][name] = float(is_away)
    return cells
