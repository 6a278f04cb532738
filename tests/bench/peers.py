"""The same saved LMT databases by `tokioctl archive` and by pytokio 0.13.0, whole programs in turns, and how both grow.

Processor seconds of the process and its children, so that other work on the machine counts little. floor: pytokio.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.bench import lmt_copy
from tests.bench.measure import Row, skipped
from tests.bench.pytokio_process import PYTHON, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROGRAM = ROOT / "tests" / "fidelity" / "pytokio_archive.py"
SIZES = ((24, 1), (248, 1), (2480, 1), (248, 6), (248, 24))
"""OSTs, with as many OSSs, and hours at 5 s."""
PEER_ROWS = 500_000
"""Times and OSTs; pytokio is not asked for more: it takes minutes."""
TURNS = 3


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    if not PYTHON.exists():
        yield skipped("beside pytokio", "", "make .venv-pytokio installs it")
    smallest: tuple[float, int] | None = None
    for osts, hours in SIZES[:2] if quick else SIZES:
        copy = directory / f"{osts}-{hours}.sqlite3"
        lmt_copy.write(copy, steps=720 * hours + 1, osts=osts)
        pairs = [_pair(copy, directory, hours, has_peer=PYTHON.exists() and 720 * hours * osts <= PEER_ROWS) for _ in range(_turns(hours))]
        seconds, cells = min(ours for ours, _, _ in pairs), pairs[0][2]
        theirs = min((peer for _, peer, _ in pairs if peer is not None), default=None)
        note = f"{cells / 1e6:.1f} M cells"
        if smallest is None:
            smallest = seconds, cells
        else:
            note += f", {(seconds - smallest[0]) / (cells - smallest[1]) * 1e9:.0f} ns for each beyond the first line's"
        yield Row(f"LMT SQLite, {osts} OSTs, {hours} h, to a TTS file", "CPU s", theirs, seconds, theirs and seconds / theirs, "", note)
        copy.unlink()


def _turns(hours: int) -> int:
    return TURNS if hours == 1 else 1


def _pair(copy: Path, directory: Path, hours: int, *, has_peer: bool) -> tuple[float, float | None, int]:
    """Return the processor seconds of tokiod and of pytokio, None for one that is not asked, and the number of cells."""
    ours, said = _used(lambda: _ours(copy, directory / "ours.hdf5", hours))
    theirs = _used(lambda: _theirs(copy, directory / "theirs.hdf5", hours))[0] if has_peer else None
    return ours, theirs, int(json.loads(said)["cells"])


def _used(run: Callable[[], str]) -> tuple[float, str]:
    """Return the processor seconds of the processes that a call starts and waits for, and what it returns."""
    before = os.times()
    said = run()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, said


def _ours(copy: Path, output: Path, hours: int) -> str:
    output.unlink(missing_ok=True)
    span = ["--start", "2018-01-28T00:00:00", "--end", _end(hours)]
    line = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", "lmt", str(copy), "--output", str(output), *span, "--json"]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def _theirs(copy: Path, output: Path, hours: int) -> str:
    output.unlink(missing_ok=True)
    line = ["-i", str(copy), "-o", str(output), "--timestep", "5", "2018-01-28T00:00:00", _end(hours)]
    environment = {**os.environ, "TZ": "UTC", "PYTHONPATH": ""}
    said = json.dumps(["lmt", line]) + "\n"
    return subprocess.run([PYTHON, PROGRAM], input=said, text=True, check=True, capture_output=True, env=environment).stdout


def _end(hours: int) -> str:
    return f"2018-01-{28 + hours // 24:02}T{hours % 24:02}:00:00"
