"""How the cost of a cell grows with components, hosts and time: saved inputs of very different shapes by `tokioctl archive`.

Processor seconds of the whole command less those of the smallest input, so that a point is what one more cell costs. A curve is flat if no
point differs by more than TOLERANCE from the median of its curve. `--picture FILE` of `python -m tests.bench.growth` draws the curves.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import collectd_pages, lmt_copy
from tests.bench.measure import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OSTS_OF_MDT = 24
"""The same at each point: an MDT has a row for each operation, and such a cell costs more than one of the several of an OST's row."""
TOLERANCE = 0.2
TARGET = "within 20 % of the curve's median"
TURNS, SECONDS = 2, 15
"""A point is measured at least so often, and for so many seconds: a start differs by as much as a small input costs."""


@dataclass(frozen=True)
class Point:
    """An input. x: what its curve grows with; shape: components or hosts, and minutes."""

    x: str
    components: int
    minutes: float


@dataclass(frozen=True)
class Curve:
    """Inputs that differ in one respect. write: makes one, and returns the command that archives it; smallest: what is left out."""

    what: str
    write: Callable[[Path, Point], list[str]]
    smallest: Point
    points: tuple[Point, ...]
    quick: tuple[Point, ...]


def _lmt(directory: Path, point: Point) -> list[str]:
    copy, seconds = directory / "copy.sqlite3", int(point.minutes * 60)
    copy.unlink(missing_ok=True)
    mdts = max(1, point.components // OSTS_OF_MDT)
    lmt_copy.write(copy, steps=seconds // lmt_copy.STEP + 1, osts=point.components, mdts=mdts)
    end = lmt_copy.START + dt.timedelta(seconds=seconds)
    return ["lmt", str(copy), "--timezone", "UTC", "--start", lmt_copy.START.isoformat(), "--end", end.isoformat()]


def _collectd(directory: Path, point: Point) -> list[str]:
    pages, seconds = directory / "pages.json", int(point.minutes * 60)
    collectd_pages.write(pages, seconds // collectd_pages.STEP, point.components)
    start, end = (dt.datetime.fromtimestamp(collectd_pages.START + add, dt.UTC).isoformat() for add in (0, seconds))
    return ["collectd_es", str(pages), "--start", start, "--end", end, "--parse-workers", "0"]


def _minutes(points: str) -> tuple[Point, ...]:
    """Return points of as many components and minutes as a text says: "24x60 240x6"."""
    return tuple(Point(pair, int(pair.split("x")[0]), float(pair.split("x")[1])) for pair in points.split())


CURVES = (
    Curve("LMT, OSTs x minutes", _lmt, Point("", 24, 5), _minutes("24x6000 240x600 2400x60 24000x60"), _minutes("24x600 240x60 2400x6")),
    Curve("LMT, 24 OSTs x minutes", _lmt, Point("", 24, 5), _minutes("24x360 24x1440 24x7200 24x43200"), _minutes("24x360 24x1440")),
    # An hour of fewer would be lost in what the start differs from run to run.
    Curve("LMT, 480 OSTs x minutes", _lmt, Point("", 24, 5), _minutes("480x60 480x360 480x1440"), _minutes("480x60 480x120")),
    Curve("collectd, hosts x minutes", _collectd, Point("", 24, 1), _minutes("24x360 288x60 1440x60"), _minutes("24x60 288x5")),
)


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    for curve in CURVES:
        smallest, cells = _measured(directory, curve, curve.smallest)
        points = curve.quick if quick else curve.points
        costs = [_cost(directory, curve, point, smallest, cells) for point in points]
        median = statistics.median(costs)
        for point, cost in zip(points, costs, strict=True):
            yield Row(f"{curve.what}: {point.x}", "ns a cell", median, cost, cost / median, TARGET, "floor: the curve's median")


def _cost(directory: Path, curve: Curve, point: Point, smallest: float, cells_of_smallest: int) -> float:
    """Return nanoseconds of a processor for each cell beyond those of the smallest input."""
    seconds, cells = _measured(directory, curve, point)
    return (seconds - smallest) / (cells - cells_of_smallest) * 1e9


def _measured(directory: Path, curve: Curve, point: Point) -> tuple[float, int]:
    """Return the least processor seconds of some turns of the command, and the cells of the file that it makes."""
    output = directory / "growth.hdf5"
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", *curve.write(directory, point), "--output", str(output), "--json"]
    found, end = list[float](), time.monotonic() + SECONDS
    while len(found) < TURNS or time.monotonic() < end:
        output.unlink(missing_ok=True)
        before = _processor_seconds()
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(_processor_seconds() - before)
    return min(found), int(json.loads(said)["cells"])


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def picture(found: list[Row], path: Path) -> None:
    """Draw the curves."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - of the picture alone

    figure = Figure(figsize=(7, 4.8), layout="constrained")
    names = list(dict.fromkeys(row.what.partition(": ")[0] for row in found))
    for axes, name in zip(figure.subplots(2, -(-len(names) // 2)).flat, names, strict=False):
        points = [row for row in found if row.what.startswith(f"{name}: ")]
        costs = [row.ours or 0.0 for row in points]
        median = statistics.median(costs)
        axes.axhspan(median * (1 - TOLERANCE), median * (1 + TOLERANCE), color="0.9")
        axes.plot([row.what.partition(": ")[2].replace("x", "\nx ") for row in points], costs, marker="o", color="black")
        axes.set_ylim(0, 2 * median)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.set_ylabel("ns a cell", fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokiod-bench-") as directory:
        found = list(rows(Path(directory), quick=arguments.quick))
    for row in found:
        print(f"{row.what}: {row.ours:.0f} {row.unit}, {row.ratio:.2f}")
    picture(found, arguments.picture)


if __name__ == "__main__":
    main()
