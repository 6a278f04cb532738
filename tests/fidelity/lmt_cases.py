"""Random LMT databases with every fault of counters, and what pytokio's rule and tokiod's make of a column."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import lmt_database as lmt

from collectors import lmt as kind
from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tests.fidelity.cells import Cells, SpanCase, archived, local_span, read, span_options
from tokiod.archive.layout import daily
from tokiod.collector import Site, SourceConfig, collect_window
from tokiod.simulator import oracle
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import UNSYNCED
from tokiod.window import Calendar, Window, iso

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Column = dict[int, int]
    """Samples by row."""

KIND = "lmt"
CALENDAR = Calendar(lmt.ZONE)

MIDNIGHT = 1_517_212_800
"""2018-01-29T00:00:00 in Los Angeles."""
MAX_RATE = {"datatargets": 5e10, "mdtargets": 1e7}
FIELDS = {"datatargets/readbytes": ("OST_DATA", 2), "datatargets/writebytes": ("OST_DATA", 3)}


@dataclass
class Case(SpanCase):
    """A database, and the span [start, end) of a file of it. step: of the file's rows. is_over_midnight: over the first of two days.

    pytokio's copy has six digits of each FLOAT, as a server shows it; tokiod reads all that the server stores.
    """

    is_over_midnight: bool
    tables: dict[str, list[tuple]] = field(repr=False)

    @classmethod
    def made(cls, rng: random.Random, number: int) -> Case:
        """Make a case: on the grid or off it, with LMT's step or another one, within a day or over a midnight."""
        is_over_midnight = rng.random() < 1 / 3
        steps, begin = (
            rng.choice((100, 150, 400)),
            MIDNIGHT - 5 * rng.randrange(20, 50) if is_over_midnight else lmt.START + 5 * rng.randrange(1000),
        )
        tables = _with_faults(rng, lmt.tables(steps, osts=6, mdts=rng.choice((1, 1, 2)), start=begin))
        tables["OSS_DATA"] = [(*row[:2], *(_stored(value / 3) for value in row[2:])) for row in tables["OSS_DATA"]]
        tables["MDS_INFO"] = [(number, 1, name, f"mds{number}", disk) for number, _, name, _, disk in tables["MDS_INFO"]]
        if is_over_midnight:
            return cls(number, begin, begin + 5 * (steps - 5), 5, True, tables)
        step, off = rng.choice((5, 5, 5, 8, 10, 12, 60)), rng.choice((0, 0, 1, 3, 4))
        start = begin + off + 5 * rng.choice((0, 0, 7))
        return cls(number, start, start + step * ((5 * steps - 200) // step), step, False, tables)

    def write(self, directory: Path) -> None:
        """Write the database, as it is and as a server shows it."""
        lmt.save(directory / f"{self.number}.sqlite3", self.tables)
        shown = [(*row[:2], *map(_six_digits, row[2:])) for row in self.tables["OSS_DATA"]]
        lmt.save(directory / f"{self.number}-shown.sqlite3", self.tables | {"OSS_DATA": shown})

    def spans(self) -> list[Window]:
        """Return the spans of pytokio's files: it archives each day by itself."""
        if not self.is_over_midnight:
            return [Window(self.start, self.end)]
        return [Window(self.start, MIDNIGHT), Window(MIDNIGHT, self.end)]

    def theirs(self, directory: Path) -> list[tuple[str, list[str]]]:
        """Return the commands of pytokio."""
        path, step = str(directory / f"{self.number}"), ["--timestep", str(self.step)]
        return [
            (KIND, ["-i", f"{path}-shown.sqlite3", "-o", f"{path}-{part}.theirs", *step, *local_span(span.start, span.end)])
            for part, span in enumerate(self.spans())
        ]

    def compare(self, directory: Path) -> tuple[Counter[str], list[str]]:
        """Compare every cell of all files."""
        ours, counts, errors = self._ours(directory), Counter[str](), []
        for part, span in enumerate(self.spans()):
            theirs = read(directory / f"{self.number}-{part}.theirs")
            for dataset, column in sorted(ours.keys() | theirs.keys()):
                here, there = (_within(span, side.get((dataset, column), {})) for side in (ours, theirs))
                counts["equal"] += sum(1 for time, value in there.items() if here.get(time) == value)
                if dataset.startswith(("datatargets/", "mdtargets/")):
                    errors += self._explained(span, (dataset, column), here, there, counts)
                elif dataset.startswith("dataservers/") and {time: _six_digits(value) for time, value in here.items()} == there:
                    counts["six digits"] += sum(1 for time, value in there.items() if here[time] != value)
                elif here != there:
                    errors.append(f"{dataset} {column}: {sorted(here.items() ^ there.items())[:3]}")
        return counts, errors

    def _ours(self, directory: Path) -> Cells:
        """Archive with `tokioctl archive`, or, over a midnight, window by window into an archive of days."""
        database = directory / f"{self.number}.sqlite3"
        if not self.is_over_midnight:
            options = ["--step", str(self.step), "--mdt-names", "host", *span_options(self.start, self.end)]
            return archived(KIND, [database], directory / f"{self.number}.ours", *options)
        root = directory / f"{self.number}"
        root.mkdir()
        asyncio.run(self._fill(database, root))
        merged: Cells = {}
        for path in sorted(root.iterdir()):
            for column, cells in read(path).items():
                merged.setdefault(column, {}).update(cells)
        return merged

    async def _fill(self, database: Path, root: Path) -> None:
        collector = kind.saved([database], kind.Saved(mdt_names="host"), Site(CALENDAR, FakeClock()))
        source = SourceConfig(name="lmt", kind="lmt", system="fs")
        rates = {"fs": kind.Saved().max_rates()}
        with closing(
            TtsSink(DayFiles(daily(CALENDAR, lambda day, _: root / f"{day.date}"), FakeClock(), UNSYNCED, max_rates=rates))
        ) as sink:
            windows = list(CALENDAR.split(Window(self.start, self.end + self.step), 60))
            for window in random.Random(self.number).sample(windows, len(windows)):  # in any order
                sink.apply(await collect_window(collector, source, window))
            sink.commit()
        await collector.close()

    def _explained(
        self, span: Window, name: tuple[str, str], here: dict[int, float], there: dict[int, float], counts: Counter[str]
    ) -> list[str]:
        """Count a counter's different cells by reason; return those without one, and those that are not what the two rules say."""
        dataset, column = name
        samples = self.columns(dataset, self.start).get(column, {})
        rows_before, rows = (span.start - self.start) // self.step, (span.end - span.start) // self.step
        right, implausible = right_cells(samples, dataset, self.step)
        their_samples = {row - rows_before: value for row, value in samples.items() if rows_before <= row <= rows_before + rows}
        theirs = pytokio_cells(their_samples, rows)
        errors = []
        for row in range(rows):
            time, at = span.start + row * self.step, row + rows_before
            mine, other = here.get(time), there.get(time)
            if (mine, other) != (right.get(at), theirs.get(row)):
                errors.append(
                    f"{dataset} {column} {iso(time)}: tokiod {mine}, its rule {right.get(at)}; pytokio {other}, its rule {theirs.get(row)}"
                )
            elif mine != other:
                reason = Difference(samples, at, mine, other, at in implausible, rows_before).reason()
                if reason is None:
                    errors.append(f"{dataset} {column} {iso(time)}: tokiod {mine}, pytokio {other}: unexplained")
                else:
                    counts[reason] += 1
        return errors

    def columns(self, dataset: str, start: int) -> dict[str, Column]:
        """Return a counter's samples by column and row, rows counted from `start`; of several in a row the last counts."""
        stamps = {ts_id: lmt.instant(text, lmt.ZONE) for ts_id, text in self.tables["TIMESTAMP_INFO"]}
        found: dict[str, Column] = {}
        for name, ts_id, value in sorted(self._samples(dataset), key=lambda sample: sample[1]):
            if value is not None and self.start <= stamps[ts_id] < self.end + self.step:
                found.setdefault(name, {})[(stamps[ts_id] - start) // self.step] = value
        return found

    def _samples(self, dataset: str) -> list[tuple[str, int, int]]:
        if dataset in FIELDS:
            table, place = FIELDS[dataset]
            names = {row[0]: row[2] for row in self.tables["OST_INFO"]}
            return [(names[row[0]], row[1], row[place]) for row in self.tables[table]]
        operations, hosts = {row[0]: row[1] for row in self.tables["OPERATION_INFO"]}, {row[0]: row[3] for row in self.tables["MDS_INFO"]}
        return [(hosts[row[0]], row[1], row[3]) for row in self.tables["MDS_OPS_DATA"] if lmt.DATASETS.get(operations[row[2]]) == dataset]


def _stored(number: float) -> float:
    """Return a number as a FLOAT stores it."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _six_digits(number: float) -> float:
    return float(f"{number:.6g}")


def _within(span: Window, cells: dict[int, float]) -> dict[int, float]:
    return {time: value for time, value in cells.items() if span.start <= time < span.end}


def _with_faults(rng: random.Random, tables: dict[str, list[tuple]]) -> dict[str, list[tuple]]:
    """Replace the counters, which only rise, by others; leave out rows."""
    for table, key, places in (("OST_DATA", (0,), (2, 3)), ("MDS_OPS_DATA", (0, 2), (3,))):
        series: dict[tuple, list[int]] = {}
        for index, row in enumerate(tables[table]):
            series.setdefault(tuple(row[place] for place in key), []).append(index)
        absent: set[int] = set()
        for rows in series.values():
            for place in places:
                for index, value in zip(rows, _counter(rng, len(rows), 10**9 if table == "OST_DATA" else 1000), strict=True):
                    tables[table][index] = (*tables[table][index][:place], value, *tables[table][index][place + 1 :])
            absent |= _holes(rng, rows)
        tables[table] = [row for index, row in enumerate(tables[table]) if index not in absent]
    return tables


def _counter(rng: random.Random, rows: int, grain: int) -> list[int]:
    value, found = rng.choice((0, 0, grain, 2**53 + 1, 10**13)), []
    for _ in range(rows):
        value += rng.choice((0, 1, rng.randrange(grain), rng.randrange(20 * grain)))
        found.append(value)
    for fault in rng.sample(("zeros", "zeros", "dip", "reset", "spike", "idle", "", "", ""), 2):
        place, length = rng.randrange(rows), rng.choice((1, 1, 2, 9))
        if fault == "zeros":
            found[place : place + length] = [0] * len(found[place : place + length])
        elif fault == "dip":
            found[place : place + length] = [value * 2 // 3 for value in found[place : place + length]]
        elif fault == "spike":
            found[place : place + length] = [value + 10**15 for value in found[place : place + length]]
        elif fault == "reset":
            found[place:] = [max(0, value - found[place] + rng.choice((0, 5))) for value in found[place:]]
        elif fault == "idle":
            found = [0] * rows
    return found


def _holes(rng: random.Random, rows: list[int]) -> set[int]:
    absent: set[int] = set()
    for _ in range(rng.choice((0, 0, 1, 3))):
        place = rng.randrange(len(rows))
        absent |= set(rows[place : place + rng.choice((1, 1, 2, 10))])
    return absent


# ---- the two rules


def pytokio_cells(samples: Column, rows: int) -> dict[int, float]:
    """Return the cells that pytokio.timeseries.timeseries_deltas fills: an absent sample is the same as 0, values are float64."""
    cells: dict[int, float] = {}
    known, searching = None, True
    for row in range(rows + 1):
        value, before = float(samples.get(row, 0)), float(samples.get(row - 1, 0))
        if row == 0 or searching:
            if value:
                if row and known is not None and value >= known:
                    cells[row - 1] = value - known
                    searching = False
                known = value
        elif value < before:
            searching = True
        else:
            cells[row - 1], known = value - before, value
    return cells


@dataclass(frozen=True)
class Difference:
    """Two cells that differ, None where missing, and the samples of the column up to that which closes them; row: of the cell."""

    samples: Column
    row: int
    ours: float | None
    theirs: float | None
    is_implausible: bool
    rows_before: int
    """Rows of an earlier day that samples has and pytokio's file has not."""

    @property
    def value(self) -> int:
        return self.samples[self.row + 1]

    @property
    def before(self) -> list[int]:
        """The samples before it, the last one first."""
        return [self.samples[row] for row in sorted(self.samples, reverse=True) if row <= self.row]

    @property
    def nonzero(self) -> list[int]:
        return [value for value in self.before if value]

    def reason(self) -> str | None:
        """Return the row of docs/fidelity.md that explains it; None if no row does."""
        return next((name for name, explains in REASONS.items() if explains(self)), None)


def _has_fallen(different: Difference) -> bool:
    """Whether the nonzero sample before is below an earlier one, with or without others between."""
    return any(earlier > later for later, earlier in pairwise(different.nonzero))


REASONS: dict[str, Callable[[Difference], bool]] = {
    "zeros": lambda d: d.value == 0 and (d.ours, d.theirs) == (0.0, None) and d.before[:1] == [0],
    "implausible": lambda d: d.ours is None and d.theirs is not None and d.is_implausible,
    "day before": lambda d: (
        d.theirs is None and d.ours is not None and not any(d.samples.get(row) for row in range(d.rows_before, d.row + 1))
    ),
    "after zeros": lambda d: d.theirs is None and d.ours is not None and d.value > 0 and d.before[:1] == [0],
    "second cell after a fall": lambda d: d.theirs is None and d.ours is not None and _has_fallen(d) and d.value >= d.nonzero[0],
    "beyond 2^53": lambda d: (
        None not in (d.ours, d.theirs)
        and d.value > 2**53
        and any(d.ours == float(d.value - base) and d.theirs == float(d.value) - float(base) for base in d.nonzero)
    ),
    "restart or dip next to a gap or zeros": lambda d: (
        None not in (d.ours, d.theirs)
        and d.theirs == float(d.value) - float(d.nonzero[0])
        and d.ours < d.theirs
        and any(d.ours == float(d.value - base) for base in d.nonzero[1:] if base > d.nonzero[0])
    ),
}
"""What explains a difference, the first that does. Zeros and gaps are the same to pytokio."""


def right_cells(samples: Column, dataset: str, step: int) -> tuple[dict[int, float], set[int]]:
    """Return tokiod's cells of a column, and the rows of cells that are missing since they are implausible."""
    found, implausible, _ = oracle.run(
        sorted(samples.items()), max_step=MAX_RATE[dataset.partition("/")[0]] * step, reach=oracle.REACH_SECONDS // step
    )
    return {row - 1: float(cell) for row, cell in found.items()}, {row - 1 for row in implausible}
