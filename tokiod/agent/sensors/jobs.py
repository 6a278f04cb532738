"""The jobs of this node, by their cgroups.

inotify reports a new cgroup, the end of a job's last process (`populated 0` in cgroup.events, v2) and the removal of the cgroup. So no
sample searches the tree, and a job that lives between two samples is measured too: the counters are read at once when its last process has
ended. Where the cgroup is removed before that, and on v1, which reports no such end, the CPU time is what its parent had counted of it
(tokiod.agent.removed_cgroups); the other metrics are those of the last sample, of 1 s before the end at the most.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tokiod.agent.configured_events import JOB_EVENTS, ConfiguredEvents
from tokiod.agent.inotify import CREATE, DELETE, IGNORED, MODIFY, ONLYDIR, OVERFLOW, Inotify
from tokiod.agent.job_cgroup import CPU, METRICS, JobCgroup
from tokiod.agent.job_patterns import job_of
from tokiod.agent.removed_cgroups import ChildRemoved, RemovedChildren
from tokiod.agent.sensor import TICK_SECONDS, Absent, JobEnd, Readings, Sensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.agent.tree import Tree

FULL_SECONDS = 10.0
"""Between two readings of all files of a job; CPU time and memory are read each time."""
RESCAN_SECONDS = 10.0
"""Between two searches of the tree, when inotify has no watches left."""
MAX_SETTLING = 10
"""Attempts to learn of all cgroups that were removed together; the next sample continues with the rest."""
MAX_DEPTH = 8
MAX_JOBS = 4096
"""Of a node. A scheduler that leaves its cgroups must not use up the descriptors."""

FIRST_USER = 1000
"""The first uid that systems give to people. Their cgroups may have any name, also that of another one's job."""

_V2 = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_V1 = ("sys/fs/cgroup", "dev/oar_cgroups_links")


class Jobs(Sensor):
    """A job's name is SCHEDULER:ID."""

    name = "jobs"
    metrics = (*METRICS, *JOB_EVENTS.values())
    period = 1.0

    def __init__(self, tree: Tree, events: Sequence[str] = ()) -> None:
        """events: names of perf events that are counted of each job."""
        super().__init__(tree)
        self.metrics = (*METRICS, *(JOB_EVENTS[name] for name in events))
        self._events = ConfiguredEvents(tree, events)
        self.jobs: dict[str, JobCgroup] = {}
        self._roots: list[tuple[int, str]] = []
        self._inotify: Inotify | None = None
        self._directories: dict[int, tuple[int, str]] = {}
        self._watched: dict[str, int] = {}
        self._populations: dict[int, str] = {}
        self._parents: dict[str, RemovedChildren] = {}
        self._removed: dict[str, list[JobCgroup | None]] = {}
        self._is_blind = self._has_begun = False
        self._scanned = self._full = float("-inf")

    def find(self) -> None:
        if not self._roots:
            v2 = [(2, root) for root in _V2 if self.tree.exists(f"{root}/cgroup.controllers")]
            v1 = [(1, root) for root in _V1 if self.tree.exists(f"{root}/cpuacct")]
            self._roots = v2 + v1
        if not self._roots:
            raise Absent("no cgroup hierarchy in /sys/fs/cgroup")
        self._events.find()

    def fileno(self) -> int | None:
        return self._inotify.fileno() if self._inotify else None

    def sample(self, readings: Readings, now: float) -> None:
        self._events.report(readings)
        self.heed(readings, now)
        if self._is_blind and now - self._scanned >= RESCAN_SECONDS:
            self._scan(readings, now)
        # Samples are due by the clock of the rows, which runs not quite as this one.
        is_full = now - self._full >= FULL_SECONDS - 1.5 * TICK_SECONDS
        if is_full:
            self._full = now
        for path, job in list(self.jobs.items()):
            if self._is_blind:
                self._look_at_population(readings, job)
            if not job.is_exact:
                job.read(readings, is_full=is_full)
            if not job.is_gone:
                for metric, value in job.fresh.items():
                    readings.add_job(job.job, "", metric, value)
            elif self._is_blind or not self.tree.exists(path):
                # Otherwise inotify is about to report it.
                self._remove(path)
        self._settle(readings, now)

    def read_ahead(self, now: float, *, is_rare: bool) -> bool:
        # inotify's events are not looked for: a caller that reads ahead waits for fileno(), too.
        if is_rare or self._inotify is None or self._is_blind or self._removed:
            return False
        for job in self.jobs.values():
            if not job.is_exact:
                job.read_ahead()
        return True

    def understand(self, readings: Readings) -> None:
        for job in self.jobs.values():
            job.understand(readings)
            for metric, value in job.fresh.items():
                readings.add_job(job.job, "", metric, value)

    def heed(self, readings: Readings, now: float) -> None:
        """Take what inotify reports: it must be called soon after `fileno()` becomes readable."""
        if self._inotify is None:
            self._begin(readings, now)
            return
        for _ in range(MAX_SETTLING):
            self._take_events(readings, now)
            if self._settle(readings, now):
                return

    def _take_events(self, readings: Readings, now: float) -> bool:
        """Take the events that are there; return whether there was any."""
        events = list(self._inotify.events()) if self._inotify is not None else []
        for number, mask, name in events:
            if mask & OVERFLOW:
                readings.drop("events lost", "inotify's queue was full")
                self._scan(readings, now)
            elif number in self._populations:
                self._heed_population(readings, number, mask)
            elif number in self._directories:
                self._heed_directory(readings, now, number, mask, name)
        return bool(events)

    def close(self) -> None:
        for job in self.jobs.values():
            job.close()
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _begin(self, readings: Readings, now: float) -> None:
        with readings:
            self._inotify = Inotify()
        self._is_blind = self._inotify is None
        self._scan(readings, now)
        self._has_begun = True

    def _scan(self, readings: Readings, now: float) -> None:
        self._scanned = now
        for version, root in self._roots:
            self._enter(readings, now, version, root if version == 2 else f"{root}/cpuacct")  # noqa: PLR2004 - cgroup v2

    def _enter(self, readings: Readings, now: float, version: int, directory: str) -> None:
        """Watch a directory and look at what is in it already, in this order: what comes between is seen twice, never missed."""
        if directory.count("/") > MAX_DEPTH + 3:
            return
        self._watch(readings, version, directory)
        try:
            with os.scandir(self.tree.path(directory)) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            # Removed again meanwhile; a directory that may not be read has no jobs for us.
            return
        for name in names:
            self._meet(readings, now, version, f"{directory}/{name}")

    def _meet(self, readings: Readings, now: float, version: int, directory: str) -> None:
        if directory in self.jobs or directory in _V2:
            return
        found = job_of(directory)
        if self._is_of_user(directory):
            if found:
                readings.drop("cgroup of a user", directory)
        elif found is None:
            self._enter(readings, now, version, directory)
        elif len(self.jobs) >= MAX_JOBS:
            readings.drop("too many jobs", directory)
        else:
            self._add(readings, now, version, directory, ":".join(found))

    def _is_of_user(self, directory: str) -> bool:
        """Return whether a user owns a cgroup, as those below user@UID.service: a scheduler's belong to the system."""
        try:
            owner = os.stat(self.tree.path(directory)).st_uid
        except OSError:
            return False
        return owner >= FIRST_USER and owner != os.geteuid()

    def _add(self, readings: Readings, now: float, version: int, directory: str, job: str) -> None:
        if version == 2:  # noqa: PLR2004 - cgroup v2
            added = JobCgroup.v2(self.tree, job, directory)
            with readings:
                if self._inotify is not None:
                    added.watch = self._inotify.watch(self.tree.path(f"{directory}/cgroup.events"), MODIFY)
                    self._populations[added.watch] = directory
        else:
            root, _, below = directory.partition("/cpuacct/")
            added = JobCgroup.v1(self.tree, job, root, below)
        if not self._events.absent:
            with readings:
                # On v1 a hierarchy of its own, in which few schedulers make cgroups.
                counted = directory if version == 2 else f"{root}/perf_event/{below}"  # noqa: PLR2004 - cgroup v2
                added.counts = self._events.opened(self.tree.path(counted))
        added.read(readings, is_full=True)
        self.jobs[directory] = added
        if self._has_begun:
            readings.begun.add(job)
        if (parent := os.path.dirname(directory)) not in self._parents:
            self._parents[parent] = RemovedChildren(self.tree, parent, version)
            self._removed.setdefault(parent, [])
        if not added.is_gone:
            self._look_at_population(readings, added)

    def _heed_population(self, readings: Readings, number: int, mask: int) -> None:
        directory = self._populations[number]
        if mask & IGNORED:
            del self._populations[number]
        elif job := self.jobs.get(directory):
            self._look_at_population(readings, job)

    def _look_at_population(self, readings: Readings, job: JobCgroup) -> None:
        """Read the job's counters for the last time if its last process has ended; an empty cgroup that used no CPU has not begun.

        What it used is that of a reading before: where its first process comes just now, the reading below has a part of what it uses.
        """
        job.has_run = job.has_run or bool(job.last.get(CPU))
        job.is_exact = False
        try:
            is_populated = job.is_populated()
        except OSError:
            # Removed, and something had changed since the last look: processes may have come and ended again.
            return
        except ValueError as error:
            readings.drop("malformed", f"cgroup.events of {job.job}: {error}")
            return
        if is_populated:
            job.has_run = True
            return
        job.read(readings, is_full=True)
        job.is_exact = job.has_run and not job.is_gone

    def _heed_directory(self, readings: Readings, now: float, number: int, mask: int, name: str) -> None:
        version, directory = self._directories[number]
        if mask & IGNORED:
            del self._directories[number]
            if self._watched.get(directory) == number:
                del self._watched[directory]
        elif mask & CREATE:
            self._meet(readings, now, version, f"{directory}/{name}")
        elif mask & DELETE:
            self._remove(f"{directory}/{name}")

    def _remove(self, path: str) -> None:
        """Note that a cgroup is removed; another child of a parent of jobs counts too."""
        job = self.jobs.pop(path, None)
        if self._inotify is not None and (number := self._watched.pop(path, None)) is not None:
            self._inotify.unwatch(number)
            self._directories.pop(number, None)
        if (parent := os.path.dirname(path)) in self._parents:
            self._removed.setdefault(parent, []).append(job)

    def _settle(self, readings: Readings, now: float) -> bool:
        """Report the jobs that are removed; return whether all are.

        If one of those removed together was not read after its end, its parent knows what it used; of several it knows the sum alone.
        Those that were removed until the parent was read are removed together: their events are taken before the sum is divided.
        """
        read = [parent for parent in self._removed if self._read_removed(parent)]
        if read and self._take_events(readings, now):
            return False
        for parent in read:
            growth, removed = self._parents[parent].growth(), self._removed.pop(parent)
            missed = [job for job in removed if job is None or not job.is_exact]
            if growth is not None and len(missed) == 1 and missed[0] is not None:
                known = sum(job.last[CPU] for job in removed if job is not None and job.is_exact)
                missed[0].last[CPU] = max(growth - known, missed[0].last.get(CPU, 0))
                missed[0].is_exact = True
            for job in removed:
                if job is not None:
                    self._end(readings, job)
            if not self.tree.exists(parent):
                del self._parents[parent]
        return not self._removed

    def _read_removed(self, parent: str) -> bool:
        """Read what the removed children of a parent have used; return False if one was removed whose event is still to come."""
        known = {os.path.basename(path) for path in self.jobs if os.path.dirname(path) == parent}
        try:
            self._parents[parent].read(known)
        except ChildRemoved:
            return False
        return True

    def _end(self, readings: Readings, job: JobCgroup) -> None:
        job.read_counts(readings)
        job.close()
        if self._inotify is not None and job.watch is not None:
            self._inotify.unwatch(job.watch)
            self._populations.pop(job.watch, None)
        if not job.is_exact:
            readings.drop("end of a job not sampled", job.job)
        readings.ended.append(JobEnd(job.job, job.is_exact, {metric.name: value for metric, value in job.last.items()}))

    def _watch(self, readings: Readings, version: int, directory: str) -> None:
        if self._inotify is None or directory in self._watched:
            return
        try:
            number = self._inotify.watch(self.tree.path(directory), CREATE | DELETE | ONLYDIR)
        except FileNotFoundError:
            return
        except OSError as error:
            self._is_blind = True
            readings.drop("no inotify watch", f"{directory}: {error.strerror}")
            return
        self._directories[number] = (version, directory)
        self._watched[directory] = number
