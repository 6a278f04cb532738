"""A day of 2,000 jobs on a simulated file system, with targets that restart and move, and polls that are late, lost or not stored."""

import asyncio
import random
from collections import Counter, defaultdict

import job_rows
import numpy as np
import pytest

from collectors import lustre_jobstats
from collectors.lustre_jobstats import changes
from tokiod.analysis.top import top
from tokiod.collector import Site as CollectorSite
from tokiod.jobs.identity import JobIdentities
from tokiod.jobs.rows import read
from tokiod.jobs.span import Days
from tokiod.jobs.table import JobTable
from tokiod.reader.span import Span
from tokiod.simulator.jobs.expected import Polls, compare_jobs, counts_of, id_of
from tokiod.simulator.jobs.work import SERVERS, JobCommands, Work
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
    """A day that is polled. polled: times of the polls of which a window was stored, or that a later window has; starts: of collectors."""

    def __init__(self, directory, seed):
        self.chance = random.Random(seed)
        site = Site(epoch=DAY - 6 * 3600, seed=seed, osts=3, osss=2, mdts=1, moment=60, failing=False)
        self.work = Work(site, JOBS_AN_HOUR)
        self.clock = FakeClock(DAY)
        self.calendar = Calendar("UTC")
        self.table = JobTable(directory / "jobs", self.calendar, self.clock, inline=True)
        self.stored, self.polled, self.dropped = [], [], Counter()
        self.starts = []

    def collector(self):
        config = lustre_jobstats.Config(name="jobs", kind="lustre_jobstats", system="fs", servers=SERVERS, jobid_name=("%j:%u:%H", "%e.%u"))
        made = lustre_jobstats.live(config, CollectorSite(self.calendar, self.clock))
        made._commands = Commands(self.work, self.clock)
        return made

    async def run(self):
        identities, collector, waiting, is_down = JobIdentities("names", b"k"), self.collector(), [], True
        for number in range(1440):
            window = Window(DAY + 60 * number, DAY + 60 * number + 60)
            if any(begin <= 60 * number < begin + length for begin, length in OUTAGES):
                collector, waiting, is_down = self.collector(), [], True
                continue
            if self.chance.random() < 0.02:
                continue  # the poll is lost
            self.clock._time = window.start + self.chance.choice((1, 2, 30, 59))
            if is_down:
                self.starts.append(int(self.clock.time()))
                is_down = False
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


def unseen_ends(life, polled):
    """Yield what no poll saw of a job on a target: (poll before, poll after, begin of its counts, when the target forgot them)."""
    for begin in np.unique(life.begins).tolist():
        *_, last = np.flatnonzero(life.begins == begin).tolist()
        after = int(np.searchsorted(polled, life.times[last]))
        if 0 < after < len(polled) and polled[after] >= life.until[last]:
            yield polled[after - 1], polled[after], begin, int(life.until[last])


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    made = Day(tmp_path_factory.mktemp("day"), seed=1)
    asyncio.run(made.run())
    return made


def lives_of(day):
    return [life for life in day.work.lives(DAY, DAY + 86400) if life.times[-1] >= DAY]


def test_every_jobs_bytes_and_operations_are_the_truth_but_for_what_no_poll_could_see(day):
    compared = compare_jobs(day.work, day.directories(), Polls(day.stored))
    assert compared.equal, compared.differences[:5]
    rows = read(day.directories(), DAY, DAY + 86400)
    found = defaultdict(Counter)
    for (target, key), counts in job_rows.totals(rows).items():
        found[target, id_of(key)].update(counts)
    lives = lives_of(day)
    assert len({life.identity for life in lives}) >= 2000
    for life in lives:
        wanted = counts_of(life.operations, seen(life, day.polled))
        assert {name: n for name, n in found[life.target, life.identity].items() if n} == {name: n for name, n in wanted.items() if n}
    assert all(job_parts(key)["user"] for key in rows.jobs.tolist())


def test_what_no_poll_could_see_is_bounded_by_the_next_poll_and_counted_or_in_a_lost_window(day):
    missing = Counter()
    for life in lives_of(day):
        for before, after, begin, forgotten in unseen_ends(life, day.polled):
            is_restarted = life.times[life.begins == begin][-1] + day.work.cleanup > forgotten
            assert after - before > day.work.cleanup or is_restarted
            is_down = any(before < start <= after for start in day.starts)
            missing["down" if is_down else "counted" if begin <= before else "unknown"] += 1
            if is_down:
                assert any(window not in day.stored for window in windows(before, after))
    # Reasons: a target or its server restarted, or polls were further apart than job_cleanup_interval. No poll ever saw an unknown job.
    counted = sum(day.dropped[reason] for reason in (changes.RESTARTED, changes.MISSING_EARLY, changes.UNSEEN_END))
    assert 0 < missing["counted"] <= counted
    assert missing["unknown"] < 0.1 * missing["counted"]
    assert missing["down"] > 0


def test_top_names_the_offender_of_each_hour_within_two_windows(day):
    named = 0
    for hour in range(DAY, DAY + 86400, 2 * 3600):
        begin = hour + 120  # the counts of an hour's first window are polled in the next one
        if any(window not in day.stored for window in windows(hour, begin + 60)):
            continue
        found = top(Days((day.table.root,), "fs"), Span(begin - 60, begin + 60), "write", "names")
        assert found.lines[0].job == id_of_job(day.work.offender(hour))
        named += 1
    assert named > 6


def windows(start, end):
    """Return the windows that a span has a part of."""
    return [Window(time, time + 60) for time in range(start - start % 60, end, 60)]


def id_of_job(identity):
    return identity.partition(":")[0]
