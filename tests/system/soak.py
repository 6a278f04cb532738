"""Run a daemon over five sources for simulated days, and see that nothing of it grows: memory, descriptors, sockets, the ledger.

    soak.py --minutes 30 [--days 10] [--seed N] [--directory DIR]

The days pass in so many real minutes. Every second the daemon is looked at; over the last two thirds a line is laid through each
quantity by least squares. It grows where the line rises by more than the quantity's allowance over the whole time looked at, and by
more than twice the slope's standard error. Prints a line for each; exits 1 if one of them grows, or if a cell of the archive is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.support.faulty_scene import FaultyScene
from tests.support.waiting import wait_for
from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.simulator.site import Site
from tokiod.simulator.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BEGIN = 1_541_311_200
"""2018-11-03T23:00 in Los Angeles: an hour before a day of 25 hours."""
HISTORY = 3600
MOMENT = 300
RETENTION = 600
COMMAND_TIMEOUT = 3
"""Real seconds, however fast the days pass: the moments in which a command hangs come as often in a day as in life, and are
waited for in time to ask for the next."""
ALLOWED = {"memory MB": 0.1, "writer MB": 0.1, "collectors MB": 0.1, "descriptors": 0.1, "sockets": 0.1, "ledger KB": 0.25}
"""How much a quantity may rise over the time looked at, relative to its mean: a WAL file is as long as its longest transaction."""


@dataclass(frozen=True)
class Slope:
    """A line through what was seen: mean, rise over the time looked at, and the rise's standard error, in the quantity's own unit."""

    mean: float
    rise: float
    error: float

    @classmethod
    def of(cls, seconds: Sequence[float], values: Sequence[float]) -> Slope:
        """Lay a line through the last two thirds of the time. Raises ValueError for fewer than three points in them."""
        time, value = np.asarray(seconds, float), np.asarray(values, float)
        late = time >= time[0] + (time[-1] - time[0]) / 3
        time, value = time[late], value[late]
        if len(time) < 3 or time[-1] == time[0]:
            raise ValueError(f"a slope needs three points in time, there are {len(time)}")
        centred, span = time - time.mean(), time[-1] - time[0]
        slope = float(centred @ value / (centred @ centred))
        rest = value - value.mean() - slope * centred
        error = float(np.sqrt(rest @ rest / (len(time) - 2) / (centred @ centred)))
        return cls(float(value.mean()), slope * span, error * span)

    def grows(self, allowed: float) -> bool:
        """Whether it rises by more than this share of its mean, and not by chance."""
        return self.rise > allowed * self.mean and self.rise > 2 * self.error

    def __str__(self) -> str:
        return f"mean {self.mean:.1f} rise {self.rise:+.2f} ± {self.error:.2f}"


def looked_at(scene: FaultyScene) -> dict[str, float]:
    """Return what there is of each quantity now."""
    pids = scene.processes()
    descriptors = [target for pid in pids for target in _descriptors(pid)]
    ledger = scene.config.archive.ledger
    size = sum(path.stat().st_size for path in ledger.parent.glob(f"{ledger.name}*") if path.exists())
    sockets = sum(target.startswith("socket:") for target in descriptors)
    memory = {"memory MB": scene.memory(), "writer MB": scene.memory("writer"), "collectors MB": scene.memory("collectors")}
    return memory | {"descriptors": len(descriptors), "sockets": sockets, "ledger KB": size / 1024}


def _descriptors(pid: int) -> Iterable[str]:
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                yield str(entry.readlink())
            except OSError:
                continue
    except OSError:
        return


def verdict(seconds: Sequence[float], seen: Sequence[dict[str, float]]) -> tuple[list[str], bool]:
    """Return a line for each quantity, and whether all of them are flat."""
    slopes = {name: Slope.of(seconds, [one[name] for one in seen]) for name in ALLOWED}
    growing = {name for name, slope in slopes.items() if slope.grows(ALLOWED[name])}
    return [f"{name}: {slope}, {'GROWS' if name in growing else 'flat'}" for name, slope in slopes.items()], not growing


def soak(minutes: float, days: float, seed: int, directory: Path) -> tuple[list[str], bool]:
    """Run, and return the lines and whether all is well. Raises TokiodError where the daemon does not keep up."""
    clock = SimulatedClock(float(BEGIN), time.time(), days * 86400 / (minutes * 60))
    sizes = {"osts": 8, "osss": 4, "mdts": 2, "hosts": 4, "devices": 2, "cores": 2}
    scene = FaultyScene(
        directory,
        Site(epoch=BEGIN - HISTORY, seed=seed, moment=MOMENT, **sizes),
        clock,
        window=MOMENT,
        retention=max(6 * 3600, int(RETENTION * clock.rate)),
        sources=SOURCES,
        command_timeout=COMMAND_TIMEOUT,
    )
    scene.prepare()
    seconds: list[float] = []
    seen: list[dict[str, float]] = []
    try:
        scene.start_simulator()
        scene.start_daemon()
        while clock.time() < BEGIN + days * 86400:
            time.sleep(1)
            seconds.append(clock.time())
            seen.append(looked_at(scene))
        end = int(clock.time()) // 3600 * 3600
        wait_for(lambda: scene.complete_to(BEGIN - HISTORY, end), 180, f"not complete up to {end} after three minutes; see {scene.log}")
        scene.stop_daemon()
    finally:
        scene.close()
    cells = scene.compare()
    wrong = ", ".join(f"{cells.counts[kind]} {kind}" for kind in ("lost", "extra", "different"))
    lines, flat = verdict(seconds, seen)
    return [
        *lines,
        f"{days:g} days in {minutes:g} minutes, {len(scene.files())} files, {cells.filled} numbers, {wrong}",
    ], flat and cells.equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--days", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="tokiod-soak-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes end too
    print(f"seed {seed}, everything in {directory}, pid {os.getpid()}", file=sys.stderr, flush=True)
    try:
        lines, good = soak(arguments.minutes, arguments.days, seed, directory)
    except TokiodError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines))
    if good and arguments.directory is None:
        shutil.rmtree(directory)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
