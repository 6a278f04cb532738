"""A day of 2,000 jobs on a simulated file system, with targets that restart and move, and polls that are late, lost or not stored."""

import asyncio
import random
from collections import Counter, defaultdict

import job_rows
import numpy as np

from collectors import lustre_jobstats
from collectors.lustre_jobstats import changes
from tokiod.collector import Site as CollectorSite
from tokiod.jobs.identity import JobIdentities
from tokiod.jobs.rows import read
from tokiod.jobs.table import JobTable
from tokiod.simulator.jobs.commands import JobCommands
from tokiod.simulator.jobs.expected import Polls, compare_jobs, counts_of, id_of
from tokiod.simulator.jobs.work import SERVERS, Work
from tokiod.simulator.site import Site
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta, job_parts

DAY = 1_723_075_200
JOBS_AN_HOUR = 120
OUTAGES = ((4 * 3600, 1500), (9 * 3600, 400), (15 * 3600, 5400))
"""Seconds of the day at which the collectors are down, and for how long: shorter and longer than job_cleanup_interval."""


class Commands:
    """lctl on the servers, without processes."""

    def __init__(self, work, clock):
        self.answers, self.clock = JobCommands(work.site, work), clock

    async def job_stats(self):
        return {server: "".join(self.answers.stats(server, self.clock.time())).encode() for server in SERVERS}

    async def cleanup_intervals(self, _server):
        return {}

    async def close(self):
        pass


class Day:
    """A day that is polled. polled: times of the polls of which a window was stored, or that a later window has."""

    def __init__(self, directory, seed):
        self.chance = random.Random(seed)
        site = Site(epoch=DAY - 6 * 3600, seed=seed, osts=3, osss=2, mdts=1, moment=60, failing=False)
        self.work = Work(site, JOBS_AN_HOUR)
        self.clock = FakeClock(DAY)
        self.calendar = Calendar("UTC")
        self.table = JobTable(directory / "jobs", self.calendar, self.clock, inline=True)
        self.stored, self.polled, self.dropped = [], [], Counter()

    def collector(self):
        config = lustre_jobstats.Config(name="jobs", kind="lustre_jobstats", system="fs", servers=SERVERS, jobid_name=("%j:%u:%H", "%e.%u"))
        made = lustre_jobstats.live(config, CollectorSite(self.calendar, self.clock))
        made._commands = Commands(self.work, self.clock)
        return made

    async def run(self):
        identities, collector, waiting = JobIdentities("names", b"k"), self.collector(), []
        for number in range(1440):
            window = Window(DAY + 60 * number, DAY + 60 * number + 60)
            if any(begin <= 60 * number < begin + length for begin, length in OUTAGES):
                collector, waiting = self.collector(), []
                continue
            if self.chance.random() < 0.02:
                continue  # the poll is lost
            self.clock._time = window.start + self.chance.choice((1, 2, 30, 59))
            waiting.append(int(self.clock.time()))
            data = await collector.collect(window)
            self.dropped.update(data.dropped)
            if self.chance.random() < 0.03 and number < 1430:
                continue  # the window is not stored
            meta = WindowMeta("jobs", "lustre_jobstats", "fs", window)
            self.table.apply(identities.applied(Collected(meta, (), data.tables)))
            assert self.table.commit() == []
            collector.note_stored(window)
            self.stored.append(window)
            self.polled += waiting
            waiting = []
            self.table.run()

    def directories(self):
        return sorted((self.table.root / "fs").iterdir())


def seen(life, polled):
    """Return what polls saw of a job on a target, summed over the times that its counts began."""
    rows = np.searchsorted(life.times, polled, side="right") - 1
    rows = rows[(rows >= 0) & (np.array(polled) < life.until[rows])]
    last = {int(life.begins[row]): life.counts[row] for row in np.unique(rows)}
    return sum(last.values(), np.zeros_like(life.total))


def test_every_jobs_bytes_and_operations_are_the_truth_but_for_what_no_poll_could_see(tmp_path):
    day = Day(tmp_path, seed=1)
    asyncio.run(day.run())
    compared = compare_jobs(day.work, day.directories(), Polls(day.stored))
    assert compared.equal, compared.differences[:5]
    rows = read(day.directories(), DAY, DAY + 86400)
    found = defaultdict(Counter)
    for (target, key), counts in job_rows.totals(rows).items():
        found[target, id_of(key)].update(counts)
    lives = [life for life in day.work.lives(DAY, DAY + 86400) if life.times[-1] >= DAY]
    assert len({life.identity for life in lives}) >= 2000
    unseen = 0
    for life in lives:
        known = seen(life, day.polled)
        wanted = counts_of(life.operations, known)
        assert {name: n for name, n in found[life.target, life.identity].items() if n} == {name: n for name, n in wanted.items() if n}
        unseen += bool((known != life.total).any())
    # Counted: what was done between a last poll and a restart, or while polls were further apart than job_cleanup_interval.
    reasons = changes.RESTARTED, changes.MISSING_EARLY, changes.UNSEEN_END
    counted = sum(day.dropped[reason] for reason in reasons)
    assert 0 < unseen < 0.2 * len(lives)
    assert counted > 0
    assert all(job_parts(key)["user"] for key in rows.jobs.tolist())
