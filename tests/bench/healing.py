"""Six hours that a daemon has missed of a simulated Cori: how long they take to heal, and how far the present falls behind meanwhile.

No floor: the sources are simulated on the same cores, so this is the time of a daemon and its sources together.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.measure import Row
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, LMT

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH = 1_795_132_800
LAG = "below 2 windows"
CORI, SMALL = {"hosts": 288, "devices": 4, "cores": 16}, {"hosts": 4, "devices": 2, "cores": 2}


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    """A Lustre file system of Cori's size with a burst buffer of a few nodes, and, but for `quick`, all of Cori."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from healed_scene import away, heal  # noqa: PLC0415 - the tests' modules find each other by that path

    cases = [("LMT of 248 OSTs, 4 nodes of collectd", SMALL, 6, (LMT, COLLECTD))]
    cases += [] if quick else [("LMT of 248 OSTs, 288 nodes of collectd", CORI, 6, (LMT, COLLECTD))]
    for what, sizes, hours, sources in cases:
        site = Site(EPOCH, osts=248, osss=248, mdts=5, timezone="UTC", trouble=False, **sizes)
        scene = away(directory / f"healing-{sizes['hosts']}", site, sources, hours=hours, rate=1, heal_rate=0.0)
        try:
            seen = heal(scene, 1800)
        finally:
            scene.close()
        yield Row(f"{hours} h healed: {what}", "s", None, seen.seconds, None, "")
        yield Row(f"live lag meanwhile: {what}", "windows", None, seen.lag, None, LAG)
