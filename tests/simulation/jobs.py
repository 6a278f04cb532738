"""Jobs of a simulated site: what servers say of them, and what the job table must hold.

What is acknowledged is in the table for ever: the newest counts of each job on each target. Each row is what the target had counted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.oracle import Wrong
from tokiod.errors import CollectError, Transient
from tokiod.jobs.rows import read
from tokiod.simulator.jobs.commands import JobCommands
from tokiod.simulator.jobs.expected import Polls, compare_jobs
from tokiod.simulator.jobs.work import SERVERS as NAMES
from tokiod.simulator.jobs.work import Work
from tokiod.simulator.site import Site
from tokiod.window import iso

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulation.clock import MachineClock
    from tokiod.window_data import Collected

NAME = "fs0-jobs"
LATENCY_SECONDS = 5.0
JOBS_AN_HOUR = 2
SERVERS: dict[str, JobServers] = {}
"""Those of the site that is being simulated, by the name of the source."""

Known = tuple[bytes, bytes, int]
"""A target, a job and the begin of its counts."""


@dataclass
class JobServers:
    """The servers of a file system. sick: as of tests.simulation.sources.Source, for each server. newest: what was acknowledged."""

    clock: MachineClock
    system: str
    seed: int
    first: int
    window: int
    sick: list[tuple[float, float, str]] = field(default_factory=list)
    newest: dict[Known, int] = field(default_factory=dict)
    rows: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(f"jobs/{self.seed}")
        moment = next(one for one in (3600, 1800, 1200, 900, 600) if one <= self.window or one == 600)
        site = Site(epoch=self.first - 86400, seed=self.seed, osts=2, osss=2, mdts=1, moment=moment, failing=False)
        self.work = Work(site, JOBS_AN_HOUR)
        self.answers = JobCommands(site, self.work)

    def commands(self) -> JobServers:
        """Return what takes the place of the collector's commands."""
        return self

    async def job_stats(self) -> dict[str, bytes | CollectError]:
        """Return what each server prints."""
        await asyncio.sleep(LATENCY_SECONDS * self.rng.random())
        now = self.clock.true_time()
        return {server: self._said(server, now) for server in NAMES}

    async def cleanup_intervals(self, _server: str) -> dict[str, int]:
        """Return nothing: the configuration is right."""
        return {}

    async def close(self) -> None:
        """Have nothing open."""

    def note(self, collected: Collected) -> None:
        """Note what is acknowledged."""
        for rows in collected.tables:
            values = dict(zip(rows.columns, (one.tolist() for one in rows.values), strict=True))
            for target, job, begin, last in zip(values["target"], values["job"], values["begin"], values["last"], strict=True):
                key = target, job, begin
                self.newest[key] = max(self.newest.get(key, 0), last)
            self.rows += len(rows)

    def check(self, directory: Path) -> int:
        """Compare the table with what was acknowledged and what servers counted; return how many rows it has. Raises Wrong."""
        directories = sorted(directory.glob("*-*-*"))
        found = read(directories, 0, 2**40)
        there: Counter[Known] = Counter()
        keys = zip(found.targets[found.target].tolist(), found.jobs[found.job].tolist(), found.columns["begin"].tolist(), strict=True)
        for key, last in zip(keys, found.columns["last"].tolist(), strict=True):
            there[key] = max(there[key], last)
        for key, last in self.newest.items():
            if there[key] < last:
                raise Wrong(f"acknowledged, but not in the job table: {key} of {iso(last // 10**9)}; there is {iso(there[key] // 10**9)}")
        compared = compare_jobs(self.work, directories, Polls([]))
        if not compared.equal:
            raise Wrong(f"the job table: {dict(compared.counts)}, such as {compared.differences[0]}")
        return len(found)

    def _said(self, server: str, now: float) -> bytes | CollectError:
        for start, end, how in self.sick:
            if start <= now < end and (how != "fails half" or self.rng.random() < 0.5):
                return Transient(f"{server} is down")
        return "".join(self.answers.stats(server, now)).encode()
