"""The counters of one job's cgroup, on v2 or v1."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tokiod.agent.configured_events import JOB_EVENTS, report_waiting
from tokiod.agent.devices import Disks
from tokiod.agent.hierarchies import Hierarchy
from tokiod.agent.increase import Sums
from tokiod.agent.metric import counter, gauge
from tokiod.agent.sensor import MAX_COUNT
from tokiod.agent.tree import HeldFile, Tree, why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tokiod.agent.metric import Metric, Value
    from tokiod.agent.perf_event import EventCounts
    from tokiod.agent.sensor import Readings

    Values = Iterable[tuple[Metric, Value]]
    Parts = dict[str, dict[Metric, Value]]

CPU = counter("job_cpu", "s", "CPU time")
_USER, _SYSTEM = counter("job_cpu_user", "s", "CPU time in programs"), counter("job_cpu_system", "s", "CPU time in the kernel")
_THROTTLED = counter("job_cpu_throttled", "s", "time during which the job's limit stopped it")
_MEMORY, _PEAK = gauge("job_mem", "B", "memory, with the page cache"), gauge("job_mem_peak", "B", "the most memory so far (Linux 5.19)")
_ANON, _CACHE = gauge("job_mem_anon", "B", "memory of the job's programs"), gauge("job_mem_cache", "B", "page cache of the job's files")
_FAULTS, _MAJOR = (
    counter("job_page_faults", "1", "page faults"),
    counter("job_major_page_faults", "1", "page faults that read from a disk or file system"),
)
_KILLS = counter("job_oom_kills", "1", "processes killed for lack of memory")
_READ, _WRITTEN = (
    counter("job_disk_read", "B", "bytes read from local disks"),
    counter("job_disk_written", "B", "bytes written to local disks"),
)
_READS, _WRITES = counter("job_disk_reads", "1", "reads of local disks"), counter("job_disk_writes", "1", "writes to local disks")
_PROCESSES = gauge("job_processes", "1", "processes and threads")
_STALLS = {
    name: counter(f"job_{name}_stalled", "s", f"time during which a thread waited for {what}")
    for name, what in (("cpu", "a CPU"), ("memory", "memory"), ("io", "a disk"))
}  # fmt: skip
METRICS = (
    CPU, _USER, _SYSTEM, _THROTTLED, _MEMORY, _PEAK, _ANON, _CACHE, _FAULTS, _MAJOR, _KILLS, _READ, _WRITTEN, _READS, _WRITES, _PROCESSES,
    *_STALLS.values(),
)  # fmt: skip

_CPU_LINES = re.compile(rb"usage_usec (\d+)\nuser_usec (\d+)\nsystem_usec (\d+)\n")
_THROTTLED_LINE = re.compile(rb"\nthrottled_usec (\d+)\n")
_MEMORY_STAT = {b"anon": (_ANON, 1.0), b"file": (_CACHE, 1.0), b"pgfault": (_FAULTS, 1.0), b"pgmajfault": (_MAJOR, 1.0)}
_MEMORY_STAT_V1 = {
    b"total_rss": (_ANON, 1.0), b"total_cache": (_CACHE, 1.0), b"total_pgfault": (_FAULTS, 1.0), b"total_pgmajfault": (_MAJOR, 1.0),
}  # fmt: skip
_STALLED = re.compile(rb"^some .* total=(\d+)$", re.MULTILINE)
_DEVICE = re.compile(rb"\d+:\d+")
_IO = {b"rbytes": _READ, b"wbytes": _WRITTEN, b"rios": _READS, b"wios": _WRITES}


def _keyed(metrics: dict[bytes, tuple[Metric, float]], *needed: bytes) -> Callable[[bytes], Values]:
    """Return a parser of lines `key number`, each times its factor. It raises ValueError if a needed key is missing."""

    def parse(text: bytes) -> Values:
        found = dict(line.split(None, 1) for line in text.splitlines())
        if missing := [key for key in needed if key not in found]:
            raise ValueError(f"no line {missing[0].decode()}")
        return [(metric, int(found[key]) * factor) for key, (metric, factor) in metrics.items() if key in found]

    return parse


def _cpu_stat(text: bytes) -> Values:
    """Parse the file that is read each second: its first three lines are the same in all kernels since 4.15."""
    if match := _CPU_LINES.match(text):
        usage, user, system = match.groups()
        throttled = _THROTTLED_LINE.search(text)
        times = ((CPU, int(usage) / 1e6), (_USER, int(user) / 1e6), (_SYSTEM, int(system) / 1e6))
        return (*times, (_THROTTLED, int(throttled[1]) / 1e6)) if throttled else times
    raise ValueError("no lines usage_usec, user_usec, system_usec")


def _single(metric: Metric, factor: float = 1) -> Callable[[bytes], Values]:
    return lambda text: [(metric, int(text) * factor)]


def _stalls(name: str) -> Callable[[bytes], Values]:
    def parse(text: bytes) -> Values:
        match = _STALLED.search(text)
        if match is None:
            raise ValueError("no line `some`")
        return [(_STALLS[name], int(match[1]) / 1e6)]

    return parse


def _never_falling(parse: Callable[[bytes], Values]) -> Callable[[bytes], Values]:
    """Return a parser whose counters don't fall where the kernel forgets what a removed step had counted."""
    sums: Sums[Metric] = Sums()

    def of_all(text: bytes) -> Values:
        values = dict(parse(text))
        counted = sums.take({"": {metric: value for metric, value in values.items() if metric.kind == "counter"}})
        return {**values, **counted}.items()

    return of_all


def _by_disk(disks: Disks, counts_of: Callable[[bytes], Parts], metrics: Iterable[Metric]) -> Callable[[bytes], Values]:
    """Return a parser of counts by device: their sums over the disks. A device without counts could not be read this time."""
    sums: Sums[Metric] = Sums()
    nothing: dict[Metric, Value] = dict.fromkeys(metrics, 0)

    def parse(text: bytes) -> Values:
        found = counts_of(text)
        parts = {device: counts for device, counts in found.items() if disks.is_disk(device)}
        disks.forget(but=found)
        if parts and not any(parts.values()):
            raise ValueError(f"no counts of device {next(iter(parts))}")
        if any(counts and max(counts.values()) > MAX_COUNT for counts in parts.values()):
            raise ValueError("a count of a device is beyond 2^62")
        return (sums.take(parts) or nothing).items()

    return parse


def _io_stat(text: bytes) -> Parts:
    """Parse `MAJOR:MINOR key=number ...` of io.stat.

    Some kernels print a device without its numbers, in the same line as the next one, and the paths of NVMe as `(unknown)`: they count what
    the disk of their namespace counts too.
    """
    parts: Parts = {}
    for line in text.splitlines():
        words = line.split()
        devices = [word.decode() for word in words if _DEVICE.fullmatch(word)]
        parts.update((device, {}) for device in devices)
        keys = dict(word.split(b"=", 1) for word in words if b"=" in word)
        if devices and _IO.keys() <= keys.keys():
            parts[devices[-1]] = {metric: int(keys[key]) for key, metric in _IO.items()}
    if text.strip() and not parts:
        raise ValueError("no device has a number")
    return parts


def _blkio(reading: Metric, writing: Metric) -> Callable[[bytes], Parts]:
    """Return a parser of v1's `MAJOR:MINOR Read number`."""
    metrics = {b"Read": reading, b"Write": writing}

    def parse(text: bytes) -> Parts:
        parts: Parts = {}
        for words in (line.split() for line in text.splitlines()):
            if words and _DEVICE.fullmatch(words[0]):
                counts = parts.setdefault(words[0].decode(), {})
                if len(words) == 3 and words[1] in metrics:  # noqa: PLR2004 - the line's words
                    counts[metrics[words[1]]] = int(words[2])
        return parts

    return parse


def cpu_parser(version: int) -> tuple[str, Callable[[bytes], Value]]:
    """Return the file with the CPU time of a cgroup, and what reads its seconds. It raises ValueError."""
    name, parse = ("cpu.stat", _cpu_stat) if version == 2 else ("cpuacct.usage", _single(CPU, 1e-9))  # noqa: PLR2004 - cgroup v2
    return name, lambda text: dict(parse(text))[CPU]


class JobCgroup:
    """The files of one job, and what they last said.

    `last` has the newest value of each metric, `fresh` those of the last read. `is_exact`: it was read after the last process of the job
    had ended. `watch`: inotify's number of its `events`; `counts`: its perf events. A file that this kernel, or this configuration of its
    controllers, does not have is no value.
    """

    def __init__(self, tree: Tree, job: str, files: list[HeldFile], quick: int, parsers: list[Callable[[bytes], Values]]) -> None:
        self.tree, self.job = tree, job
        self._files = list(zip(files, parsers))
        self._quick = self._files[:quick]
        self.last: dict[Metric, Value] = {}
        self.fresh: dict[Metric, Value] = {}
        self.is_exact = self.has_run = self.has_ended = self.is_gone = False
        self.has_cpu, self.is_joined = True, False
        self.path, self.hierarchy = "", Hierarchy(2, "")
        self.empty_since = float("inf")
        self.base: dict[Metric, Value] = {}
        self._ahead: list[bytes] = []
        self._most = 0
        self.events: HeldFile | None = None
        self.watch: int | None = None
        self.counts: EventCounts | None = None

    @classmethod
    def v2(cls, tree: Tree, job: str, directory: str) -> JobCgroup:
        """Return the job of a directory of the v2 hierarchy. Costly files come last: memory.stat makes the kernel add up all CPUs."""
        parsers = {
            "cpu.stat": _cpu_stat,
            "memory.current": _single(_MEMORY),
            "memory.peak": _single(_PEAK),
            "memory.stat": _keyed(_MEMORY_STAT),
            "memory.events": _keyed({b"oom_kill": (_KILLS, 1)}),
            "io.stat": _by_disk(Disks(tree), _io_stat, _IO.values()),
            "pids.current": _single(_PROCESSES),
            **{f"{name}.pressure": _stalls(name) for name in _STALLS},
        }  # fmt: skip
        self = cls(tree, job, [tree.hold(f"{directory}/{name}") for name in parsers], 2, list(parsers.values()))
        self.events = tree.hold(f"{directory}/cgroup.events")
        return self

    @classmethod
    def v1(  # noqa: PLR0913, PLR0917 - what a test replaces
        cls,
        tree: Tree,
        job: str,
        root: str,
        directory: str,
        ticks: int = 0,
        places: Mapping[str, str] | None = None,
        *,
        has_cpu: bool = False,
    ) -> JobCgroup:
        """Return the job of a directory of the v1 hierarchies, which is the same in each.

        places: of controllers, those below root by default. has_cpu: it was seen in cpuacct, where it may be gone again. Without CPU time,
        the other files are read rarely.
        """
        tick = 1 / (ticks or os.sysconf("SC_CLK_TCK"))
        blkio = f"{root}/blkio/{directory}/blkio.throttle"
        files: dict[str, Callable[[bytes], Values]] = {
            f"{root}/cpuacct/{directory}/cpuacct.usage": _single(CPU, 1e-9),
            f"{root}/memory/{directory}/memory.usage_in_bytes": _single(_MEMORY),
            f"{root}/cpuacct/{directory}/cpuacct.stat": _keyed({b"user": (_USER, tick), b"system": (_SYSTEM, tick)}),
            f"{root}/memory/{directory}/memory.max_usage_in_bytes": _single(_PEAK),
            f"{root}/memory/{directory}/memory.stat": _never_falling(_keyed(_MEMORY_STAT_V1)),
            f"{root}/memory/{directory}/memory.oom_control": _keyed({b"oom_kill": (_KILLS, 1)}),
            f"{blkio}.io_service_bytes_recursive": _by_disk(Disks(tree), _blkio(_READ, _WRITTEN), (_READ, _WRITTEN)),
            f"{blkio}.io_serviced_recursive": _by_disk(Disks(tree), _blkio(_READS, _WRITES), (_READS, _WRITES)),
            f"{root}/pids/{directory}/pids.current": _single(_PROCESSES),
        }  # fmt: skip
        for path in list(files) if places else ():
            controller, _, rest = path[len(root) + 1 :].partition("/")
            files[f"{(places or {}).get(controller, controller)}/{rest}"] = files.pop(path)
        has_cpu = has_cpu or tree.exists(os.path.dirname(next(iter(files))))
        found = files if has_cpu else {path: parse for path, parse in files.items() if tree.exists(path)}
        self = cls(tree, job, [tree.hold(path) for path in found], 2 if has_cpu else 0, list(found.values()))
        self.has_cpu = has_cpu
        return self

    def read(self, readings: Readings, *, is_full: bool) -> None:
        """Read the quick files, or all; `is_gone` is set when the cgroup is removed."""
        self.is_exact = False
        self.fresh = {}
        # Of an attempt that another job's file ended; this reading is newer.
        self._ahead, self._most = [], 0
        for file, parse in list(self._files if is_full else self._quick):
            try:
                text = file.read()
            except OSError as error:
                self._leave_out(readings, file, parse, error)
                continue
            with readings:
                self.fresh.update(parse(text))
        if is_full:
            self.read_counts(readings)
        self._keep(readings)

    def read_ahead(self) -> None:
        """Read the quick files, for understand(). Raise OSError, ValueError."""
        texts = [file.read() for file, _ in self._quick]
        if len(texts) > 1:
            self._most = max(self._most, int(texts[1]))
        self._ahead = texts

    def understand(self, readings: Readings) -> None:
        """Parse what was read ahead last, if anything was; `fresh` has the most memory that was read ahead since the call before."""
        if not self._ahead:
            return
        self.fresh = {}
        for (_, parse), text in zip(self._quick, self._ahead):
            with readings:
                self.fresh.update(parse(text))
        self._keep(readings)
        if _MEMORY in self.fresh:
            self.fresh[_MEMORY] = self._most
        self._ahead, self._most = [], 0

    def read_counts(self, readings: Readings) -> None:
        """Read the perf events, which the kernel has also after the cgroup is removed."""
        if self.counts is not None:
            with readings:
                found = {JOB_EVENTS[name]: value for name, value in self.counts.read().items()}
                self.fresh.update(found)
                self.last.update(found)
                report_waiting(readings, self.counts)

    @property
    def is_sure(self) -> bool:
        """Return whether `last` has all that was used: it was read after the end, and what runs after that is reported."""
        return self.is_exact and not (self.has_ended and self.watch is None)

    def since_begin(self, values: dict[Metric, Value]) -> dict[Metric, Value]:
        """Return values without what a life of the cgroup before this one had counted."""
        return {metric: max(value - self.base.get(metric, 0), 0) for metric, value in values.items()} if self.base else values

    def has_used(self) -> bool:
        """Return whether something has run."""
        return bool(self.last.get(CPU if self.has_cpu else _FAULTS))

    @property
    def has_files(self) -> bool:
        """Return whether there is a file of it."""
        return bool(self._files)

    def add_files(self, other: JobCgroup) -> None:
        """Read what another hierarchy has of the job, too, except for its CPU time."""
        self.is_joined = True
        self._files += [one for one in other._files if not os.path.basename(one[0].path).startswith("cpuacct")]

    def rest(self) -> None:
        """Keep nothing open of a job that has ended and may return."""
        self.close()
        self.has_ended = True
        self.base = {metric: value for metric, value in self.last.items() if metric in METRICS and metric.kind == "counter"}
        self._files, self._quick, self.events, self.counts = [], [], None, None

    def is_populated(self) -> bool:
        """Return whether processes of the job run; also where that cannot be known. Raise OSError, ValueError."""
        if self.events is None:
            return self._has_processes()
        found = dict(line.split() for line in self.events.read().splitlines())
        return int(found.get(b"populated", b"1")) > 0

    def _has_processes(self) -> bool:
        """Return whether a process is in a cgroup of v1, or in one below it."""
        is_known = False
        for directory, _, names in os.walk(self.tree.path(self.path)):
            if "cgroup.procs" in names:
                is_known = True
                with open(f"{directory}/cgroup.procs", "rb") as file:
                    if file.read(1):
                        return True
        return not is_known

    def close(self) -> None:
        """Close the files."""
        for file, _ in self._files:
            file.close()
        if self.events is not None:
            self.events.close()
        if self.counts is not None:
            self.counts.close()

    def _keep(self, readings: Readings) -> None:
        """Keep the values of this read as the last ones; those that cannot be true are counted."""
        if self.fresh and (min(self.fresh.values()) < 0 or max(self.fresh.values()) > MAX_COUNT):
            self.fresh = {metric: value for metric, value in self.fresh.items() if readings.is_possible(metric, value)}
        self.last.update(self.fresh)

    def _leave_out(self, readings: Readings, file: HeldFile, parse: Callable[[bytes], Values], error: OSError) -> None:
        """Ask no more for a file that is missing. The first file is that of the CPU time, which every job's cgroup has."""
        if why(error) != "vanished":
            with readings:
                raise error
        elif (file, parse) == self._files[0]:
            self.is_gone = True
        elif self.hierarchy.is_v2 or self.has_used():
            # On v1 a scheduler makes the job's cgroups one after the other.
            # Which controllers a cgroup has is fixed before its first process starts.
            self._files = [other for other in self._files if other[0] is not file]
            self._quick = [other for other in self._quick if other[0] is not file]
