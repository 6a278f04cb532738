"""Random outputs of mmperfmon, and what pytokio's rule and tokiod's make of them."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import lmt_database as lmt
from mmperfmon_outputs import output, shown

from tests.fidelity.cells import Cells, SpanCase, archived, compared, local_span, read, span_options

if TYPE_CHECKING:
    import random
    from collections import Counter
    from pathlib import Path

    from tests.fidelity.cells import Column

KIND = "mmperfmon"
MIDNIGHT = 1_517_212_800
"""2018-01-29T00:00:00 in Los Angeles."""
HOSTS = ("ngfsv1.site.org", "ngfsv2.site.org")
LUNS = {r"nsd\d+": "datatarget", r"md\d+": "mdtarget"}
"""As tests/fidelity/pytokio_archive.py sets them in pytokio."""
BYTES = {"kB": 1024, "MB": 1048576}
DATASETS = {
    "cpu_user": "dataservers/cpuuser", "cpu_sys": "dataservers/cpusys", "mem_total": "dataservers/memtotal",
    "mem_free": "dataservers/memfree", "net_r": "dataservers/netinbytes",
    "gpfs_nsdds_bytes_read": "{}s/readbytes", "gpfs_nsdds_bytes_written": "{}s/writebytes",
}  # fmt: skip


class Metric(NamedTuple):
    """A column of an output: its key in the legend, the dataset and the column of a file."""

    key: str
    counter: str
    dataset: str
    column: str


class Sample(NamedTuple):
    """A printed value, None for null; end: of its bucket, epoch seconds; order: of its output and row."""

    metric: Metric
    end: int
    value: float | None
    order: tuple[int, int]


@dataclass
class Case(SpanCase):
    """Outputs with buckets of `step` seconds, and the span [start, end) of a file of them. is_scaled: CPU figures as in pytokio."""

    is_scaled: bool
    texts: list[bytes] = field(repr=False)
    samples: list[Sample] = field(repr=False)

    @classmethod
    def made(cls, rng: random.Random, number: int) -> Case:
        """Make a case: on the grid or off it, with buckets of a minute or others, within a day or over a midnight."""
        step = rng.choice((60, 60, 60, 30, 300, 600))
        begin = MIDNIGHT - step * rng.randrange(2, 8) if rng.random() < 1 / 3 else lmt.START + 600 * rng.randrange(100)
        start = begin + rng.choice((0, 0, step // 2, 1))
        rows, texts, samples = rng.choice((10, 20)), [], []
        for first in range(0, rows, rng.choice((rows, 5, 7))):
            text, some = _output(rng, begin + first * step, min(8, rows - first + 1), step, len(texts))
            texts.append(text)
            samples += some
        return cls(number, start, start + step * rows, step, rng.random() < 1 / 2, texts, samples)

    def write(self, directory: Path) -> None:
        """Write each output to a file, in the order of their names."""
        for path, text in zip(self._paths(directory), self.texts, strict=True):
            path.write_bytes(text)

    def theirs(self, directory: Path) -> list[tuple[str, list[str]]]:
        """Return the commands of pytokio."""
        start, end = local_span(self.start, self.end)
        options = ["--init-start", start, "--init-end", end, "--timestep", str(self.step), "-o", str(directory / f"{self.number}.theirs")]
        return [(KIND, [*options, *map(str, self._paths(directory))])]

    def compare(self, directory: Path) -> tuple[Counter[str], list[str]]:
        """Compare every cell of both files."""
        given = ["--step", str(self.step), *span_options(self.start, self.end), *(["--cpu-scale", "100"] if self.is_scaled else [])]
        given += [part for pattern, kind in LUNS.items() for part in ("--lun-map", f"{pattern}={kind}")]
        ours = archived(KIND, self._paths(directory), directory / f"{self.number}.ours", *given)
        # Of pytokio's file each row is compared with the one before it, in which its buckets begin.
        theirs, rule = (self._moved(cells) for cells in (read(directory / f"{self.number}.theirs"), self._pytokio()))
        return compared(ours, theirs, (self._right(), rule), self._reason)

    def _moved(self, cells: Cells) -> Cells:
        return {column: {row - self.step: value for row, value in found.items()} for column, found in cells.items()}

    def _paths(self, directory: Path) -> list[Path]:
        return [directory / f"{self.number}-{place:03}.out" for place in range(len(self.texts))]

    def _row(self, time: int) -> int | None:
        return self.start + (time - self.start) // self.step * self.step if self.start <= time < self.end else None

    def _cells(self, time_of: int, scale: float) -> Cells:
        """Return the cells of the last values of each row that are not null; time_of: seconds from a bucket's end to its row."""
        cells: Cells = defaultdict(dict)
        for sample in sorted(self.samples, key=lambda one: one.order):
            row = self._row(sample.end + time_of)
            if row is not None and sample.value is not None:
                factor = scale if sample.metric.counter.startswith("cpu") else 1.0
                cells[sample.metric.dataset, sample.metric.column][row] = sample.value * factor
        return cells

    def _right(self) -> Cells:
        """Return tokiod's cells: a bucket is in the row in which it begins."""
        cells = self._cells(-self.step, 100.0 if self.is_scaled else 1.0)
        for host in HOSTS:
            user, system = (cells.get((f"dataservers/{name}", host), {}) for name in ("cpuuser", "cpusys"))
            cells["dataservers/cpuload", host] = {row: user[row] + system[row] for row in user.keys() & system.keys()}
        return cells

    def _pytokio(self) -> Cells:
        """Return pytokio's cells: a bucket is in the row in which it ends; the load is the sum of all cpu_user of a row, as printed."""
        cells = {column: found for column, found in self._cells(0, 100.0).items() if not column[0].endswith("netinbytes")}
        loads: Cells = defaultdict(dict)
        for (host, end), value in self._last("cpu_user").items():
            row = self._row(end)
            if row is not None:
                loads["dataservers/cpuload", host][row] = loads["dataservers/cpuload", host].get(row, 0.0) + value
        return {**cells, **loads}

    def _last(self, counter: str) -> dict[tuple[str, int], float]:
        """Return the last value of each host and bucket that is not null."""
        samples = sorted((one for one in self.samples if one.metric.counter == counter), key=lambda one: one.order)
        return {(one.metric.column, one.end): one.value for one in samples if one.value is not None}

    def _reason(self, column: Column, row: int) -> str | None:
        """Return the row of docs/fidelity.md that explains a different cell."""
        dataset = column[0].partition("/")[2]
        if dataset != "netinbytes" and row in {self.start - self.step, self.end - self.step}:
            return "the row of a bucket"
        if dataset == "cpuload":
            return "cpuload"
        if dataset in {"cpuuser", "cpusys"} and not self.is_scaled:
            return "CPU figures times 100"
        return "network" if dataset == "netinbytes" else None


def _output(rng: random.Random, begin: int, rows: int, step: int, number: int) -> tuple[bytes, list[Sample]]:
    """Return an output of buckets from `begin` on, some repeated, some missing, some null, and what it says."""
    ends = [begin + step * (row + 1) for row in range(rows) if rng.random() > 0.05] or [begin + step]
    if rng.random() < 0.2:
        ends.insert(rng.randrange(len(ends)), rng.choice(ends))
    times = [dt.datetime.fromtimestamp(end, ZoneInfo(lmt.ZONE)).strftime("%Y-%m-%d-%H:%M:%S") for end in ends]
    columns, samples = {}, []
    for metric in _metrics(rng):
        values = [None if rng.random() < 0.03 else _value(rng, metric.counter) for _ in ends]
        columns[metric.key] = values
        printed = [_printed(metric.key, value) for value in values]
        samples += [Sample(metric, end, value, (number, row)) for row, (end, value) in enumerate(zip(ends, printed, strict=True))]
    return output(columns, times, rng.choice((80, 200))), samples


def _metrics(rng: random.Random) -> list[Metric]:
    found = []
    for host in HOSTS:
        for counter, sensor in (("cpu_user", "CPU"), ("cpu_sys", "CPU"), ("mem_total", "Memory"), ("mem_free", "Memory")):
            found.append(Metric(f"{host}|{sensor}|{counter}", counter, DATASETS[counter], host))
        found.append(Metric(f"{host}|Network|eth0|net_r", "net_r", DATASETS["net_r"], host))
        for nsd, kind in (("nsd1", "datatarget"), ("nsd2", "datatarget"), ("md1", "mdtarget")):
            found += [
                Metric(f"{host}|GPFSNSDDisk|{nsd}|{counter}", counter, DATASETS[counter].format(kind), f"{host}:{nsd}")
                for counter in ("gpfs_nsdds_bytes_read", "gpfs_nsdds_bytes_written")
            ]
    return [metric for metric in found if rng.random() > 0.02]


def _value(rng: random.Random, counter: str) -> float:
    if counter.startswith("cpu"):
        return rng.choice((0.0, round(rng.random() * 7, 2)))
    if counter.startswith(("mem", "net")):
        return float(rng.randrange(2048, 2**29))
    return rng.choice((0, rng.randrange(10**11)))


def _printed(key: str, value: float | None) -> float | None:
    """Return a value as its printed text says it: bytes of memory and network are rounded."""
    if value is None:
        return None
    number, _, unit = shown(key, value).partition(" ")
    return float(number) * BYTES.get(unit, 1)
