"""Linux's perf events: what the processors and the kernel count, of all processes or of those of one cgroup (perf_event_open(2)).

An event is counted on one CPU, so it is opened on each of them. Reading it starts no process and stops none. The standard library has no
call for it.

    Event        what can be counted                  EventCounts   the sums of all CPUs
    fitting()    what this machine counts of it       GroupCount    some events that are counted together, on one CPU
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HARDWARE, SOFTWARE = 0, 1
"""Types of events: counters of the processor, counts of the kernel."""
MAX_HARDWARE = 3
"""Events of the processor that are counted together: today's processors have as many counters besides that of the NMI watchdog."""

_FORMAT = 1 | 2 | 8
"""PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_FORMAT_GROUP."""
_OF_CGROUP, _CLOSE_ON_EXEC = 4, 8
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""struct perf_event_attr in its first version: type, size, config, period, sample type, read format, flags, wakeup, breakpoint, address."""
_CALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "loongarch64": 241, "ppc64le": 319, "ppc64": 319, "s390x": 331}
_UNSUPPORTED = {errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV}
_WRAP = 1 << 64


@dataclass(frozen=True)
class Event:
    """What can be counted. `factor` makes `unit` of the kernel's number."""

    name: str
    kind: int
    number: int
    about: str
    unit: str = "1"
    factor: float = 1


EVENTS = {
    event.name: event
    for event in (
        Event("cycles", HARDWARE, 0, "cycles of the processor, at the clock that it has"),
        Event("instructions", HARDWARE, 1, "instructions"),
        Event("cache_references", HARDWARE, 2, "accesses to the last cache"),
        Event("cache_misses", HARDWARE, 3, "accesses that the last cache missed"),
        Event("branches", HARDWARE, 4, "branches"),
        Event("branch_misses", HARDWARE, 5, "branches that were predicted wrongly"),
        Event("ref_cycles", HARDWARE, 9, "cycles at the nominal clock"),
        Event("task_clock", SOFTWARE, 1, "CPU time, as perf counts it", "s", 1e-9),
        Event("page_faults", SOFTWARE, 2, "page faults"),
        Event("context_switches", SOFTWARE, 3, "context switches"),
        Event("cpu_migrations", SOFTWARE, 4, "moves of a thread to another CPU"),
    )
}
"""Those that the kernel knows by one number on all processors. Raw events are other ones on each model."""


def fitting(events: Iterable[Event], cpu: int) -> tuple[list[list[Event]], list[str]]:
    """Return the events that this machine counts, in groups that are counted together, and the names of those that it can't count.

    Raises PermissionError, and OSError where the kernel has no perf events.
    """
    groups: list[list[Event]] = []
    missing: list[str] = []
    for event in sorted(events, key=lambda event: event.kind):
        try:
            _close(_open_group([event], cpu, -1))
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            missing.append(event.name)
            continue
        if groups and _fits([*groups[-1], event], cpu):
            groups[-1].append(event)
        else:
            groups.append([event])
    return groups, missing


class EventCounts:
    """What was counted since the events were opened, on all CPUs together.

    directory: of a cgroup, which is counted with those below it; all processes without. Counts go on after the cgroup is removed, until
    they are closed. Where other programs count too, the processor's counters are shared in turns, and the counts are estimates.
    `waiting` names what had no counter at all so far.
    """

    def __init__(self, groups: Sequence[Sequence[Event]], cpus: Iterable[int], directory: str = "") -> None:
        """Open the events. Raise OSError."""
        self._groups, self._directory = groups, directory
        self._on: dict[int, list[GroupCount]] = {}
        self._counts: list[list[int]] = [[0] * len(group) for group in groups]
        self.waiting: list[str] = []
        self.follow(cpus)

    def follow(self, cpus: Iterable[int]) -> None:
        """Count on these CPUs from now on; what others have counted stays. Raise OSError, and then count nothing."""
        wanted = set(cpus)
        for cpu in self._on.keys() - wanted:
            # A CPU that went offline: its events count no more, also when it comes back.
            _close(chain.from_iterable(count.fds for count in self._on.pop(cpu)))
        new = sorted(wanted - self._on.keys())
        cgroup = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if self._directory and new else -1
        try:
            for cpu in new:
                self._open(cpu, cgroup)
        except OSError:
            self.close()
            raise
        finally:
            if cgroup >= 0:
                os.close(cgroup)

    def read(self) -> dict[str, float]:
        """Return the counts by the events' names, in their units. Raise OSError, ValueError; the next reading goes on."""
        faults: list[ValueError] = []
        for opened in self._on.values():
            for group, totals in zip(opened, self._counts):
                try:
                    grown = group.take(os.read(group.fds[0], group.layout.size + 8))
                except ValueError as error:
                    faults.append(error)
                    continue
                totals[:] = [total + more for total, more in zip(totals, grown)]
        if faults:
            raise faults[0]
        self.waiting = [event.name for place, group in enumerate(self._groups) if self._waits(place) for event in group]
        return {
            event.name: total * event.factor
            for group, totals in zip(self._groups, self._counts)
            for event, total in zip(group, totals)
            if event.name not in self.waiting
        }

    def behind(self) -> list[str]:
        """Return the events whose counts lack the time since the reading before on a CPU: it had no counter for them all that time."""
        is_behind = [any(opened[place].is_behind for opened in self._on.values()) for place in range(len(self._groups))]
        return [event.name for group, behind in zip(self._groups, is_behind) if behind for event in group]

    def close(self) -> None:
        """End counting."""
        for opened in self._on.values():
            _close(chain.from_iterable(count.fds for count in opened))
        self._on.clear()

    def _open(self, cpu: int, cgroup: int) -> None:
        opened = self._on.setdefault(cpu, [])
        try:
            for group in self._groups:
                opened.append(GroupCount(_open_group(group, cpu, cgroup)))
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            # It went offline since the list of CPUs was read.
            _close(chain.from_iterable(count.fds for count in self._on.pop(cpu)))

    def _waits(self, place: int) -> bool:
        times = [opened[place].times for opened in self._on.values()]
        return any(enabled for enabled, _ in times) and not any(ran for _, ran in times)


class GroupCount:
    """The counts of a group of events on one CPU.

    fds: their descriptors, the leader's first, by which all are read; times: for how many nanoseconds they could have been counted, and for
    how many they were; is_behind: whether the last reading has nothing of the time since the one before, which is made up for later.
    """

    def __init__(self, fds: list[int]) -> None:
        self.fds = fds
        self.layout = struct.Struct(f"={3 + len(fds)}Q")
        self.times = (0, 0)
        self.is_behind = False
        self._before = [0] * (2 + len(fds))

    def take(self, data: bytes) -> list[int]:
        """Return by how much each count grew since the last call, by what the kernel returned for a read.

        Time in which others had the counters is made up for by the mean of the rest. Raise ValueError for what no kernel returns; the next
        reading is compared with this one.
        """
        if len(data) != self.layout.size:
            raise ValueError(f"perf events: {len(data)} bytes, expected {self.layout.size}")
        number, *now = self.layout.unpack(data)
        if number != len(self.fds):
            raise ValueError(f"perf events: a group of {number}, expected {len(self.fds)}")
        enabled, ran, *grown = ((one - before) % _WRAP for one, before in zip(now, self._before))
        if max(enabled, ran, *grown) >= _WRAP // 2:
            self._before = now
            raise ValueError("perf events: a count fell")
        self.times = now[0], now[1]
        self.is_behind = enabled > 0 and not ran
        if not ran:
            # The time is made up for when they are counted again.
            return [0] * len(grown)
        self._before = now
        return [one * enabled // ran if enabled > ran else one for one in grown]


def _open_group(events: Iterable[Event], cpu: int, cgroup: int) -> list[int]:
    """Open events so that they are counted together, and return their descriptors. Raise OSError."""
    fds: list[int] = []
    try:
        for event in events:
            fds.append(_open_event(event, cpu, cgroup, fds[0] if fds else -1))
    except OSError:
        _close(fds)
        raise
    return fds


def _fits(events: list[Event], cpu: int) -> bool:
    if len({event.kind for event in events}) > 1 or (events[0].kind == HARDWARE and len(events) > MAX_HARDWARE):
        return False
    try:
        _close(_open_group(events, cpu, -1))
    except OSError:
        return False
    return True


def _open_event(event: Event, cpu: int, cgroup: int, leader: int) -> int:
    number = _CALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"unknown number of perf_event_open on {platform.machine()}")
    attributes = ctypes.create_string_buffer(_ATTRIBUTES.pack(event.kind, _ATTRIBUTES.size, event.number, 0, 0, _FORMAT, 0, 0, 0, 0))
    flags = _CLOSE_ON_EXEC | (_OF_CGROUP if cgroup >= 0 else 0)
    fd: int = _libc().syscall(
        ctypes.c_long(number), attributes, ctypes.c_int(cgroup), ctypes.c_int(cpu), ctypes.c_int(leader), ctypes.c_ulong(flags)
    )
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), f"perf event {event.name}")
    return fd


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
