"""`make laptop`: the reader alone in a new environment, a copied folder of days, and the five lines of docs/reading.md.

    python -m tests.walkthrough.laptop

Prints what the five lines print, then one line: the size of the install, and the time from nothing to the answer. Exit 1 where the heat
map or the p95 is another than that of the cells in the folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import venv
from datetime import date
from pathlib import Path

import numpy as np

from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Calendar

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reading.md"
DAYS, STEP, ROWS, HOURS = 3, 300, 288, 24
WRITTEN = "datatargets/writebytes"
OSTS = tuple(f"OST{i:04x}" for i in range(16))
SHADES = " .:-=+*#%@"


def five_lines() -> str:
    """Return the lines of the page, from the section about laptops."""
    (block,) = re.findall(r"^## On a laptop\n.*?^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert block.count("\n") == 5, f"{block.count(chr(10))} lines in {PAGE}"
    return block


def copy_days(directory: Path) -> np.ndarray:
    """Write a folder of days of cscratch, the last one live. Return its rates in bytes per second, NaN where missing: (rows, OSTs)."""
    calendar, generator, days = Calendar("America/Los_Angeles"), np.random.default_rng(21), []
    for number in range(1, DAYS + 1):
        day, path = calendar.day_of_date(date(2026, 11, 2 + number)), directory / f"2026-11-{2 + number:02}.hdf5"
        matrix = MatrixSpec(OSTS, counter=False)
        create(path, FileSpec(day.start, day.end, {"datatargets": GroupSpec(STEP, "lmt")}, {WRITTEN: matrix}), created=day.start)
        busy = np.exp(-(((np.arange(ROWS) / 12) - 14) ** 2) / 18)[:, None]
        cells = np.floor(STEP * 2.0**30 * busy * generator.uniform(0.5, 1.5, (ROWS, len(OSTS)))) + 1
        cells[156:192, number] = np.nan
        file = LiveFile.open(path)
        file.cells[WRITTEN].write_rows(0, np.where(np.isnan(cells), -0.0, cells))
        file.commit()
        file.close()
        if number < DAYS:
            seal(path, path, updated=day.end)
        days.append(cells / STEP)
    return np.concatenate(days)


def expected(rates: np.ndarray) -> str:
    """Return what the five lines have to print."""
    by_hour = rates.reshape(DAYS * HOURS, -1, len(OSTS))
    seen = ~np.isnan(by_hour)
    hours = np.where(seen, by_hour, 0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)  # 0, drawn as a blank, where all is missing
    rows = ["".join(SHADES[int(9 * cell / hours.max())] for cell in column) for column in hours.T]
    p95 = np.nanpercentile(rates.reshape(DAYS, -1, len(OSTS)), 95, axis=1).max()
    return "\n".join([*rows, f"{p95 / 2**30:.3f} GiB/s"])


def size_of(directory: Path) -> int:
    """Return the bytes of all files below a directory."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())


def main() -> int:
    """Install, run the lines, compare."""
    with tempfile.TemporaryDirectory(prefix="laptop-") as name:
        home = Path(name)
        (home / "days").mkdir()
        rates = copy_days(home / "days")
        began = time.monotonic()
        venv.create(home / "venv", with_pip=True)
        (site,) = (home / "venv" / "lib").glob("python3*/site-packages")
        before = size_of(site)
        python = home / "venv" / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", ROOT / "reader"]
        subprocess.run(install, check=True, timeout=600)
        installed, own = size_of(site) - before, size_of(site / "tokiod")
        done = subprocess.run([python, "-I", "-c", five_lines()], cwd=home, capture_output=True, text=True, timeout=120, check=False)
        seconds = time.monotonic() - began
    print(done.stdout.rstrip("\n"), done.stderr, sep="\n", end="")
    is_right = done.stdout.rstrip("\n") == expected(rates)
    outcome = "a heat map and a p95 in five lines" if is_right else "NOT what the cells of the folder are"
    sizes = f"the install is {installed / 1e6:.0f} MB with numpy and h5py, {own / 1e3:.0f} kB of it the reader"
    print(f"laptop: {outcome}, {seconds:.0f} s from nothing; {sizes}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
