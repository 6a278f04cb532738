"""Jobs of a simulated site: what servers say of them, and what the job table must hold.

What is acknowledged is in the table for ever: the newest counts of each job on each target. Each row is what the target had counted, and
sums are what jobs did (tests.simulation.job_sums). Servers have clocks of their own, which jump, and each may be silent for a while.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tests.simulation.job_sums import Days, Truth, check_sums
from tests.simulation.oracle import Wrong
from tokiod.errors import CollectError, Transient
from tokiod.jobs.rows import read
from tokiod.simulator.jobs.expected import id_of
from tokiod.simulator.jobs.work import SERVERS as NAMES
from tokiod.simulator.jobs.work import JobCommands, Work, block
from tokiod.simulator.site import Site
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.simulation.clock import MachineClock
    from tokiod.jobs.rows import JobRows
    from tokiod.simulator.jobs.work import Life
    from tokiod.window import Calendar
    from tokiod.window_data import Collected

NAME = "fs0-jobs"
LATENCY_SECONDS = 5.0
JOBS_AN_HOUR = 2
BILLION = 10**9
SERVERS: dict[str, JobServers] = {}
"""Those of the site that is being simulated, by the name of the source."""

Known = tuple[bytes, bytes, int]
"""A target, a job and the begin of its counts."""


@dataclass
class JobServers:
    """The servers of a file system. newest: what was acknowledged.

    sick: as of tests.simulation.sources.Source, for each server; silent: the same of one server, whose name is the last part. jumps: begin
    and end, by how many seconds the clock of a server was wrong, and which.
    """

    clock: MachineClock
    system: str
    seed: int
    first: int
    window: int
    calendar: Calendar
    sick: list[tuple[float, float, str]] = field(default_factory=list)
    silent: list[tuple[float, float, str]] = field(default_factory=list)
    jumps: list[tuple[float, float, int, str]] = field(default_factory=list)
    newest: dict[Known, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"jobs/{self.seed}")
        moment = next(one for one in (3600, 1800, 1200, 900, 600) if one <= self.window or one == 600)
        site = Site(epoch=self.first - 86400, seed=self.seed, osts=2, osss=2, mdts=1, moment=moment, failing=False)
        self.work = Work(site, JOBS_AN_HOUR)
        self.answers = JobCommands(site, self.work)
        self._lives: dict[tuple[str, str], Life] = {}
        self._polls: dict[str, list[tuple[int, int]]] = {}
        self._block = lru_cache(maxsize=1 << 12)(self._block_of)

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
                self.newest[key] = max(self.newest.get(key, 0), last % BILLION)

    def check(self, root: Path, *, with_sums: bool, is_ordered: bool, scratch: Path | None) -> tuple[int, int]:
        """Compare the table with what was acknowledged and what servers counted. Raises Wrong.

        Return how many rows it has, and how many sums were compared. is_ordered, scratch: as of check_sums().
        """
        days = Days((root,), self.system)
        found = read(days.dates().values(), 0, 2**40)
        self._check_acknowledged(found)
        truth = truth_of(found, self._lives, self._is_right, self._seen)
        rng = random.Random(f"sums/{self.seed}/{len(found)}")
        return len(found), with_sums and check_sums(days, truth, rng, is_ordered=is_ordered and not self.jumps, scratch=scratch)

    def _check_acknowledged(self, found: JobRows) -> None:
        there: dict[Known, int] = {}
        keys = zip(found.targets[found.target].tolist(), found.jobs[found.job].tolist(), found.columns["begin"].tolist(), strict=True)
        for key, last in zip(keys, found.columns["last"].tolist(), strict=True):
            there[key] = max(there.get(key, -1), last % BILLION)
        for key, place in self.newest.items():
            if there.get(key, -1) < place:
                raise Wrong(f"acknowledged, but not in the job table: operation {place} of {key}; there is {there.get(key)}")

    def _is_right(self, life: Life, found: JobRows, of: slice) -> bool:
        begin, last = found.columns["begin"][of], found.columns["last"][of]
        place = last % BILLION
        if (place >= len(life.times)).any():
            return False
        wanted = [self._moments(life, int(row)) for row in place.tolist()]
        counts = _counts(life, place)
        right = all((values[of] == counts.get(name, 0)).all() for name, values in found.counts.items())
        return right and wanted == list(zip(begin.tolist(), last.tolist(), strict=True))

    def _said(self, server: str, now: float) -> bytes | CollectError:
        for start, end, how in self.sick:
            if start <= now < end and (how != "fails half" or self.rng.random() < 0.5):
                return Transient(f"{server} is down")
        if any(start <= now < end and one == server for start, end, one in self.silent):
            return Transient(f"{server} is down")
        time = self.clock.time()
        for target in self.answers._targets(server, now):
            self._polls.setdefault(target, []).append((int(time), self.calendar.window(int(time), self.window).end))
        return "".join(self._printed(server, now)).encode()

    def _printed(self, server: str, now: float) -> Iterator[str]:
        for target in self.answers._targets(server, now):
            yield f"{'mdt' if '-MDT' in target else 'obdfilter'}.{target}.job_stats=\njob_stats:\n"
            for life, row in self.work.listed(target, now):
                self._lives[target, life.identity] = life
                yield self._block(life, row)

    def _block_of(self, life: Life, row: int) -> str:
        """Return a job as its server prints it, with the times of the server's clock."""
        text = block(life, row)
        begin, last = self._moments(life, row)
        if (begin, last) == (int(life.begins[row]) * BILLION, int(life.times[row]) * BILLION + row):
            return text
        first, _, _, *rest = text.split("\n")
        named = ("snapshot_time:", last), ("start_time:", begin)
        moments = (f"  {name:16} {time // BILLION}.{time % BILLION:09d} secs.nsecs" for name, time in named)
        return "\n".join([first, *moments, *rest])

    def _moments(self, life: Life, row: int) -> tuple[int, int]:
        """Return the begin and the time of an operation by the server's clock, in nanoseconds, of which those of a second are its number.

        A begin of a clock that is right has none.
        """
        time, begin = int(life.times[row]), int(life.begins[row])
        ahead, was_ahead = self._ahead(life.target, time), self._ahead(life.target, begin)
        first = int(life.times.searchsorted(begin)) if was_ahead else 0
        return (begin + was_ahead) * BILLION + first, (time + ahead) * BILLION + row

    def _ahead(self, target: str, time: int) -> int:
        if not self.jumps:
            return 0
        server = self.work.server(target, time)
        return next((ahead for start, end, ahead, one in reversed(self.jumps) if one == server and start <= time < end), 0)

    def _seen(self, target: str, time: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the end of the window in which a target was last looked at before some times; 0 without one."""
        polls = np.array([(0, 0), *self._polls.get(target, ())], np.int64)
        return polls[np.searchsorted(polls[:, 0], time) - 1, 1]


def truth_of(
    found: JobRows,
    lives: Mapping[tuple[str, str], Life],
    is_right: Callable[[Life, JobRows, slice], bool],
    seen_by: Callable[[str, NDArray[np.int64]], NDArray[np.int64]],
) -> Truth:
    """Return the rows of a table as the targets counted them. Raises Wrong.

    lives: by target and job id; is_right: whether some rows of a life are what the target had counted; seen_by: when a target was certainly
    looked at last, before some times.
    """
    keys, targets = found.jobs.tolist(), [target.decode() for target in found.targets.tolist()]
    pair = found.job * max(len(targets), 1) + found.target
    firsts = np.flatnonzero(np.diff(pair, prepend=-1))
    edges, pairs, n = np.append(firsts, len(found)), [], len(found)
    life, seen = np.zeros(n, np.int64), np.zeros(n, np.int64)
    counts = {name: np.zeros(n, np.int64) for name in found.counts}
    place, time = found.columns["last"] % BILLION, found.columns["time"]
    for first, last in pairwise(edges.tolist()):
        of = slice(first, last)
        key, target = keys[found.job[first]], targets[found.target[first]]
        pairs.append((key, target))
        known = lives.get((target, id_of(key)))
        if known is None or not is_right(known, found, of):
            raise Wrong(f"the job table: {id_of(key)} on {target}, {iso(int(time[first]))}: a row is not what the target had counted")
        life[of] = known.times.searchsorted(known.begins[place[of]])
        for name, values in _counts(known, place[of]).items():
            counts.setdefault(name, np.zeros(n, np.int64))[of] = values
        seen[of] = seen_by(target, time[of])
    number = np.repeat(np.arange(len(pairs)), np.diff(edges))
    return Truth(pairs, number, life, place, time, found.columns["begin"] // BILLION, counts, seen)


def _counts(life: Life, place: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return the counts of some operations, by the names of columns."""
    return {
        f"{name}.{part}": life.counts[place, i, j] for i, name in enumerate(life.operations) for j, part in enumerate(("samples", "sum"))
    }
