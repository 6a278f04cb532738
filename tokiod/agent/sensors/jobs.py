"""The jobs of this node, by their cgroups.

inotify reports a new cgroup, the end of a job's last process (`populated 0` in cgroup.events, v2) and the removal of the cgroup. So no
sample searches the tree, and a job that lives between two samples is measured too: the counters are read at once when its last process has
ended. Where the cgroup is removed before that, and on v1, which reports no such end, the CPU time is what its parent had counted of it
(tokiod.agent.removed_cgroups); the other metrics are those of the last sample, of 1 s before the end at the most.

A job has one name, one JobCgroup and one end, in however many hierarchies its cgroups are. One that ran and is empty has ended, also where
its scheduler leaves the cgroup behind; what runs there later is another life of it, whose counters begin at zero.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tokiod.agent.cgroup_watches import LOST, MADE, POPULATION, CgroupWatches
from tokiod.agent.configured_events import JOB_EVENTS, ConfiguredEvents
from tokiod.agent.hierarchies import Hierarchy, found_in, hierarchies
from tokiod.agent.job_cgroup import CPU, METRICS, JobCgroup, cpu_parser
from tokiod.agent.removed_cgroups import ENOUGH_SECONDS, ChildRemoved, RemovedChildren
from tokiod.agent.sensor import TICK_SECONDS, Absent, JobEnd, Readings, Sensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.agent.job_patterns import Forms
    from tokiod.agent.tree import Tree

FULL_SECONDS = 10.0
"""Between two readings of all files of a job; CPU time and memory are read each time."""
RESCAN_SECONDS = 10.0
"""Between two searches of the tree, when inotify has no watches left."""
MAX_SETTLING = 10
"""Attempts to learn of all cgroups that were removed together; the next sample continues with the rest."""
ELSEWHERE_SECONDS = 5.0
"""After which a job that is in v1's other hierarchies counts as one that is not in cpuacct: schedulers make its cgroups one by one."""
EMPTY_SECONDS = 5.0
"""After which a job that ran and is empty has ended, though its cgroup stays: schedulers remove most at once, and some run a job's parts
one after the other."""
MAX_DEPTH = 9
MAX_JOBS = 4096
"""That run on a node, because of their descriptors."""

SECOND_CGROUP = "second cgroup of a job"
LEFT_BEHIND = "cgroup left behind by a job"
NO_CPU = "job without a cgroup in cpuacct"
_WHY_NO_CPU = {"slurm": f"{NO_CPU}: JobAcctGatherType is not jobacct_gather/cgroup"}


class Jobs(Sensor):
    """A job's name is SCHEDULER:ID."""

    name = "jobs"
    metrics = (*METRICS, *JOB_EVENTS.values())
    period = 1.0

    def __init__(self, tree: Tree, events: Sequence[str] = (), forms: Forms = ()) -> None:
        """events: names of perf events that are counted of each job; forms: the site's own of jobs' cgroups."""
        super().__init__(tree)
        self.metrics = (*METRICS, *(JOB_EVENTS[name] for name in events))
        self._events = ConfiguredEvents(tree, events)
        self._forms = forms
        self.jobs: dict[str, JobCgroup] = {}
        self._ended: dict[str, JobCgroup] = {}
        self._named: dict[str, tuple[str, Hierarchy]] = {}
        self._bare: dict[str, str] = {}
        self._elsewhere: dict[str, tuple[float, Hierarchy]] = {}
        self._counted: set[str] = set()
        self._hierarchies: dict[str, Hierarchy] = {}
        self._controllers: dict[str, str] = {}
        self._parents: dict[str, RemovedChildren] = {}
        self._removed: dict[str, list[JobCgroup | None]] = {}
        self._watches = CgroupWatches(tree)
        self._has_begun = False
        self._scanned = self._full = float("-inf")

    def find(self) -> None:
        if not self._hierarchies:
            found, self._controllers = hierarchies(self.tree)
            self._hierarchies = {one.root: one for one in found}
        if not self._hierarchies:
            raise Absent("no cgroup hierarchy in /sys/fs/cgroup")
        self._events.find()

    def fileno(self) -> int | None:
        return self._watches.fileno()

    def sample(self, readings: Readings, now: float) -> None:
        self._events.report(readings)
        self.heed(readings, now)
        if self._watches.is_blind and now - self._scanned >= RESCAN_SECONDS:
            self._scan(readings, now)
        # Samples are due by the clock of the rows, which runs not quite as this one.
        is_full = now - self._full >= FULL_SECONDS - 1.5 * TICK_SECONDS
        if is_full:
            self._full = now
            self._look_at_ended(readings)
        self._meet_elsewhere(readings, now)
        for job in list(self.jobs.values()):
            # One that came and ended since the sample before was not known to have run when it was looked at.
            if self._watches.is_blind or (is_full and job.watch is None) or (job.has_used() and not job.has_run):
                self._look_at_population(readings, job)
            if not job.is_exact:
                job.read(readings, is_full=is_full)
            self._report(readings, job, now)
        self._settle(readings, now)

    def _report(self, readings: Readings, job: JobCgroup, now: float) -> None:
        job.empty_since = min(job.empty_since, now) if job.is_exact else float("inf")
        if now - job.empty_since >= EMPTY_SECONDS:
            self._look_at_population(readings, job)
        if now - job.empty_since >= EMPTY_SECONDS:
            self._rest(readings, job)
        elif not job.is_gone:
            for metric, value in job.since_begin(job.fresh).items():
                readings.add_job(job.job, "", metric, value)
        elif self._watches.is_blind or not self.tree.exists(job.path):
            # Otherwise inotify is about to report it.
            self._remove(readings, job.path)

    def read_ahead(self, now: float, *, is_rare: bool) -> bool:
        # inotify's events are not looked for: a caller that reads ahead waits for fileno(), too.
        if is_rare or not self._has_begun or self._watches.is_blind or self._removed:
            return False
        for job in self.jobs.values():
            if job.is_exact:
                # It ends soon.
                return False
            job.read_ahead()
        return True

    def understand(self, readings: Readings) -> None:
        for job in self.jobs.values():
            job.understand(readings)
            for metric, value in job.since_begin(job.fresh).items():
                readings.add_job(job.job, "", metric, value)

    def heed(self, readings: Readings, now: float) -> None:
        """Take what inotify reports: it must be called soon after `fileno()` becomes readable."""
        if not self._has_begun:
            self._watches.begin(readings)
            self._scan(readings, now)
            self._has_begun = True
            return
        for _ in range(MAX_SETTLING):
            self._take_events(readings, now)
            if self._settle(readings, now):
                return

    def _take_events(self, readings: Readings, now: float) -> bool:
        """Take the events that are there; return whether there was any."""
        changes = list(self._watches.changes())
        for change, hierarchy, cgroup in changes:
            if hierarchy is None or change == LOST:
                readings.drop("events lost", "inotify's queue was full")
                self._scan(readings, now)
            elif change == POPULATION:
                self._heed_population(readings, cgroup)
            elif change == MADE:
                self._meet(readings, now, hierarchy, cgroup)
            else:
                self._counted.discard(cgroup[len(hierarchy.root) :])
                self._remove(readings, cgroup)
        return bool(changes)

    def close(self) -> None:
        for job in self.jobs.values():
            job.close()
        self._watches.close()

    def _scan(self, readings: Readings, now: float) -> None:
        self._scanned = now
        for path in [path for path in self._ended if not self.tree.exists(path)]:
            self._remove(readings, path)
        self._counted = {below for below in self._counted if any(self.tree.exists(root + below) for root in self._hierarchies)}
        for hierarchy in self._hierarchies.values():
            self._enter(readings, now, hierarchy, hierarchy.root)

    def _enter(self, readings: Readings, now: float, hierarchy: Hierarchy, directory: str) -> None:
        """Watch a directory and look at what is in it already, in this order: what comes between is seen twice, never missed."""
        if directory.count("/") > hierarchy.root.count("/") + MAX_DEPTH:
            return
        self._watches.enter(readings, hierarchy, directory)
        try:
            with os.scandir(self.tree.path(directory)) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            # Removed again meanwhile; a directory that may not be read has no jobs for us.
            return
        for name in names:
            self._meet(readings, now, hierarchy, f"{directory}/{name}")

    def _meet(self, readings: Readings, now: float, hierarchy: Hierarchy, directory: str) -> None:
        if directory in self.jobs or directory in self._ended or directory in self._hierarchies:
            return
        found = found_in(self.tree, directory, self._forms)
        if found.reason:
            self._count(readings, found.reason, hierarchy, directory)
        if found.job:
            self._meet_job(readings, now, hierarchy, directory, found.job)
        elif found.may_have_jobs:
            self._enter(readings, now, hierarchy, directory)

    def _meet_job(self, readings: Readings, now: float, hierarchy: Hierarchy, directory: str, job: str) -> None:
        if job in self._named:
            self._join(readings, hierarchy, directory, job)
        elif not hierarchy.has_cpu and self._has_begun and now - self._elsewhere.get(directory, (now,))[0] < ELSEWHERE_SECONDS:
            self._elsewhere.setdefault(directory, (now, hierarchy))
        elif len(self.jobs) >= MAX_JOBS:
            self._count(readings, "too many jobs", hierarchy, directory)
        else:
            self._add(readings, hierarchy, directory, job)

    def _meet_elsewhere(self, readings: Readings, now: float) -> None:
        """Meet again the jobs that were seen in a hierarchy without CPU time and may be in the one that has it by now."""
        for directory, (since, hierarchy) in list(self._elsewhere.items()):
            if now - since >= ELSEWHERE_SECONDS:
                if self.tree.exists(directory):
                    self._meet(readings, now, hierarchy, directory)
                del self._elsewhere[directory]

    def _count(self, readings: Readings, reason: str, hierarchy: Hierarchy, directory: str) -> None:
        """Count a cgroup that gives no job, once in all hierarchies."""
        below = directory[len(hierarchy.root) :]
        if below not in self._counted:
            self._counted.add(below)
            readings.drop(reason, directory)

    def _add(self, readings: Readings, hierarchy: Hierarchy, directory: str, job: str) -> None:
        added = self._opened(readings, hierarchy, directory, job)
        self._named[job] = directory, hierarchy
        if not added.has_cpu:
            self._count(readings, _WHY_NO_CPU.get(job.partition(":")[0], NO_CPU), hierarchy, directory)
            if not added.has_files:
                self._bare[directory] = job
                return
        if self._has_begun:
            readings.begun.add(job)
        self._begin_life(readings, added)
        parent = os.path.dirname(directory)
        if added.has_cpu and parent not in self._parents:
            self._parents[parent] = RemovedChildren(self.tree, parent, hierarchy.version)
            self._removed.setdefault(parent, [])

    def _opened(self, readings: Readings, hierarchy: Hierarchy, directory: str, job: str) -> JobCgroup:
        """Return a job's cgroup, whose counters are read."""
        below = directory[len(hierarchy.root) + 1 :]
        if hierarchy.is_v2:
            added = JobCgroup.v2(self.tree, job, directory)
        else:
            added = JobCgroup.v1(self.tree, job, "", below, places=self._controllers, has_cpu=hierarchy.has_cpu)
        added.path, added.hierarchy = directory, hierarchy
        if not self._events.absent:
            with readings:
                # On v1 a hierarchy of its own, in which few schedulers make cgroups.
                root = hierarchy.root if hierarchy.is_v2 else self._controllers.get("perf_event", "sys/fs/cgroup/perf_event")
                added.counts = self._events.opened(self.tree.path(f"{root}/{below}"))
        # At the start all else is read once it is known whether the cgroup is empty, or by the sample that begins.
        added.read(readings, is_full=self._has_begun or not added.has_cpu)
        return added

    def _begin_life(self, readings: Readings, job: JobCgroup) -> None:
        self.jobs[job.path] = job
        if job.hierarchy.is_v2 and job.watch is None:
            job.watch = self._watches.follow(readings, job.hierarchy, job.path, job.path)
        if not job.is_gone:
            self._look_at_population(readings, job)

    def _join(self, readings: Readings, hierarchy: Hierarchy, directory: str, job: str) -> None:
        """Give a job what another hierarchy has of it. In one hierarchy it has one cgroup: its figures are those of the first."""
        path, first = self._named[job]
        known = self.jobs.get(path)
        if path == directory:
            return
        if hierarchy.root == first.root:
            self._count(readings, SECOND_CGROUP, hierarchy, directory)
        elif hierarchy.has_cpu and not first.has_cpu:
            # It came to the hierarchy with CPU time late.
            if (replaced := self._forget(path)) is not None:
                replaced.close()
            self._add(readings, hierarchy, directory, job)
        elif known is not None and hierarchy.is_v2 and known.events is None:
            known.events = self.tree.hold(f"{directory}/cgroup.events")
            known.watch = self._watches.follow(readings, hierarchy, directory, path)
        elif known is not None and first.is_v2 and not hierarchy.is_v2 and not known.is_joined:
            known.add_files(JobCgroup.v1(self.tree, job, "", directory[len(hierarchy.root) + 1 :], places=self._controllers))

    def _forget(self, path: str) -> JobCgroup | None:
        """Take a job out of what is known; return its cgroup if it has one that is read."""
        job = self.jobs.pop(path, None) or self._ended.pop(path, None)
        name = job.job if job else self._bare.pop(path, "")
        if self._named.get(name, ("",))[0] == path:
            del self._named[name]
        return job

    def _heed_population(self, readings: Readings, path: str) -> None:
        if job := self.jobs.get(path):
            self._look_at_population(readings, job)
        elif ended := self._ended.get(path):
            self._resume(readings, ended)

    def _look_at_population(self, readings: Readings, job: JobCgroup) -> None:
        """Read the job's counters for the last time if its last process has ended; an empty cgroup that used no CPU has not begun.

        What it used is that of a reading before: where its first process comes just now, the reading below has a part of what it uses.
        """
        job.has_run = job.has_run or job.has_used()
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
            job.has_run, job.empty_since = True, float("inf")
            return
        job.read(readings, is_full=True)
        job.is_exact = job.has_run and not job.is_gone
        if job.is_exact and not self._has_begun:
            self._rest(readings, job)

    def _rest(self, readings: Readings, job: JobCgroup) -> None:
        """Report the end of a job that ran and is empty, unless that was before the agent's start."""
        if self._has_begun:
            self._report_end(readings, job)
        else:
            readings.drop(LEFT_BEHIND, job.path)
        job.rest()
        self._ended[job.path] = self.jobs.pop(job.path)

    def _look_at_ended(self, readings: Readings) -> None:
        """Look whether something ran in cgroups that stayed, where nothing reports it."""
        for path, job in list(self._ended.items()):
            if job.watch is not None and not self._watches.is_blind:
                continue
            if not self.tree.exists(path):
                self._remove(readings, path)
            elif job.has_cpu:
                name, parse = cpu_parser(job.hierarchy.version)
                with readings:
                    if parse(self.tree.read(f"{path}/{name}")) > job.last.get(CPU, float("inf")):
                        self._resume(readings, job)

    def _resume(self, readings: Readings, ended: JobCgroup) -> None:
        """Begin another life of a cgroup in which processes run again, or ran."""
        again = self._opened(readings, ended.hierarchy, ended.path, ended.job)
        again.base = ended.base
        if again.is_gone:
            # Its parent knows whether anything ran, and what it used: that is reported with its removal.
            ended.is_exact = False
        if again.is_gone or (again.last.get(CPU, 0) <= ended.last.get(CPU, 0) and not again.is_populated()):
            again.close()
            return
        again.watch, again.has_run = ended.watch, True
        del self._ended[ended.path]
        readings.begun.add(again.job)
        self._begin_life(readings, again)

    def _remove(self, readings: Readings, path: str) -> None:
        """Note that a cgroup is removed; another child of a parent of jobs counts too."""
        job = self._forget(path)
        self._watches.leave(path)
        if (parent := os.path.dirname(path)) in self._parents:
            self._removed.setdefault(parent, []).append(job)
        elif job is not None:
            self._end(readings, job)

    def _settle(self, readings: Readings, now: float) -> bool:
        """Report the jobs that are removed; return whether all are.

        Those that were removed until the parent was read are removed together: their events are taken before the sum is divided.
        """
        for parent in [parent for parent, removed in self._removed.items() if self._parents[parent].knows(removed)]:
            self._end_all(readings, parent)
        read = [parent for parent in self._removed if self._read_removed(parent)]
        if read and self._take_events(readings, now):
            return False
        for parent in read:
            self._parents[parent].divide(self._removed[parent], is_reported=self._watches.has(parent))
            self._end_all(readings, parent)
        return not self._removed

    def _end_all(self, readings: Readings, parent: str) -> None:
        for job in self._removed.pop(parent):
            if job is not None:
                self._end(readings, job)
        if not self.tree.exists(parent):
            del self._parents[parent]

    def _read_removed(self, parent: str) -> bool:
        """Read what the removed children of a parent have used; return False if one was removed whose event is still to come."""
        known = {os.path.basename(path) for path in (*self.jobs, *self._ended) if os.path.dirname(path) == parent}
        try:
            self._parents[parent].read(known)
        except ChildRemoved:
            return False
        return True

    def _end(self, readings: Readings, job: JobCgroup) -> None:
        self._watches.unfollow(job.watch)
        if job.has_ended and job.since_begin(job.last).get(CPU, 0) > ENOUGH_SECONDS:
            job.has_ended = False
            readings.begun.add(job.job)
        if not job.has_ended:
            if job.has_cpu and not job.is_exact:
                readings.drop("end of a job not sampled", job.job)
            self._report_end(readings, job)

    def _report_end(self, readings: Readings, job: JobCgroup) -> None:
        job.read_counts(readings)
        job.close()
        readings.ended.append(JobEnd(job.job, job.is_exact, {metric.name: value for metric, value in job.since_begin(job.last).items()}))
