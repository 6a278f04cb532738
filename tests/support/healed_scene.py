"""A simulated site whose daemon has been away for hours, and what is seen of it while it heals."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.waiting import PATIENCE
from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.simulator.scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.simulator.site import Site
    from tokiod.simulator.sources import Source

LOOK = 0.1


@dataclass
class Seen:
    """What was seen while it healed.

    seconds: real ones from the daemon's start until all hours were stored; lags: per source, the longest that the newest stored window
    was behind the newest that had settled, in windows, from the first time on that it was not: before, files are made; past: seconds that
    were stored at that time; stored: per source, (simulated time, seconds that are stored) at each look.
    """

    seconds: float = 0.0
    past: dict[str, int] = field(default_factory=dict)
    lags: dict[str, float] = field(default_factory=dict)
    stored: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    @property
    def lag(self) -> float:
        """The longest of all sources."""
        return max(self.lags.values())


def away(directory: Path, site: Site, sources: tuple[Source, ...], *, hours: int, rate: float, heal_rate: float, **options) -> Scene:
    """Return a scene, its sources running, that begins `hours` after its site's epoch; rate: simulated seconds in one."""
    clock = SimulatedClock(float(site.epoch + hours * 3600), time.time(), rate)
    scene = Scene(directory, site, clock, retention=hours * 3600, sources=sources, log_level="debug", **options)
    scene.prepare()
    text = scene.config_path.read_text()
    scene.config_path.write_text(text.replace("retention = ", f"heal_rate = {heal_rate}\nretention = "))
    scene.start_simulator()
    # Whatever it took to make the past: the daemon comes `hours` after the epoch.
    scene.clock = SimulatedClock(scene.clock.epoch, scene.clock.origin, rate)
    return scene


def heal(scene: Scene, longest: float) -> Seen:
    """Start the daemon and look on until nothing is missing. Raises TokiodError where it takes longer.

    longest: real seconds on an idle machine.
    """
    seen, since = Seen(), int(scene.clock.time())
    first = {config.name: int(since - config.retention) // config.window * config.window + config.window for config in scene.config.source}
    configured = list(zip(scene.sources, scene.config.source, strict=True))
    begun = time.monotonic()
    scene.start_daemon()
    while not all(_is_whole(scene, source, config, first[source.name], since // 60 * 60) for source, config in configured):
        for source, config in configured:
            _look(scene, source, config, seen)
        if time.monotonic() - begun > PATIENCE * longest:
            raise TokiodError(
                f"not healed within {PATIENCE * longest} s: {[scene.stored(source) for source in scene.sources]}; see {scene.log}"
            )
        time.sleep(LOOK)
    seen.seconds = time.monotonic() - begun
    return seen


def _is_whole(scene, source, config, start, end):
    # Where the machine is busy, the source has forgotten the first windows before they were queried.
    start = max(start, scene.clock.time() - config.retention)
    return any(window.start <= start + 600 and window.end >= end - 120 for window in scene.stored(source))


def _look(scene, source, config, seen):
    now, stored = scene.clock.time(), scene.stored(source)
    if not stored:
        return
    settled = (now - config.settle) // config.window * config.window
    lag = (settled - max(window.end for window in stored)) / config.window
    if lag <= 0:
        seen.past.setdefault(source.name, sum(window.seconds for window in stored))
    if source.name in seen.past:
        seen.lags[source.name] = max(seen.lags.get(source.name, 0.0), lag)
    seen.stored.setdefault(source.name, []).append((now, sum(window.seconds for window in stored)))
