"""SIGKILL the writer, the collectors, both or the supervisor at random instants, again and again, and know every cell of five sources.

    torture.py --kills 300 [--faults kills|all] [--equal] [--rate 60] [--seed N] [--directory DIR] [--tally FILE]

A sixth source fills the job table, whose rows must be what the servers counted, and its sums what jobs did (tests/simulation/job_sums.py).
The archive has a past of forty days of three systems, of which no cell may change (torture_past.py).

A day takes minutes: midnights turn files, days that are over are sealed, an OST and a node appear; it begins shortly before the day of
autumn's change of the clocks. --faults all: between kills, processes and sources stand still or die, files and ledger are damaged or
taken away, every kind of file operation fails in the writer, and, for root, the archive has a disk that fails (torture_faults.py,
torture_files.py, torture_ledger.py, torture_operations.py, torture_disk.py).
After each kill every file must open, live or sealed, and those of one system, in turn, hold every cell that follows from windows that
were ever acknowledged, but for those whose file a fault destroyed, and what a source that can't be asked again did not tell while dead;
at the end every cell must be the simulator's, the days that are over sealed, and each window of a source that can't be asked again
stored, or lost for a reason that the ledger tells.
--equal: and sealed files byte for byte those of an undisturbed daemon.
Prints one line: kills N unreadable 0 lost 0 different 0 seconds S; exits 1 if one of them isn't 0. --tally: and one on all runs of FILE.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
from torture_disk import disk
from torture_faults import Deck
from torture_files import is_sealed
from torture_operations import failures
from torture_past import Past
from tortured import Tortured, survivors
from undisturbed import unequal

from tests.simulation.job_sums import check_sums
from tests.simulation.jobs import BILLION, truth_of
from tests.simulation.oracle import Wrong
from tests.support.faulty_scene import FaultyScene
from tests.support.waiting import wait_for
from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.jobs.rows import read
from tokiod.jobs.span import Days
from tokiod.simulator.jobs.work import Work
from tokiod.simulator.site import Site
from tokiod.simulator.sources import ALL, JOBS
from tokiod.tts.layout import form_of
from tokiod.window import Calendar, iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokiod.jobs.rows import JobRows
    from tokiod.simulator.jobs.work import Life
    from tokiod.simulator.sources import Source
    from tokiod.window import Window

RATE = 60
HISTORY = 3600
BEGIN = 1_541_313_600
"""2018-11-03T23:40 in Los Angeles: shortly before a day of 25 hours."""
GROWTH = 600
"""Seconds after the beginning: while that day still is, so that all days that are compared have the column, whenever they are collected."""
MOMENT = 300
RETENTION = 30 * 3600
"""Seconds, where faults destroy files: a day whose file is lost is collected again, from its beginning."""
RETENTION_SECONDS = 450
"""Real seconds that the retention lasts at least, however fast the clock is: longer than the short run of `make test` may take."""
BREATH = 20
"""Kills after which it may catch up."""
BETWEEN = 0.5
"""Seconds between a kill and the next, on average, beside what looking at the files takes."""
BIRTH = 1.5
"""Seconds in which a process that was waited for is killed: half of them are its start."""
VICTIMS = {"writer": 5, "collectors": 3, "both": 3, "feed": 1, "supervisor": 1}
"""Which process to kill, and how often of thirteen."""
ATTEMPTS = 20
"""At copying the job table."""
COUNTED = ("kills", "unreadable", "lost", "different")
OTHERS = 0.1
"""The share of what happens that are no kills, where all sorts of faults do."""


@dataclass
class Score:
    """What went wrong so far."""

    kills: int = 0
    unreadable: int = 0
    lost: int = 0
    different: int = 0
    untold: int = 0
    rows: int = 0
    sums: int = 0
    notes: list[str] = field(default_factory=list)
    sound: dict[Path, tuple[int, int]] = field(default_factory=dict)
    checks: int = 0
    begun: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        counts = f"kills {self.kills} unreadable {self.unreadable} lost {self.lost} different {self.different}"
        return f"{counts} seconds {time.monotonic() - self.begun:.0f}"

    def check(
        self,
        scene: FaultyScene,
        *,
        determined: bool,
        stored: Callable[[Source], Iterable[Window]] | None = None,
        parts: Callable[[Source], Iterable[Window]] = lambda _source: (),
    ) -> None:
        """Look at the files; stored, parts: see FaultyScene.compare()."""
        before, changed = self.unreadable, {}
        first = str(Calendar(scene.site.timezone).day(scene.site.epoch).date)
        for path in (path for path in scene.files() if path.parent.name >= first):
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
        result = scene.compare(determined=determined, only=due, stored=stored, parts=parts)
        if not determined or self.checks % len(scene.sources) == 0:
            jobs = scene.compare_jobs(JOBS, stored)
            self.rows = jobs.filled
            result += jobs
            # Of rows that are wrong no sum is right.
            if jobs.equal:
                self._check_sums(scene)
        if result.equal:
            self.sound |= {path: changed[path] for path in due}
        self.untold = result.untold
        self.lost += result.counts["lost"]
        self.different += result.counts["different"] + result.counts["extra"]
        self.notes += map(str, result.differences[:5])

    def _check_sums(self, scene: FaultyScene) -> None:
        """Compare the sums of a copy of the job table: the writer goes on with the other."""
        with tempfile.TemporaryDirectory() as name:
            copy = Path(name) / "jobs"
            for _ in range(ATTEMPTS):  # a merge removes files
                with suppress(OSError, shutil.Error):
                    shutil.copytree(scene.config.archive.jobs, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.tmp"))
                    break
                shutil.rmtree(copy, ignore_errors=True)
            days = Days((copy,), JOBS.system)
            found = read(days.dates().values(), 0, 2**40)
            try:
                truth = truth_of(found, lives_of(Work(scene.site), found), lambda *_: True, lambda _target, time: time)
                self.sums += check_sums(days, truth, random.Random(self.checks), is_ordered=True, scratch=Path(name))
            except Wrong as error:
                self.different += 1
                self.notes.append(str(error))

    def _due(self, scene: FaultyScene, files: dict[Path, tuple[int, int]]) -> set[Path]:
        """Return the files of which every cell is looked at after this kill: another system's each time, and no sealed one twice."""
        self.checks += 1
        system = scene.sources[self.checks % len(scene.sources)].system
        return {path for path, state in files.items() if path.stem == system and (state[1] == 0 or self.sound.get(path) != state)}


def lives_of(work: Work, found: JobRows) -> dict[tuple[str, str], Life]:
    """Return the lives of the jobs that a table has rows of, by target and job id."""
    times = found.columns["last"] // BILLION
    spans = [(int(times.min()), int(times.max()) + 1)] if len(times) else []
    return {(life.target, life.identity): life for span in spans for life in work.lives(*span)}


def torture(kills: int, seed: int, directory: Path, *, rate: float = RATE, others: float = 0, equal: bool = False) -> Score:
    rng, score = random.Random(seed), Score()
    clock = SimulatedClock(float(BEGIN), time.time(), rate)
    sizes = {"osts": 8, "osss": 4, "mdts": 2, "hosts": 4, "devices": 2, "cores": 2}
    site = Site(epoch=BEGIN - HISTORY, seed=seed, moment=MOMENT, growth=HISTORY + GROWTH, **sizes)
    retention = max(RETENTION if others else 0, int(RETENTION_SECONDS * rate))
    scene = FaultyScene(directory, site, clock, window=MOMENT, retention=retention, sources=ALL)
    with disk(directory / "tts", directory / "store") if others else nullcontext() as its:
        if others and its is None:
            print("no disk may be mounted here, which needs root: what happens to one is left out", file=sys.stderr)
        tortured = Tortured(scene, rng, its, is_kept_up=others > 0)
        deck = Deck(tortured) if others else None
        try:
            scene.prepare()
            tortured.past = Past.made(scene)
            scene.start_simulator()
            scene.start_daemon()
            tear(tortured, deck, score, kills, others)
            settle(tortured)
            scene.stop_daemon()
            look(tortured, score, determined=False)
            write_offs(tortured, score)
            print(f"{score.untold} cells that a dead source did not tell, {score.rows} rows and {score.sums} sums of jobs", file=sys.stderr)
            if deck is not None:
                print(failures(directory), file=sys.stderr)
            if equal:
                found = unequal(scene)
                score.different += len(found)
                print(*found, sep="\n", file=sys.stderr)
        finally:
            scene.close()
            wait_for(lambda: not survivors(directory), 60, "processes outlived their supervisor")
    return score


def tear(tortured: Tortured, deck: Deck | None, score: Score, kills: int, others: float) -> None:
    """Kill, or let something else happen, until there were so many kills and the first day is over."""
    scene, rng = tortured.scene, tortured.rng
    midnight = Calendar(scene.site.timezone).day(BEGIN).end
    while score.kills < kills or scene.clock.time() < midnight:
        time.sleep(rng.expovariate(1 / BETWEEN))
        if deck is not None and rng.random() < others:
            deck.strike()
        else:
            strike(tortured, rng.choices(list(VICTIMS), list(VICTIMS.values()))[0])
            score.kills += 1
            if score.kills % BREATH == 0:
                # Killed every second, a daemon that starts in one or two stores little, and in ten minutes a source's past is out of reach.
                tortured.wait(lambda: is_caught_up(scene), "it does not catch up")
                print(f"{score.line()}, simulated {iso(scene.clock.time())}", file=sys.stderr, flush=True)
        look(tortured, score, determined=True)


def look(tortured: Tortured, score: Score, *, determined: bool) -> None:
    """Hold the files against all that was ever stored."""
    known = len(score.notes)
    tortured.learn()
    parts = {} if determined else {"parts": tortured.unacknowledged}
    score.check(tortured.scene, determined=determined, stored=tortured.kept, **parts)
    wrong = tortured.past.wrong(tortured.rng if determined else None)
    score.different += len(wrong)
    score.notes += wrong
    for note in score.notes[known:]:
        print(note, file=sys.stderr, flush=True)


def write_offs(tortured: Tortured, score: Score) -> None:
    """Count what was written off though its source still held it. Raises TokiodError where it did not hold it any more.

    Then the machine was too busy for the rate of the clock, and sealed files lack what an undisturbed daemon has in time.
    """
    found = tortured.written_off()
    if found and tortured.scene.clock.time() - tortured.scene.site.epoch > tortured.scene.retention:
        raise TokiodError(f"too slow: {found[0]} became older than the retention before it was collected; use a smaller --rate")
    score.lost += len(found)
    for note in found:
        print(f"{note} was written off within the retention", file=sys.stderr, flush=True)


def since(scene: FaultyScene) -> int:
    """Return from when on everything must be in the ledger: one that was lost is told by the files as far back as any source reaches."""
    return max(scene.site.epoch, (int(scene.clock.time()) - scene.retention) // MOMENT * MOMENT + MOMENT)


def is_caught_up(scene: FaultyScene) -> bool:
    """Whether nothing is missing but of the last hour."""
    return scene.complete_to(since(scene), (int(scene.clock.time()) - HISTORY) // MOMENT * MOMENT)


def settle(tortured: Tortured) -> None:
    """Wait until all that has happened is stored, or lost and explained, and the days that are over, and complete, are sealed."""
    scene = tortured.scene
    end = int(scene.clock.time()) // MOMENT * MOMENT
    tortured.wait(lambda: scene.complete_to(since(scene), end), f"not complete up to {end}")
    tortured.wait(lambda: not tortured.unexplained(end), "windows of sources without a past are neither stored nor lost")
    print(tortured.losses(), file=sys.stderr, flush=True)
    today = Calendar(scene.site.timezone).day(int(scene.clock.time()))
    tortured.wait(
        lambda: all(is_sealed(path) for path in scene.files() if path.parent.name < str(today.date)),
        f"days before {today.date} are not sealed",
    )


def strike(tortured: Tortured, victim: str) -> None:
    """Kill a process for certain: one that is just being restarted is waited for, and killed while it starts or later."""
    scene = tortured.scene
    if victim == "supervisor":
        scene.kill_daemon()
        scene.start_daemon()
        return
    for process in ("writer", "collectors") if victim == "both" else (victim,):
        if scene.pid(process) is None:
            # Killed as soon as it is seen, it would always die while Python starts, and the pauses before its next start grow to 5 s.
            tortured.wait(lambda process=process: scene.pid(process) is not None, f"there is no {process}")
            tortured.pause(0, BIRTH)
        tortured.wait(lambda process=process: scene.kill(process), f"no {process} to kill")


def tally(path: Path, score: Score, seed: int, faults: str) -> str:
    """Add a run to a file of runs, and return a line on all those with the same faults."""
    counts = {name: getattr(score, name) for name in COUNTED}
    with path.open("a") as file:
        file.write(json.dumps({"seed": seed, "faults": faults, **counts}) + "\n")
    runs = [run for run in map(json.loads, path.read_text().splitlines()) if run["faults"] == faults]
    sums = " ".join(f"{name} {sum(run[name] for run in runs)}" for name in COUNTED)
    return f"{len(runs)} runs with faults {faults}: {sums}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="at least; a day ends among them")
    parser.add_argument("--faults", choices=("kills", "all"), default="kills")
    parser.add_argument("--others", type=float, default=OTHERS, help="with all faults, the share of what happens that are no kills")
    parser.add_argument("--equal", action="store_true", help="hold sealed files against those of an undisturbed run, byte for byte")
    parser.add_argument("--rate", type=float, default=RATE, help="simulated seconds in a real one")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--tally", type=Path, default=None, help="a file that keeps the line of each run; the sum of all is printed too")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="tokiod-torture-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes under torture end too
    print(f"seed {seed}, everything in {directory}", file=sys.stderr, flush=True)
    try:
        others = arguments.others if arguments.faults == "all" else 0.0
        score = torture(arguments.kills, seed, directory, rate=arguments.rate, others=others, equal=arguments.equal)
    except TokiodError as error:
        print(error, file=sys.stderr)
        return 1
    print(score.line())
    if arguments.tally is not None:
        print(tally(arguments.tally, score, seed, arguments.faults))
    failed = score.unreadable + score.lost + score.different > 0
    if not failed and arguments.directory is None:
        shutil.rmtree(directory)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
