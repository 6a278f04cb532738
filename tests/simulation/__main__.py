"""`make simulate`: whole sites for days, all faults from a seed.

    python -m tests.simulation [--seeds 200] [--begin N] [--seed N] [--kept] [--new] [--jobs 2] [--minutes M] [--tally FILE] ...

--seeds: how many, from --begin on; --seed: this one alone, shrunk if it fails; --kept: those that ever failed (tests/simulation/seeds.txt);
--new: seeds of today, the same for all who play them, until --minutes are over;
--minutes: end after so long; --tally: begin after the seeds that FILE has, add what is played to it (tests/simulation/tally.py), and
print the sum of all runs in it; tests/simulation/runs.jsonl is the record of all sessions;
--twice: play each seed twice and compare the logs; --until-failure: end at the first seed that fails.
Prints the seed of each failure with what was wrong, then one line: the seeds, the failures, simulated days, days per hour; then how often
each kind of fault was injected. Exits 1 if a seed failed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

# Sets of names are iterated by their hashes, so these must be the same in each run.
if os.environ.get("PYTHONHASHSEED") != "0":
    os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})

from tests.simulation import tally
from tests.simulation.plan import FOLDER_KINDS, FOLDER_MORE_KINDS, KINDS, MORE_KINDS, NAME_KINDS, NEW_KINDS, Plan
from tests.simulation.shrink import shrunk
from tests.simulation.site import Outcome, play

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SEEDS_PER_DAY = 100_000
"""More than anybody plays."""
KEPT = Path(__file__).parent / "seeds.txt"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--tally", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--until-failure", action="store_true")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return alone(arguments.seed, arguments.log)
    if arguments.tally is not None:
        return with_tally(arguments.tally, arguments.begin, arguments.seeds, arguments.jobs, arguments.minutes * 60)
    seeds: Iterable[int] = range(arguments.begin, arguments.begin + arguments.seeds)
    if arguments.kept:
        seeds = kept_seeds()
    elif arguments.new:
        seeds = itertools.count(new_begin())
    return many(seeds, arguments.jobs, arguments.minutes * 60, twice=arguments.twice, until_failure=arguments.until_failure)


def kept_seeds() -> list[int]:
    """Return the seeds that ever failed: the first word of each line."""
    lines = (line.partition("#")[0].split() for line in KEPT.read_text().splitlines())
    return [int(words[0]) for words in lines if words]


def new_begin() -> int:
    """Return a number of the day, UTC, so that seeds are new each day, and what CI plays can be played again."""
    begin = int(time.time()) // 86400 * SEEDS_PER_DAY
    print(f"new seeds, from {begin} on", flush=True)
    return begin


def alone(seed: int, log: Path | None) -> int:
    """Play one seed; shrink it if it fails."""
    outcome = play(Plan.of(seed))
    print(f"seed {seed}: {outcome.wrong or 'right'}; log {outcome.digest}")
    if outcome.wrong:
        outcome = shrunk(outcome)
        print(f"shrunk to {outcome.plan.hours:.1f} hours and {len(outcome.plan.events)} events: {outcome.wrong}")
        for event in outcome.plan.events:
            print(f"    {event}")
    if log is not None:
        log.write_text("\n".join(outcome.lines) + "\n")
    return int(bool(outcome.wrong))


@dataclass
class Score:
    """What the seeds came to. days: of site time; processor: seconds."""

    played: int = 0
    days: float = 0.0
    processor: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def take(self, outcome: Outcome) -> None:
        """Add an outcome; print it if it failed."""
        self.played, self.days, self.processor = self.played + 1, self.days + outcome.days, self.processor + outcome.seconds
        self.counts += outcome.counts
        if outcome.wrong:
            self.failed.append(outcome.plan.seed)
            print(f"seed {outcome.plan.seed} FAILED: {outcome.wrong}", flush=True)

    def add(self, other: Score) -> None:
        """Add what other seeds came to."""
        self.played, self.days, self.processor = self.played + other.played, self.days + other.days, self.processor + other.processor
        self.counts += other.counts
        self.failed += other.failed

    def run(self, begin: int, commit: str) -> tally.Run:
        """Return it as a run of consecutive seeds."""
        return tally.Run(
            begin=begin,
            seeds=self.played,
            commit=commit,
            failed=sorted(self.failed),
            days=round(self.days, 1),
            processor=round(self.processor, 1),
            injected=dict(sorted(self.counts.items())),
        )

    def report(self, seconds: float) -> None:
        """Print the sums."""
        speed = f"days {self.days:.1f} seconds {seconds:.0f} processor {self.processor:.0f} days_per_hour {self.days / seconds * 3600:.0f}"
        print(f"seeds {self.played} failed {len(self.failed)} {speed}")
        planned = [
            *KINDS,
            *FOLDER_KINDS,
            *FOLDER_MORE_KINDS,
            *MORE_KINDS,
            *NAME_KINDS,
            *NEW_KINDS,
        ]
        print("injected: " + ", ".join(f"{kind} {self.counts[kind]}" for kind in [*planned, *sorted(self.counts.keys() - set(planned))]))
        if self.failed:
            print(f"failed: {' '.join(map(str, sorted(self.failed)))}")


def many(seeds: Iterable[int], jobs: int, seconds: float, *, twice: bool = False, until_failure: bool = False) -> int:
    """Play seeds, with several jobs in processes of their own, until the time is over."""
    begun, score = time.monotonic(), Score()
    left = itertools.takewhile(lambda _: time.monotonic() - begun < seconds and not (until_failure and score.failed), seeds)
    for outcome in map(partial(play_seed, twice=twice), left) if jobs == 1 else in_processes(left, jobs, twice=twice):
        score.take(outcome)
    score.report(time.monotonic() - begun)
    return int(bool(score.failed))


def with_tally(path: Path, begin: int, seeds: int, jobs: int, seconds: float) -> int:
    """Play the seeds after those of a file of runs, from `begin` on, until the time is over, and add them to it."""
    whole, commit, begun = Score(), tally.current_commit(), time.monotonic()
    begin = max((begin, *(run.end for run in tally.runs_of(path))))
    end = begin + seeds
    left = itertools.takewhile(lambda seed: (seed - begin) % tally.PART or time.monotonic() - begun < seconds, range(begin, end))
    outcomes = map(play_seed, left) if jobs == 1 else in_processes(left, jobs, twice=False)
    for part in tally.parts(outcomes, range(begin, end)):
        score = Score()
        for outcome in part:
            score.take(outcome)
        tally.add(path, score.run(part[0].plan.seed, commit))
        whole.add(score)
    whole.report(time.monotonic() - begun)
    print(tally.summary(tally.runs_of(path), kept_seeds(), commit))
    return int(bool(whole.failed))


def in_processes(seeds: Iterator[int], jobs: int, *, twice: bool) -> Iterator[Outcome]:
    """Yield outcomes as they come; a few seeds wait for a process, so that the end of the time is kept."""
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[Outcome]] = set()
        while True:
            running |= {pool.submit(play_seed, seed, twice=twice) for seed in itertools.islice(seeds, jobs + 1 - len(running))}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (one.result() for one in done)


def play_seed(seed: int, *, twice: bool = False) -> Outcome:
    """Play a seed in a worker; without the lines of its log, which take long to send."""
    outcome = play(Plan.of(seed))
    if twice and not outcome.wrong and (again := play(Plan.of(seed))).digest != outcome.digest:
        pairs = zip(outcome.lines, again.lines, strict=False)
        first = next((f"{a!r}, then {b!r}" for a, b in pairs if a != b), "one is longer")
        outcome.wrong = f"played twice, the logs differ: {first}"
    outcome.lines.clear()
    return outcome


if __name__ == "__main__":
    sys.exit(main())
