"""The datasets that the outputs of both commands fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

FULLNESS = ("fullness/bytes", "fullness/bytestotal")
"""lfs df: used and total KiB."""
FAILOVER = ("failover/datatargets", "failover/mdtargets")
"""lctl dl -t: 1 where a target is served by another server than its home."""

UNKNOWN_HOME = "target whose home is unknown"

Cells = dict[str, dict[str, float]]
"""The values of one moment, by dataset and column."""


def fullness(targets: Mapping[str, tuple[int, int]]) -> Cells:
    """Return the used and total KiB of each target."""
    used, total = FULLNESS
    return {used: {name: float(both[1]) for name, both in targets.items()}, total: {name: float(both[0]) for name, both in targets.items()}}


def failover(away: Mapping[str, bool | None], dropped: Counter[str]) -> Cells:
    """Return 1.0 for each target that is away from home, 0.0 for one at home."""
    osts, mdts = FAILOVER
    cells: Cells = {osts: {}, mdts: {}}
    for name, is_away in away.items():
        if is_away is None:
            dropped[UNKNOWN_HOME] += 1
        else:
            cells[osts if name[-7:-4] == "OST" else mdts][name] = float(is_away)
    return cells
