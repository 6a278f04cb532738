"""Peak memory: of archiving an hour and a day of LMT data, and of the running daemon, all processes together."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import lmt_copy
from tests.bench.measure import Row
from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TARGET = "under 200 MB, the same"


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    """The floor is the first line's figure: memory must not grow with the length of what is collected."""
    hours = (1, 3) if quick else (1, 24)
    first = None
    for span in hours:
        peak = _archive(directory, span)
        first = first or peak
        yield Row(f"archive of {span} h of LMT SQLite (248 OSTs), peak anonymous memory", "MB", first, peak, peak / first, TARGET)
    early, late = _daemon(directory, 10 if quick else 40)
    yield Row(
        "the daemon's three processes after minutes and after hours of simulated time, anonymous", "MB", early, late, late / early, TARGET
    )


def _archive(directory: Path, hours: int) -> float:
    copy, output = directory / f"{hours}h.sqlite3", directory / f"{hours}h.hdf5"
    lmt_copy.write(copy, steps=hours * 720 + 1)
    end = f"2018-01-2{8 + hours // 24}T{hours % 24:02}:00:00"
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", "lmt", str(copy), "--output", str(output)]
    span = ["--start", "2018-01-28T00:00:00", "--end", end, "--timezone", "America/Los_Angeles"]
    with subprocess.Popen([*command, *span], stdout=subprocess.DEVNULL) as process:
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, anonymous([process.pid]))
            time.sleep(0.01)
    assert process.returncode == 0
    copy.unlink()
    return peak


def _daemon(directory: Path, seconds: int) -> tuple[float, float]:
    now = time.time()
    epoch = int(now) // 86400 * 86400
    clock = SimulatedClock(float(epoch + 3600), now, 120)
    scene = Scene(directory / "scene", Site(epoch=epoch, osts=248, osss=248, mdts=5, timezone="UTC"), clock, retention=4 * 3600)
    scene.prepare()
    try:
        scene.start_simulator()
        scene.start_daemon()
        time.sleep(10)
        early = anonymous(scene.processes())
        time.sleep(seconds)
        return early, anonymous(scene.processes())
    finally:
        scene.close()


def anonymous(pids: Iterable[int]) -> float:
    """Return the anonymous resident memory of processes, in MB."""
    return sum(_field(pid, "RssAnon:") for pid in pids) / 1024


def resident(pid: int) -> float:
    """Return all resident memory of a process, with the libraries that it shares, in MB."""
    return _field(pid, "VmRSS:") / 1024


def _field(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
