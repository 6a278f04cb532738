"""The price of a day: what each source, as Cori had it, costs each process of a real daemon; and what an idle one costs.

A day is not played whole. The simulated clock runs faster than the real one, the cost of a window is counted over some minutes of that, and
a day is its windows and a day of idling. The simulated sources are processes of their own; what they cost is not in the figures.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.measure import Row
from tests.bench.memory import anonymous
from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene, wait_for
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, ESNET, LMT, LUSTRE, MMPERFMON, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = 86400
NAMES = ("supervisor", "feed", "writer", "collectors")
WINDOW = 60
SETTLED_WINDOWS = 3
"""Windows stored before the count begins: the first ones create the day's file."""


@dataclass(frozen=True)
class Usage:
    """What a process has used so far: seconds of all processors, and bytes that it wrote and read."""

    cpu: float = 0.0
    written: float = 0.0
    read: float = 0.0

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Return the usage of a process and all its threads."""
        threads = Path(f"/proc/{pid}/task").iterdir()
        cpu = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
        io = {key: int(value) for key, value in (line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())}
        return cls(cpu, io["wchar"], io["rchar"])

    def since(self, other: Usage, share: float) -> Usage:
        """Return what was used since another moment, times a share."""
        return Usage((self.cpu - other.cpu) * share, (self.written - other.written) * share, (self.read - other.read) * share)

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpu + other.cpu, self.written + other.written, self.read + other.read)


def synced(directory: Path) -> int:
    """Return the bytes that were written to the disk of a directory, by all of the machine.

    The kernel's own count of a process, write_bytes, is of whole folios: 18 MB where a window syncs 0.3.
    """
    device = directory.stat().st_dev
    return 512 * int(Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()[6])


@dataclass(frozen=True)
class Part:
    """A source, the site that it measures, how much faster than real time that passes, and the target in words."""

    what: str
    source: Source
    site: Site
    speed: float
    target: str


def _site(**of_source: int) -> Site:
    return Site(epoch=int(time.time()) // DAY * DAY, timezone="UTC", trouble=False, **of_source)


PARTS = (
    Part("LMT: 248 OSTs, 248 OSSs, 5 MDTs", LMT, _site(osts=248, osss=248, mdts=5), 60, "all: under 120 s"),
    Part("mmperfmon: 84 NSDs of 12 servers", MMPERFMON, _site(nsds=84, nsd_servers=12), 30, "with lustre and ESnet: under 864 s"),
    Part("lfs df of 248 OSTs", LUSTRE, _site(osts=248, mdts=5), 30, "as above"),
    Part("ESnet: 20 interfaces", ESNET, _site(interfaces=20), 60, "as above"),
    Part("collectd: 288 hosts x 64 cores", COLLECTD, _site(hosts=288, cores=64), 4, "all: under 8,640 s"),
)


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    seconds = 20 if quick else 60
    idle = yield from _idle(directory, seconds)
    for part in PARTS[:1] if quick else PARTS:
        yield from _day(directory, part, seconds, idle)


def _idle(directory: Path, seconds: float) -> Iterator[Row]:
    """A daemon whose source has nothing: in real time, because nothing else makes it wake. Returns the usage of a day by process."""
    site, clock = _site(), SimulatedClock(float(int(time.time())), time.time(), 1)
    scene = Scene(directory / "idle", site, clock, sources=(replace(MMPERFMON, config=WATCH),))
    (directory / "idle" / "in").mkdir(parents=True)
    scene.prepare()
    try:
        scene.start_daemon()
        time.sleep(20)
        used = _used(scene, seconds)
        memory = {name: anonymous([pid]) for name in NAMES if (pid := scene.pid(name)) is not None}
    finally:
        scene.close()
    a_day = {name: usage.since(Usage(), DAY / seconds) for name, usage in used.items()}
    yield from _table("an idle daemon", a_day, memory, "all: under 20 s")
    return a_day


WATCH = 'kind = "mmperfmon"\nstep = 60\nwatch = "{directory}/in"\n'


def _day(directory: Path, part: Part, seconds: float, idle: dict[str, Usage]) -> Iterator[Row]:
    clock = SimulatedClock(float(part.site.epoch + 3600), time.time(), part.speed)
    scene = Scene(directory / part.source.name, part.site, clock, WINDOW, retention=600, sources=(part.source,))
    scene.prepare()
    try:
        scene.start_simulator()
        scene.start_daemon()
        wait_for(lambda: _windows(scene, part.source) >= SETTLED_WINDOWS, 120, f"no windows; see {scene.log}")
        before, disk = _windows(scene, part.source), synced(directory)
        used = _used(scene, seconds)
        windows, disk = _windows(scene, part.source) - before, synced(directory) - disk
        memory = {name: anonymous([pid]) for name in NAMES if (pid := scene.pid(name)) is not None}
    finally:
        scene.close()
    a_day = {name: usage.since(Usage(), DAY / WINDOW / windows) + idle[name] for name, usage in used.items()}
    yield from _table(
        f"a day of {part.what}", a_day, memory, part.target, f"{windows} windows counted; the disk got {disk / windows * 1440 / 1e6:.0f} MB"
    )


def _used(scene: Scene, seconds: float) -> dict[str, Usage]:
    """Return what each process uses in so many real seconds."""
    pids = {name: pid for name in NAMES if (pid := scene.pid(name)) is not None}
    before = {name: Usage.of(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    return {name: Usage.of(pid).since(before[name], 1.0) for name, pid in pids.items()}


def _windows(scene: Scene, source: Source) -> int:
    return sum(window.seconds for window in scene.stored(source)) // WINDOW


def _table(what: str, a_day: dict[str, Usage], memory: dict[str, float], target: str, note: str = "") -> Iterator[Row]:
    for name, used in a_day.items():
        figures = f"written {used.written / 1e6:.0f} MB, read {used.read / 1e6:.0f} MB, {memory[name]:.0f} MB of memory"
        yield Row(f"{what}: {name}", "CPU s", None, used.cpu, None, "", figures)
    total = sum((used.cpu for used in a_day.values()), 0.0)
    share = f"{total / DAY:.2%} of a core; {sum(memory.values()):.0f} MB of memory"
    yield Row(f"{what}: all", "CPU s", None, total, None, target, "; ".join(filter(None, (share, note))))
