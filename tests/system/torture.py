"""SIGKILL the writer, the collectors, both or the supervisor at random instants, again and again, and know every cell of five sources.

    torture.py --kills 300 [--faults kills|all] [--equal] [--rate 180] [--seed N] [--directory DIR]

A day takes minutes: midnights turn files, days that are over are sealed, an OST and a node appear; it begins shortly before the day of
autumn's change of the clocks. --faults all: between kills, processes and sources stand still or die, and live files are truncated or
unlinked. After each kill every file must open, live or sealed, and those of one system, in turn, hold every cell that follows from
acknowledged windows; at the end every cell must be the simulator's, and the days that are over sealed. --equal: and byte for byte those
of a daemon that nobody disturbs.
Prints one line: kills N unreadable 0 lost 0 different 0 seconds S; exits 1 if one of them isn't 0.
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
from undisturbed import unequal

from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.simulator.scene import Scene, wait_for
from tokiod.simulator.site import Site
from tokiod.simulator.sources import SOURCES
from tokiod.tts.layout import form_of
from tokiod.window import Calendar, iso

RATE = 60
HISTORY = 3600
BEGIN = 1_541_313_600
"""2018-11-03T23:40 in Los Angeles: shortly before a day of 25 hours."""
MOMENT = 300
RETENTION = 30 * 3600
"""Seconds: a day whose file is lost is collected again, from its beginning."""
BREATH = 20
"""Kills after which it may catch up."""
BETWEEN = 0.5
"""Seconds between a kill and the next, on average, beside what looking at the files takes."""
BIRTH = 1.5
"""Seconds in which a process that was waited for is killed: half of them are its start."""
VICTIMS = {"writer": 5, "collectors": 3, "both": 3, "supervisor": 1}
"""Whom to kill, and how often of twelve."""
KILLED_IN_ALL = 0.7
"""How many of the faults are kills where all sorts of them are."""


@dataclass
class Score:
    """What went wrong so far."""

    kills: int = 0
    unreadable: int = 0
    lost: int = 0
    different: int = 0
    notes: list[str] = field(default_factory=list)
    sound: dict[Path, tuple[int, int]] = field(default_factory=dict)
    checks: int = 0
    begun: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        counts = f"kills {self.kills} unreadable {self.unreadable} lost {self.lost} different {self.different}"
        return f"{counts} seconds {time.monotonic() - self.begun:.0f}"

    def check(self, scene: Scene, *, determined: bool) -> None:
        before, changed = self.unreadable, {}
        for path in scene.files():
            try:
                with h5py.File(path, "r", locking=False) as file:
                    assert file.attrs["version"] == "1"
                    sealed = form_of(file) == "sealed"
                status = path.stat()
                changed[path] = (status.st_ino, status.st_mtime_ns if sealed else 0)
            except (OSError, AssertionError) as error:
                self.unreadable += 1
                self.notes.append(f"{path}: {error}")
        if self.unreadable > before:
            return
        due = self._due(scene, changed) if determined else set(changed)
        result = scene.compare(determined=determined, only=due)
        if result.equal:
            self.sound |= {path: changed[path] for path in due}
        self.lost += result.counts["lost"]
        self.different += result.counts["different"] + result.counts["extra"]
        self.notes += map(str, result.differences[:5])

    def _due(self, scene: Scene, files: dict[Path, tuple[int, int]]) -> set[Path]:
        """Return the files of which every cell is looked at after this kill: another system's each time, and no sealed one twice."""
        self.checks += 1
        system = scene.sources[self.checks % len(scene.sources)].system
        return {path for path, state in files.items() if path.stem == system and (state[1] == 0 or self.sound.get(path) != state)}


def torture(kills: int, seed: int, directory: Path, *, rate: float = RATE, faults: str = "kills", equal: bool = False) -> Score:
    rng, score = random.Random(seed), Score()
    clock = SimulatedClock(float(BEGIN), time.time(), rate)
    sizes = {"osts": 8, "osss": 4, "mdts": 2, "hosts": 4, "devices": 2, "cores": 2}
    site = Site(epoch=BEGIN - HISTORY, seed=seed, moment=MOMENT, growth=HISTORY + 1800, **sizes)
    scene = Scene(directory, site, clock, window=MOMENT, retention=RETENTION, sources=SOURCES)
    scene.prepare()
    try:
        scene.start_simulator()
        scene.start_daemon()
        while score.kills < kills:
            time.sleep(rng.expovariate(1 / BETWEEN))
            if faults == "all" and rng.random() > KILLED_IN_ALL:
                rng.choice(FAULTS)(scene, rng)
            else:
                strike(scene, rng.choices(list(VICTIMS), list(VICTIMS.values()))[0], rng)
                score.kills += 1
            score.check(scene, determined=True)
            if score.kills % BREATH == 0:
                # Killed every second, a daemon that starts in one or two stores little, and in ten minutes a source's past is out of reach.
                wait_for(lambda: is_caught_up(scene), 180, f"it does not catch up; see {scene.log}")
                print(f"{score.line()}, simulated {iso(scene.clock.time())}", file=sys.stderr, flush=True)
        settle(scene)
        scene.stop_daemon()
        score.check(scene, determined=False)
        if equal:
            found = unequal(scene)
            score.different += len(found)
            score.notes += found
    finally:
        scene.close()
    wait_for(lambda: not survivors(directory), 10, "processes outlived their supervisor")
    return score


def is_caught_up(scene: Scene) -> bool:
    """Whether nothing is missing but of the last hour."""
    return scene.complete_to(scene.site.epoch, (int(scene.clock.time()) - HISTORY) // MOMENT * MOMENT)


def settle(scene: Scene) -> None:
    """Wait until all that has happened is stored, and the days that are over, and complete, are sealed."""
    end = int(scene.clock.time()) // MOMENT * MOMENT
    wait_for(
        lambda: scene.complete_to(scene.site.epoch, end),
        180,
        f"not complete up to {end} after three minutes: {[scene.stored(source)[-3:] for source in scene.sources]}; see {scene.log}",
    )
    today = Calendar(scene.site.timezone).day(end)
    wait_for(
        lambda: all(is_sealed(path) for path in scene.files() if path.parent.name < str(today.date)),
        180,
        f"days before {today.date} are not sealed after three minutes; see {scene.log}",
    )


def is_sealed(path: Path) -> bool:
    with h5py.File(path, "r", locking=False) as file:
        return form_of(file) == "sealed"


# ---- what may happen beside kills


def freeze(scene: Scene, rng: random.Random) -> None:
    """A process stands still for seconds."""
    with scene.frozen(rng.choice(("writer", "collectors"))):
        time.sleep(rng.uniform(0.5, 4))


def stop_source(scene: Scene, rng: random.Random) -> None:
    """A source stands still: whoever asks it waits."""
    with scene.stopped(rng.choice(scene.sources)):
        time.sleep(rng.uniform(0.5, 4))


def kill_source(scene: Scene, rng: random.Random) -> None:
    """A source dies, and is started again."""
    source = rng.choice(scene.sources)
    scene.kill_source(source)
    time.sleep(rng.uniform(0.1, 3))
    scene.start_source(source)


def damage(scene: Scene, rng: random.Random) -> None:
    """A live file of today's is truncated or unlinked, of a source that can be asked again; the next commit notices and says so."""
    today = Calendar(scene.site.timezone).day(int(scene.clock.time()))
    source = rng.choice([source for source in scene.sources if source.replayable])
    files = [path for path in scene.files(source) if path.parent.name == str(today.date) and not is_sealed(path)]
    if not files:
        return
    known = noticed(scene)
    if rng.random() < 1 / 2:
        os.truncate(files[0], 4096 + rng.randrange(files[0].stat().st_size - 4096))
    else:
        files[0].unlink()
    wait_for(lambda: noticed(scene) > known, 60, f"nobody noticed what was done to {files[0]}; see {scene.log}")


def noticed(scene: Scene) -> int:
    """Return how many files were found to be damaged or gone."""
    said = scene.log.read_bytes()
    return said.count(b'"file.set_aside"') + said.count(b'"file.gone"')


FAULTS = (freeze, stop_source, kill_source, damage)


def survivors(directory: Path) -> list[str]:
    """Return the processes that still work on a scene."""
    commands = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.name != str(os.getpid()))
    return [command.decode() for command in commands if f"{directory}/tokiod.toml".encode() in command]


def strike(scene: Scene, victim: str, rng: random.Random) -> None:
    """Kill, and see to it that somebody was hit: who is just being restarted is waited for, and killed while it starts or later."""
    if victim == "supervisor":
        scene.kill_daemon()
        scene.start_daemon()
        return
    for process in ("writer", "collectors") if victim == "both" else (victim,):
        if scene.pid(process) is None:
            # Killed as soon as it is seen, it would always die while Python starts, and the pauses before its next start grow to 5 s.
            wait_for(lambda process=process: scene.pid(process) is not None, 30, f"no {process} after 30 s; see {scene.log}")
            time.sleep(rng.uniform(0, BIRTH))
        wait_for(lambda process=process: scene.kill(process), 30, f"no {process} to kill after 30 s; see {scene.log}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--faults", choices=("kills", "all"), default="kills")
    parser.add_argument("--equal", action="store_true", help="hold sealed files against those of an undisturbed run, byte for byte")
    parser.add_argument("--rate", type=float, default=RATE, help="simulated seconds in a real one")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="tokiod-torture-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes under torture end too
    print(f"seed {seed}, everything in {directory}", file=sys.stderr, flush=True)
    try:
        score = torture(arguments.kills, seed, directory, rate=arguments.rate, faults=arguments.faults, equal=arguments.equal)
    except TokiodError as error:
        print(error, file=sys.stderr)
        return 1
    for note in score.notes[:20]:
        print(note, file=sys.stderr)
    print(score.line())
    failed = score.unreadable + score.lost + score.different > 0
    if not failed and arguments.directory is None:
        shutil.rmtree(directory)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
