"""Days of the job table by its own writer, of polls in plain dictionaries, and what jobs did in a span by the same dictionaries."""

import random
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np

from tokiod.jobs.table import JobTable
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import JOB_COLUMNS, JOB_TABLE, Collected, TableRows, WindowMeta, job_key

DAY = 1_723_075_200
BILLION = 10**9
OPERATIONS = ("open.samples", "close.samples", "read_bytes.samples", "read_bytes.sum", "write_bytes.samples", "write_bytes.sum")


def polled(time, target, key, begin, counts, ended=0):
    """Return one row as a dictionary. begin: epoch seconds, None where unknown."""
    began = -1 if begin is None else begin * BILLION
    return {"time": time, "target": target, "job": key, "begin": began, "last": time * BILLION, "ended": ended, **counts}


class JobDays:
    """A table below a directory, and the rows that it holds."""

    def __init__(self, root, system="fs", zone="UTC", window=60):
        self.root, self.system, self.window, self.rows = root, system, window, []
        self.clock = FakeClock(DAY)
        self.table = JobTable(root, Calendar(zone), self.clock, inline=True)

    def store(self, *rows, source="jobs", late=frozenset(), answered=()):
        """Store rows in the windows of their times, and an empty window for each other time that is given.

        late: times of rows that stand in the window after theirs; answered: targets that did, also without rows.
        """
        self.rows += [row for row in rows if isinstance(row, dict)]
        windows = defaultdict(list)
        for row in rows:
            time = row["time"] if isinstance(row, dict) else row
            windows[time - time % self.window + (time in late) * self.window] += [row] if isinstance(row, dict) else []
        for start, found in windows.items():
            meta = WindowMeta(source, "lustre_jobstats", self.system, Window(start, start + self.window))
            self.table.apply(Collected(meta, (), [replace(as_rows(found), polled=answered)]))
        assert self.table.commit() == []

    def merged(self, until):
        """Merge what is due at a time."""
        self.clock.jump(until - self.clock.time())
        for _ in range(400):
            self.table._checked = float("-inf")
            before = sorted(self.root.rglob("*.jobs"))
            self.table.run()
            self.table.run()
            if sorted(self.root.rglob("*.jobs")) == before:
                return

    def done(self, start, end):
        """{(job, target): {count: done in the span}} by the stored rows, one after the other."""
        return done(self.rows, start, end)


def as_rows(found):
    names = [name for name in dict.fromkeys(name for row in found for name in row) if name not in JOB_COLUMNS]

    def column(name):
        if name in {"target", "job"}:
            return np.array([row[name] for row in found] or [b""], "S")[: len(found)]
        return np.array([row.get(name, 0) for row in found], np.int64)

    return TableRows(JOB_TABLE, (*JOB_COLUMNS, *names), tuple(map(column, (*JOB_COLUMNS, *names))))


def done(rows, start, end):
    """What the counts of rows grew by in [start, end), by poll, with restarts where they began later or fell."""
    found, last = defaultdict(Counter), {}
    for row in sorted(rows, key=lambda row: row["time"]):
        key = row["job"], row["target"]
        counts = {name: value for name, value in row.items() if name not in JOB_COLUMNS}
        before = last.get(key)
        if before is None:
            grown = counts if row["begin"] >= 0 else {}
        else:
            fell = any(counts.get(name, 0) < value for name, value in before.items() if name not in JOB_COLUMNS)
            restarts = row["begin"] > before["begin"] or fell or (before["ended"] and row["begin"] < 0)
            grown = counts if restarts else {name: value - before.get(name, 0) for name, value in counts.items()}
        last[key] = row
        if start <= row["time"] < end:
            found[key].update(grown)
    return {key: {name: value for name, value in counts.items() if value} for key, counts in found.items()}


def random_day(seed, start=DAY, hours=2.0, jobs=12, targets=3, *, has_begin=True):
    """Rows of jobs that come, go, idle, are removed and return, with lost polls; as a server prints them."""
    draw = random.Random(seed)
    rows, live, names = [], {}, [f"fs-OST{n:04x}".encode() for n in range(targets)]
    polls = range(int(start), int(start + hours * 3600), 60)
    lost = set(draw.sample(polls, len(polls) // 10))
    changed, idle = set(), Counter()
    for time in polls:
        for number in range(jobs):
            key = job_key(str(4000 + number % (jobs - 2)), str(1000 + number % 3), None, f"n{number}", f"{number:012x}")
            for target in names:
                pair = key, target
                if draw.random() < 0.3:
                    begin, counts = live.setdefault(pair, (time - draw.randrange(0, 50), Counter()))
                    counts.update({name: draw.randrange(1, 10**9) for name in draw.sample(OPERATIONS, 3)})
                    changed.add(pair)
                    idle[pair] = 0
                elif pair in live and (idle.update([pair]), idle[pair] > draw.randrange(3, 30))[1]:
                    begin, counts = live.pop(pair)
                    changed.discard(pair)
                    if time not in lost:
                        rows.append(polled(time + 5, target, key, begin if has_begin else None, dict(counts), ended=1))
        if time in lost:
            continue
        for key, target in changed:
            begin, counts = live[key, target]
            rows.append(polled(time + 6, target, key, begin if has_begin else None, dict(counts)))
        changed.clear()
    return rows
