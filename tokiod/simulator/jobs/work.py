"""What jobs do on the targets of a site: a function of (seed, hour in which a job begins), in every process and at any time.

A job does something in some moments of its life, each time on some of its targets; LMT's counters are the sums of that
(tokiod.simulator.load). A target counts a job from its first operation on, removes it once it was idle for longer than CLEANUP_MOMENTS,
and begins again where it is restarted: at random, and when it moves to the partner of its server and back. All of that is known in
advance, so what a target has counted at a time is looked up, and JobCommands prints it as lctl of Lustre 2.15 does.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.drawn import draw
from tokiod.simulator.fake_commands import Reply, failing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.simulator.site import Site


HOUR = 3600
ACTS = 4
STEP_SECONDS = 15
"""For which _OFFENDER_MIB and the amounts of other jobs are."""
CLEANUP_MOMENTS = 10
"""Moments of the site after which a target removes an idle job: 600 s where a moment is a minute."""
MAX_HOURS = 3
"""How long a job lasts at most, with its pauses."""
DATA, METADATA = ("read_bytes", "write_bytes", "getattr", "punch"), ("open", "close", "mkdir", "getattr")
"""Operations that OSTs and MDTs count."""
FIRST_USER, USERS, NODES = 1000, 17, 64
SERVERS = ("oss1", "oss2", "mds1")
IDLE_OSTS, IDLE_OST = 8, 5
"""Of so many OSTs the one with this number is out of use: its counters never move."""
_OFFENDER_MIB = 20_000
"""What the largest job writes and reads on a target in a step of 15 s: some 1.4 GB/s."""
_RESTARTS, _MOVES = 0.04, 0.04
"""Shares of hours in which a target is restarted, and in which a server's targets are on its partner."""


@dataclass(frozen=True, slots=True, eq=False)
class Acts:
    """What a job did on a target. times: i8[n] epoch seconds of acts; done: i8[n, operations, 2], samples and sums."""

    target: str
    identity: str
    operations: tuple[str, ...]
    times: NDArray[np.int64]
    done: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Life:
    """What a job did on a target. Row i is an operation.

    times: i8[n] epoch seconds; begins: i8[n] when the counts began; counts: i8[n, operations, 2], samples and sums since then; until: i8[n]
    when the target forgets them, if nothing more is done; total: i8[operations, 2] of its whole life.
    """

    target: str
    identity: str
    operations: tuple[str, ...]
    times: NDArray[np.int64]
    begins: NDArray[np.int64]
    counts: NDArray[np.int64]
    until: NDArray[np.int64]
    total: NDArray[np.int64]

    def row(self, time: float) -> int | None:
        """Return the row that the target lists at a time, None where it lists none."""
        row = bisect_right(self.times, time) - 1
        return row if row >= 0 and time < self.until[row] else None


class Work:
    """All jobs of a site. jobs: how many begin in an hour; the first one of every other hour writes as much as all others together."""

    def __init__(self, site: Site, jobs: int = 12) -> None:
        self.site = site
        self.jobs = jobs
        self.step = max(site.moment // (site.acts or ACTS), 1)
        self.cleanup = CLEANUP_MOMENTS * site.moment
        self.targets = (*site.ost_names, *site.mdt_names)
        self.begun = lru_cache(maxsize=64)(self._begun)
        self._acts = lru_cache(maxsize=8)(self._acts_begun)
        self._restarts = lru_cache(maxsize=256)(self._restarts_of)

    def offender(self, time: float) -> str | None:
        """Return the job id that writes most at a time, None in hours without one."""
        hour = int(time) // HOUR
        return None if hour % 2 else _identity(hour, 0, self._drawn(hour)[0])

    def lives(self, start: float, end: float) -> Iterator[Life]:
        """Yield the lives that may have an operation in [start, end)."""
        for hour in self._hours(start, end):
            yield from self.begun(hour)

    def acts(self, start: float, end: float) -> Iterator[Acts]:
        """Yield what jobs did that may have acts in [start, end)."""
        for hour in self._hours(start, end):
            yield from self._acts(hour)

    def _hours(self, start: float, end: float) -> range:
        """Return the hours in which jobs began that may do something in [start, end); before the site's first there is none."""
        return range(max(int(start) // HOUR - MAX_HOURS - 1, self.site.epoch // HOUR), -(-int(end) // HOUR))

    def scheduled(self, hour: int) -> Iterator[tuple[str, int, int, NDArray[np.float64]]]:
        """Yield the jobs of the scheduler that begin in an hour: job id, begin in epoch seconds, seconds, and the numbers drawn for it."""
        for number, drawn in enumerate(self._drawn(hour)):
            if ":" in (identity := _identity(hour, number, drawn)):
                yield identity, *self._span(hour, number, drawn), drawn

    def listed(self, target: str, time: float) -> Iterator[tuple[Life, int]]:
        """Yield the lives that a target lists at a time, and which row of each."""
        for life in self.lives(time - self.cleanup, time + 1):
            if life.target == target and (row := life.row(time)) is not None:
                yield life, row

    def restarts(self, target: str, start: int, end: int) -> list[int]:
        """Return when a target began to count anew, in the hours of [start, end]."""
        return [time for hour in range(start // HOUR, end // HOUR + 1) for time in self._restarts(target, hour)]

    def server(self, target: str, time: float) -> str:
        """Return which server has a target at a time."""
        if "-MDT" in target:
            return SERVERS[2]
        home = int(target[-4:], 16) % 2
        return SERVERS[home ^ self._is_moved(home, int(time) // HOUR)]

    def _is_moved(self, home: int, hour: int) -> bool:
        return bool(self.site.trouble and draw(self.site, f"jobs move {home}", hour, 1)[0] < _MOVES)

    def _restarts_of(self, target: str, hour: int) -> tuple[int, ...]:
        """Return when a target began to count anew in an hour."""
        number = self.targets.index(target)
        happens, when = draw(self.site, f"jobs restart {number}", hour, 2).tolist()
        found = [hour * HOUR + int(when * HOUR) // self.step * self.step] if self.site.trouble and happens < _RESTARTS else []
        home = int(target[-4:], 16) % 2
        if "-OST" in target and self._is_moved(home, hour) != self._is_moved(home, hour - 1):
            found.append(hour * HOUR)
        return tuple(sorted(found))

    def _drawn(self, hour: int) -> NDArray[np.float64]:
        return draw(self.site, "jobs", hour, self.jobs, 8)

    def _begun(self, hour: int) -> list[Life]:
        return [self._life(acts) for acts in self._acts_begun(hour)]

    def _acts_begun(self, hour: int) -> list[Acts]:
        drawn = self._drawn(hour)
        return [acts for number in range(self.jobs) for acts in self._acts_of(hour, number, drawn[number])]

    def _acts_of(self, hour: int, number: int, drawn: NDArray[np.float64]) -> Iterator[Acts]:
        identity, is_offender = _identity(hour, number, drawn), _is_offender(hour, number)
        begin, seconds = self._span(hour, number, drawn)
        steps = max(seconds // self.step, 1)
        shares = draw(self.site, f"jobs of {hour}", number, len(self.targets))
        for place, target in enumerate(self.targets):
            is_idle = place < self.site.osts and place % IDLE_OSTS == IDLE_OST
            if not is_idle and (is_offender or shares[place] < 0.1 + 0.4 * drawn[4]):
                noise = draw(self.site, f"jobs {target}", hour * self.jobs + number, steps)
                does = np.ones(steps, bool) if is_offender else self._active(noise, drawn[5])
                if does.any():
                    offsets = np.flatnonzero(does)
                    amount = (_OFFENDER_MIB if is_offender else 10 ** (3 * drawn[6])) * (0.5 + noise[offsets]) * self.step / STEP_SECONDS
                    writes = (1 + drawn[7]) / 2 if is_offender else drawn[7]
                    operations, done = _done(target, amount, writes)
                    yield Acts(target, identity, operations, begin + self.step * offsets, done)

    def _span(self, hour: int, number: int, drawn: NDArray[np.float64]) -> tuple[int, int]:
        """Return when a job begins, and for how many seconds it runs."""
        if _is_offender(hour, number):
            return hour * HOUR, HOUR
        return hour * HOUR + int(drawn[2] * HOUR) // self.step * self.step, int(60 * 90 ** drawn[3])

    def _active(self, noise: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
        """Return in which steps a job does something: in most, with pauses that may be longer than a target's patience."""
        steps = len(noise)
        pause = int(CLEANUP_MOMENTS * (self.site.acts or ACTS) * 1.5)
        spells = np.arange(steps) // pause
        is_quiet = (noise[spells * pause] < 0.4 * share) & (spells > 0)
        return ~is_quiet & (noise < 0.3 + 0.7 * share)

    def _life(self, acts: Acts) -> Life:
        target, times, done = acts.target, acts.times, acts.done
        cumulative = done.cumsum(axis=0)
        restarts = np.array([
            one for hour in range(int(times[0]) // HOUR, int(times[-1] + self.cleanup) // HOUR + 1) for one in self._restarts(target, hour)
        ], np.int64)  # fmt: skip
        before = np.searchsorted(restarts, times, side="right")
        is_new = np.ones(len(times), bool)
        is_new[1:] = (np.diff(times) > self.cleanup) | (np.diff(before) > 0)
        first = np.maximum.accumulate(np.where(is_new, np.arange(len(times)), 0))
        floor = (cumulative - done)[first]
        until = np.minimum(times + self.cleanup, np.append(restarts, np.iinfo(np.int64).max)[before])
        return Life(target, acts.identity, acts.operations, times, times[first], cumulative - floor, until, cumulative[-1])


def _done(target: str, amount: NDArray[np.float64], writes: float) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the operations that a target counts, and i8[n, operations, 2] of them. amount: f8[n], MiB on an OST; writes: their share."""
    operations = METADATA if "-MDT" in target else DATA
    samples = np.stack([np.ceil(amount * share) for share in (1 - writes, writes, 0.1, 0.01)], axis=1).astype(np.int64)
    sums = samples * np.array([1 << 20, 1 << 20, 37, 411] if operations is DATA else [52, 8, 230, 12])
    return operations, np.stack([samples, sums], axis=2)


def _is_offender(hour: int, number: int) -> bool:
    return number == 0 and hour % 2 == 0


def _identity(hour: int, number: int, drawn: NDArray[np.float64]) -> str:
    """Return a job id as Lustre makes it of %j:%u:%H, or of %e.%u outside of jobs."""
    user = FIRST_USER + int(drawn[0] * USERS)
    if number % 6 == 5:  # noqa: PLR2004 - a sixth is no job
        return f"rsync{hour % 10000}_{number}.{user}"
    return f"{1000 * (hour % 100_000) + number}:{user}:nid{int(drawn[1] * NODES):05d}"


NAME = "lctl-jobs"
FAULTS = ("hang", "refuse", "refuse", "refuse")


def fault(site: Site, server: str, time: float) -> str | None:
    """Return why a server does not answer at a time, None where it does."""
    return failing(site, f"jobs {server}", time, FAULTS)


class JobCommands:
    """Answers command lines at a time."""

    def __init__(self, site: Site, work: Work | None = None) -> None:
        self._site = site
        self._work = work or Work(site)

    def __call__(self, argv: list[str], now: float) -> Reply:
        """Return what a command prints."""
        match argv:
            case [_, server, "get_param", "obdfilter.*.job_stats", "mdt.*.job_stats"] if server in SERVERS:
                how = fault(self._site, server, now)
                if how is not None:
                    return Reply(hangs=True) if how == "hang" else Reply(255, stderr="Permission denied (publickey).")
                # Each server has one sort of targets, and lctl complains about the other.
                return Reply(2, "".join(self.stats(server, now)), "error: get_param: param_path: No such file or directory")
            case [_, server, "get_param", "obdfilter.*.job_cleanup_interval", "mdt.*.job_cleanup_interval"] if server in SERVERS:
                lines = (f"{_path(target)}.job_cleanup_interval={self._work.cleanup}\n" for target in self._targets(server, now))
                return Reply(0, "".join(lines))
            case _:
                return Reply(2, stderr=f"the simulator knows no {' '.join(argv)}")

    def stats(self, server: str, now: float) -> Iterator[str]:
        """Yield the text of each target of a server at a time, and the jobs in it."""
        for target in self._targets(server, now):
            yield f"{_path(target)}.job_stats=\njob_stats:\n"
            for life, row in self._work.listed(target, now):
                yield block(life, row)

    def _targets(self, server: str, now: float) -> list[str]:
        return [target for target in self._work.targets if self._work.server(target, now) == server]


@lru_cache(maxsize=1 << 14)
def block(life: Life, row: int) -> str:
    """Return a job as Lustre 2.15 prints it: the same text until it does something.

    The fraction of the time of its last operation is the number of operations before that one.
    """
    lines = [
        f"- job_id:          {life.identity}" if ":" not in life.identity else f'- job_id:          "{life.identity}"',
        f"  snapshot_time:   {life.times[row]}.{row:09d} secs.nsecs",
        f"  start_time:      {life.begins[row]}.000000000 secs.nsecs",
    ]
    for name, (samples, total) in zip(life.operations, life.counts[row].tolist(), strict=True):
        unit = "bytes" if name.endswith("_bytes") else "usecs"
        least = min(samples, 1)
        numbers = f"min: {least:8}, max: {total:8}, sum: {total:16}, sumsq: {total * total % 2**64:18}"
        lines.append(f"  {name + ':':16} {{ samples: {samples:11}, unit: {unit}, {numbers} }}")
    return "\n".join(lines) + "\n"


def _path(target: str) -> str:
    return f"{'mdt' if '-MDT' in target else 'obdfilter'}.{target}"
