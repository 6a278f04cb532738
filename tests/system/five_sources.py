"""Five sources for simulated hours across midnights and autumn's change of the clocks, each of them stopped or killed at random.

    five_sources.py [--hours 30] [--live 30] [--rate 120] [--seed N] [--directory DIR]

The site begins at 22:00 on November 3rd 2018 in Los Angeles; all hours but the last --live ones are in the past when the daemon starts.
While one source is stopped or dead, the others' lags are read from the ledger. At the end every cell must be the simulator's (what a
source that can't be asked again did not tell while it was dead may be missing, and is counted as untold), the daemon's anonymous memory
as large as at first, and no lag larger than it was while nothing was wrong. Prints one line; exits 1 if not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from tests.support.faulty_scene import FaultyScene
from tests.support.waiting import wait_for
from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.ledger.ledger import Ledger
from tokiod.simulator.site import Site
from tokiod.simulator.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.simulator.compare import Comparison
    from tokiod.simulator.sources import Source

BEGIN = 1_541_307_600
"""2018-11-03T22:00 in Los Angeles: two hours before a midnight, five before 02:00, when it is 01:00 again."""
FLAT = 1.15
"""How much more memory there may be in the last third than in the first."""
SLACK = 3.0
"""Real seconds by which a lag may be larger than any while nothing was wrong: the machine's own hiccups."""
PAST_SECONDS = 120
"""Real seconds that the daemon has to collect the past, besides the live hours, before the sources forget its beginning."""
WATCHED = 3.0
"""Real seconds without a fault after one, before the next."""


@dataclass
class Score:
    """What was seen: the lags in simulated seconds while nothing was wrong and while another source was; the memory in MB, in turn."""

    faults: int = 0
    calm: dict[str, float] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)
    memory: list[float] = field(default_factory=list)
    comparison: Comparison | None = None

    def grown(self, slack: float) -> dict[str, float]:
        """Return the sources whose lag grew while another was at fault, and by how much."""
        more = {name: lag - self.calm.get(name, 0.0) for name, lag in self.beside.items()}
        return {name: seconds for name, seconds in more.items() if seconds > slack}

    def thirds(self) -> tuple[float, float]:
        """Return the mean memory of the first third and of the last one."""
        third = max(1, len(self.memory) // 3)
        return fmean(self.memory[:third]), fmean(self.memory[-third:])


class Run:
    """One run: a scene, and what is watched in it."""

    def __init__(self, scene: FaultyScene, rng: random.Random) -> None:
        self.scene = scene
        self.score = Score()
        self._rng = rng
        self._usual = {config.name: config.settle + 2 * config.window + scene.clock.rate for config in scene.config.source}
        self._since = int(scene.clock.epoch) // 3600 * 3600

    def play(self, until: float) -> None:
        """Bring one source after the other into trouble until a simulated time."""
        order: list[Source] = []
        while self.scene.clock.time() < until:
            order = order or self._rng.sample(self.scene.sources, len(self.scene.sources))
            source = order.pop()
            self._watch(WATCHED, self.score.calm, None)
            for _ in self._fault(source):
                self._watch(self._rng.uniform(1, 4), self.score.beside, source)
            self.score.faults += 1
            wait_for(self.settled, 60, f"the daemon does not recover from {source.name}'s; see {self.scene.log}")

    def settled(self) -> bool:
        """Whether nothing is waited for but windows that can't be there yet."""
        return all(self._lag(source) <= self._usual[source.name] for source in self.scene.sources)

    def _fault(self, source: Source) -> Iterator[None]:
        """Bring a source into trouble, give time to watch it, and end the trouble."""
        if self._rng.random() < 1 / 2:
            with self.scene.stopped(source):
                yield
        else:
            self.scene.kill_source(source)
            yield
            self.scene.start_source(source)

    def _watch(self, seconds: float, lags: dict[str, float], at_fault: Source | None) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for source in self.scene.sources:
                if source is not at_fault:
                    lags[source.name] = max(lags.get(source.name, 0.0), self._lag(source))
            self.score.memory.append(self.scene.memory())
            time.sleep(0.2)

    def _lag(self, source: Source) -> float:
        """Return the simulated seconds from a source's watermark to now: nothing is missing before that since the daemon was started."""
        now = self.scene.clock.time()
        with Ledger.open_readonly(self.scene.config.archive.ledger) as ledger:
            stored = [end for _, end in ledger.stored(source.name)]
            return now - max([ledger.watermark(source.name, self._since), *(stored if not source.replayable else [])])


def run(hours: float, live: float, rate: float, seed: int, directory: Path) -> Score:
    """Play, and return what was seen. Raises TokiodError where it can't go on."""
    moment = 60 if rate <= 60 else 300
    clock = SimulatedClock(BEGIN + (hours - live) * 3600, time.time(), rate)
    sizes = {"osts": 8, "osss": 4, "mdts": 2, "hosts": 4, "devices": 2, "cores": 2}
    site = Site(epoch=BEGIN, seed=seed, failing=False, moment=moment, **sizes)
    scene = FaultyScene(directory, site, clock, window=moment, retention=int(hours * 3600 + PAST_SECONDS * rate), sources=SOURCES)
    scene.prepare()
    try:
        scene.start_simulator()
        scene.start_daemon()
        wait_for(
            lambda: scene.complete_to(BEGIN, int(clock.epoch) // 3600 * 3600), 120, f"the past does not become complete; see {scene.log}"
        )
        played = Run(scene, random.Random(seed))
        wait_for(played.settled, 60, f"the sources do not keep up; see {scene.log}")
        # However long a busy machine took for the past.
        played.play(max(BEGIN + hours * 3600, clock.time() + live * 1800))
        end = int(clock.time()) // 3600 * 3600
        wait_for(lambda: scene.complete_to(BEGIN, end), 120, f"not complete; see {scene.log}")
        scene.stop_daemon()
    finally:
        scene.close()
    played.score.comparison = scene.compare()
    return played.score


def told(score: Score, rate: float, hours: float, seconds: float) -> tuple[str, bool]:
    """Return the line, and whether all was as it must be."""
    cells, (early, late), grown = score.comparison, score.thirds(), score.grown(SLACK * rate)
    assert cells is not None
    wrong = ", ".join(f"{cells.counts[kind]} {kind}" for kind in ("lost", "extra", "different"))
    lags = " ".join(f"{name} {score.beside[name]:.0f}({score.calm[name]:.0f})" for name in sorted(score.beside))
    line = (
        f"five sources, {hours:g} h at {rate:g}, {score.faults} faults: {cells.filled} numbers, {wrong}, {cells.untold} untold;"
        f" memory {early:.0f} then {late:.0f} MB; lags beside a fault (without) {lags}; {len(grown)} grew; {seconds:.0f} s"
    )
    return line, cells.equal and cells.filled > 0 and late <= FLAT * early and not grown


def main() -> int:
    """Run once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=30)
    parser.add_argument("--live", type=float, default=30)
    parser.add_argument("--rate", type=float, default=120)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="tokiod-five-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(f"seed {seed}, everything in {directory}", file=sys.stderr, flush=True)
    start = time.monotonic()
    try:
        score = run(arguments.hours, min(arguments.live, arguments.hours), arguments.rate, seed, directory)
    except TokiodError as error:
        print(error, file=sys.stderr)
        return 1
    for difference in score.comparison.differences[:20] if score.comparison else ():
        print(difference, file=sys.stderr)
    line, good = told(score, arguments.rate, arguments.hours, time.monotonic() - start)
    print(line)
    if good and arguments.directory is None:
        shutil.rmtree(directory)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
