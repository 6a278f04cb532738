"""SIGKILL the writer, the collectors, both or the supervisor at random instants, again and again, and know every cell of five sources.

    torture.py --kills 300 [--seed N] [--directory DIR]

After each kill every file must open, and hold every cell that follows from acknowledged windows; at the end every cell must be the
simulator's. Prints one line: kills N unreadable 0 lost 0 different 0 seconds S; exits 1 if one of them isn't 0.
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
from dataclasses import dataclass, field
from pathlib import Path

import h5py

from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.simulator.scene import Scene, wait_for
from tokiod.simulator.site import Site
from tokiod.simulator.sources import SOURCES

RATE = 60
HISTORY = 3600
VICTIMS = {"writer": 5, "collectors": 3, "both": 3, "supervisor": 1}
"""Whom to kill, and how often of twelve."""


@dataclass
class Score:
    """What went wrong so far."""

    kills: int = 0
    unreadable: int = 0
    lost: int = 0
    different: int = 0
    notes: list[str] = field(default_factory=list)

    def check(self, scene: Scene, *, determined: bool) -> None:
        before = self.unreadable
        for path in scene.files():
            try:
                with h5py.File(path, "r") as file:
                    assert file.attrs["version"] == "1"
            except (OSError, AssertionError) as error:
                self.unreadable += 1
                self.notes.append(f"{path}: {error}")
        if self.unreadable > before:
            return
        result = scene.compare(determined=determined)
        self.lost += result.counts["lost"]
        self.different += result.counts["different"] + result.counts["extra"]
        self.notes += map(str, result.differences[:5])


def torture(kills: int, seed: int, directory: Path) -> Score:
    rng, score = random.Random(seed), Score()
    now = time.time()
    # Ends of the day come soon: the simulated night falls after ten minutes of simulated time.
    epoch = int(now) // 86400 * 86400 + 86400 - HISTORY - 600
    clock = SimulatedClock(float(epoch + HISTORY), now, RATE)
    sizes = {"osts": 8, "osss": 4, "mdts": 2, "hosts": 4, "devices": 2, "cores": 2}
    site = Site(epoch=epoch, seed=seed, timezone="UTC", growth=HISTORY + 1800, **sizes)
    scene = Scene(directory, site, clock, retention=30 * 86400, sources=SOURCES)
    scene.prepare()
    try:
        scene.start_simulator()
        scene.start_daemon()
        while score.kills < kills:
            time.sleep(rng.expovariate(1 / 0.7))
            strike(scene, rng.choices(list(VICTIMS), list(VICTIMS.values()))[0])
            score.kills += 1
            score.check(scene, determined=True)
        end = int(clock.time()) // scene.window * scene.window
        wait_for(
            lambda: scene.complete_to(epoch, end),
            120,
            f"not complete up to {end} after two minutes: {[scene.stored(source)[-3:] for source in scene.sources]}; see {scene.log}",
        )
        scene.stop_daemon()
    finally:
        scene.close()
    score.check(scene, determined=False)
    wait_for(lambda: not survivors(directory), 10, "processes outlived their supervisor")
    return score


def survivors(directory: Path) -> list[str]:
    """Return the processes that still work on a scene."""
    commands = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.name != str(os.getpid()))
    return [command.decode() for command in commands if f"{directory}/tokiod.toml".encode() in command]


def strike(scene: Scene, victim: str) -> None:
    """Kill, and see to it that somebody was hit: a process that is just being restarted is waited for."""
    if victim == "supervisor":
        scene.kill_daemon()
        scene.start_daemon()
        return
    for process in ("writer", "collectors") if victim == "both" else (victim,):
        wait_for(lambda process=process: scene.kill(process), 30, f"no {process} to kill after 30 s; see {scene.log}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="tokiod-torture-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes under torture end too
    print(f"seed {seed}, everything in {directory}", file=sys.stderr, flush=True)
    start = time.monotonic()
    try:
        score = torture(arguments.kills, seed, directory)
    except TokiodError as error:
        print(error, file=sys.stderr)
        return 1
    for note in score.notes[:20]:
        print(note, file=sys.stderr)
    seconds = time.monotonic() - start
    print(f"kills {score.kills} unreadable {score.unreadable} lost {score.lost} different {score.different} seconds {seconds:.0f}")
    failed = score.unreadable + score.lost + score.different > 0
    if not failed and arguments.directory is None:
        shutil.rmtree(directory)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
