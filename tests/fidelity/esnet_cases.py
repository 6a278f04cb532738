"""Random saved rates of interfaces, and what pytokio's rule and tokiod's make of them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import lmt_database as lmt

from tests.fidelity.cells import Cells, SpanCase, archived, compared, local_span, read, span_options

if TYPE_CHECKING:
    import random
    from collections import Counter
    from pathlib import Path

    from tests.fidelity.cells import Column

    Points = dict[int, float | None]
    """Rates by epoch second."""

KIND = "esnet_snmp"
MIDNIGHT = 1_517_212_800
"""2018-01-29T00:00:00 in Los Angeles."""
INTERVAL = 30
INTERFACES = (("rtr-a", "xe-0_0_1"), ("rtr-b", "et-1"))
DIRECTIONS = {"in": "readrates", "out": "writerates"}


@dataclass
class Case(SpanCase):
    """Points of interfaces every INTERVAL seconds, and the span [start, end) of a file of them. step: of the file's rows."""

    points: dict[Column, Points] = field(repr=False)

    @classmethod
    def made(cls, rng: random.Random, number: int) -> Case:
        """Make a case: on the grid or off it, with the points' interval or another step, within a day or over a midnight."""
        step, off = rng.choice((30, 30, 30, 60, 10, 45, 8)), rng.choice((0, 0, 10, 1, 29))
        begin = MIDNIGHT - 30 * rng.randrange(5, 30) if rng.random() < 1 / 3 else lmt.START + 30 * rng.randrange(1000)
        length = 30 * rng.choice((20, 60, 120))
        end = begin + off + step * max(1, length // step)
        jitter = rng.choice((0, 0, 29))
        columns = [(f"datatargets/{to}", ":".join(name)) for name in INTERFACES for to in DIRECTIONS.values()]
        return cls(number, begin + off, end, step, {column: _points(rng, begin - 90, begin + length + 90, jitter) for column in columns})

    def write(self, directory: Path) -> None:
        """Write the points as pytokio saves them."""
        found: dict[str, dict[str, dict[str, object]]] = {}
        for router, interface in INTERFACES:
            rates = {way: self.points[f"datatargets/{to}", f"{router}:{interface}"] for way, to in DIRECTIONS.items()}
            found.setdefault(router, {})[interface] = {**rates, "units": "bytes/sec"}
        (directory / f"{self.number}.json").write_text(json.dumps(found))

    def theirs(self, directory: Path) -> list[tuple[str, list[str]]]:
        """Return the commands of pytokio."""
        path, wanted = str(directory / f"{self.number}"), ",".join(":".join(name) for name in INTERFACES)
        options = ["-i", f"{path}.json", "-o", f"{path}.theirs", "--timestep", str(self.step)]
        return [(KIND, [*options, *local_span(self.start, self.end), wanted])]

    def compare(self, directory: Path) -> tuple[Counter[str], list[str]]:
        """Compare every cell of both files."""
        given = ["--step", str(self.step), "--interval", str(INTERVAL), *span_options(self.start, self.end)]
        ours = archived(KIND, [directory / f"{self.number}.json"], directory / f"{self.number}.ours", *given)
        known = {
            column: {time: rate for time, rate in points.items() if rate is not None and rate >= 0}
            for column, points in self.points.items()
        }
        right = {column: self._right(points) for column, points in known.items()}
        return compared(ours, read(directory / f"{self.number}.theirs"), (right, self._pytokio()), self._reason)

    def _right(self, points: dict[int, float]) -> dict[int, float]:
        """Return tokiod's cells: the last point that begins in a row; means where a row is not as long as a point."""
        if self.step == INTERVAL:
            return {self._row(time): rate for time, rate in sorted(points.items()) if self.start <= time < self.end}
        times, cells = sorted(points), {}
        ends = [min(time + INTERVAL, after) for time, after in zip(times, [*times[1:], 2**62], strict=True)]
        for row in range(self.start, self.end, self.step):
            shares = [
                (min(end, row + self.step, self.end) - max(time, row), points[time])
                for time, end in zip(times, ends, strict=True)
                if time < row + self.step and end > row
            ]
            if shares:
                cells[row] = sum(seconds * rate for seconds, rate in shares) / sum(seconds for seconds, _ in shares)
        return cells

    def _pytokio(self) -> Cells:
        """Return pytokio's cells: the last point of the file that begins in a row; NaN for null."""
        cells: Cells = defaultdict(dict)
        for column, points in self.points.items():
            for time, rate in points.items():
                if self.start <= time < self.end:
                    cells[column][self._row(time)] = float("nan") if rate is None else rate
        return cells

    def _row(self, time: int) -> int:
        return self.start + (time - self.start) // self.step * self.step

    def _reason(self, column: Column, row: int) -> str | None:
        """Return the row of docs/fidelity.md that explains a different cell, by the points in and before it."""
        points = [rate for time, rate in self.points[column].items() if row - INTERVAL < time < row + self.step]
        if self.step != INTERVAL:
            return "means of points of another length"
        if None in points:
            return "null"
        return "negative" if any(rate < 0 for rate in points if rate is not None) else None


def _points(rng: random.Random, start: int, end: int, jitter: int) -> Points:
    """Return points every INTERVAL seconds, or up to `jitter` seconds later; zeros, nulls, gaps, negative ones."""
    found: Points = {}
    for time in range(start // INTERVAL * INTERVAL, end, INTERVAL):
        rate = rng.choice((rng.random() * 1e10, rng.random() * 1e10, float(rng.randrange(10**9)), 0.0))
        chance = rng.random()
        if chance > 0.05:
            found[time + rng.randrange(jitter + 1)] = None if chance < 0.1 else -7.5 if chance < 0.12 else rate
    return found
