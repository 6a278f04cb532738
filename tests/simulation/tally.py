"""The record of the seeds that were played, over sessions and commits: runs.jsonl, a line of JSON for each run.

    {"begin": 300000100, "seeds": 400, "commit": "8369675a1b2c", "failed": [], "days": 251.3, "processor": 871.0, "injected": {"seal": 301}}

begin: the first seed; days: of site time; processor: seconds. Seeds that follow the last run, on its commit, become part of it, as long as
it is not longer than MAX_SEEDS.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.site import Outcome

MAX_SEEDS = 1000
"""Of a run."""
PART = 20
"""Seeds that are added to a file of runs at once. A run that is stopped loses those whose part was not complete."""
ROOT = Path(__file__).parents[2]
RECORD = "tests/simulation/runs.jsonl"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What consecutive seeds came to on one commit."""

    begin: int
    seeds: int
    commit: str
    failed: list[int]
    days: float
    processor: float
    injected: dict[str, int]

    @property
    def end(self) -> int:
        """The seed after the last one."""
        return self.begin + self.seeds

    def extended(self, other: Run) -> Run | None:
        """Return one run of both, None where the other one does not follow."""
        if (other.begin, other.commit) != (self.end, self.commit) or self.seeds + other.seeds > MAX_SEEDS:
            return None
        return Run(
            begin=self.begin,
            seeds=self.seeds + other.seeds,
            commit=self.commit,
            failed=self.failed + other.failed,
            days=round(self.days + other.days, 1),
            processor=round(self.processor + other.processor, 1),
            injected=dict(sorted((Counter(self.injected) + Counter(other.injected)).items())),
        )


def parts(outcomes: Iterable[Outcome], seeds: range) -> Iterator[list[Outcome]]:
    """Yield the outcomes of each complete part of `seeds`, the last one shorter than PART if it must be; all in the order of seeds.

    Outcomes come in any order: a seed of forty days doesn't stop the other processes.
    """
    waiting: dict[int, Outcome] = {}
    left = iter([seeds[at : at + PART] for at in range(0, len(seeds), PART)])
    part = next(left, range(0))
    for outcome in outcomes:
        waiting[outcome.plan.seed] = outcome
        while part and all(seed in waiting for seed in part):
            yield [waiting.pop(seed) for seed in part]
            part = next(left, range(0))


def runs_of(path: Path) -> list[Run]:
    """Return the runs of a file, none if it does not exist."""
    text = path.read_text() if path.exists() else ""
    return [msgspec.json.decode(line, type=Run) for line in text.splitlines()]


def add(path: Path, run: Run) -> None:
    """Add a run to a file, which is replaced as a whole: a stop leaves the old one or the new one."""
    runs = runs_of(path)
    longer = runs[-1].extended(run) if runs else None
    runs = [*runs, run] if longer is None else [*runs[:-1], longer]
    new = path.with_name(f"{path.name}.new")
    new.write_text("".join(msgspec.json.encode(one).decode() + "\n" for one in runs))
    new.replace(path)


def current_commit() -> str:
    """Return the commit of the tree, with "-dirty" where something but the record was changed since; "unknown" without git."""
    try:
        commit, changed = _git("rev-parse", "--short=12", "HEAD"), _git("status", "--porcelain", "-uno", "--", ".", f":!{RECORD}")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def summary(runs: Iterable[Run], kept: Iterable[int], commit: str) -> str:
    """Return the sums of runs. kept: the seeds that are played again and again; commit: the present one."""
    runs, injected = list(runs), Counter[str]()
    for run in runs:
        injected.update(run.injected)
    now = [run for run in runs if run.commit == commit]
    days, processor = sum(run.days for run in runs), sum(run.processor for run in runs)
    failed = [seed for run in runs for seed in run.failed]
    found = f"failed {len(failed)}, kept of these {len(set(failed) & set(kept))}"
    speed = f"days {days:.1f} days_per_processor_hour {days / processor * 3600 if processor else 0:.0f}"
    return "\n".join(
        (
            f"seeds {sum(run.seeds for run in runs)} {found} {speed}",
            f"of these on {commit}: seeds {sum(run.seeds for run in now)} failed {sum(len(run.failed) for run in now)}",
            f"injected in all: {', '.join(f'{kind} {count}' for kind, count in sorted(injected.items()))}",
        )
    )
