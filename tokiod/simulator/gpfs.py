"""A simulated GPFS cluster: what its sensors measure, what `mmperfmon query` prints of it, wrapped as on a terminal, and the archive.

Numbers are as precise as mmperfmon prints them: of few digits, some of them in units. Each bucket is in the row of its begin.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.drawn import draw, power
from tokiod.simulator.expected import Answer, Expected, steps
from tokiod.simulator.fake_commands import Reply, failing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.simulator.site import Site
    from tokiod.window import Window

    Floats = NDArray[np.float64]

    Column = tuple[str, list[str]]


BUCKET = 60
"""Seconds of a bucket; bucket k begins at origin + k * BUCKET."""
BLOCK = 60
NETWORKS = ("lo", "eth0", "ib0")
OF_SERVER = (
    "CPU|cpu_user", "CPU|cpu_sys", "Memory|mem_total", "Memory|mem_free",
    *(f"Network|{network}|{way}" for network in NETWORKS for way in ("net_r", "net_s")),
)  # fmt: skip
OF_DISK = ("gpfs_nsdds_bytes_read", "gpfs_nsdds_bytes_written", "gpfs_nsdds_read_ops", "gpfs_nsdds_write_ops")
UNITS = ("", "kB", "MB", "GB", "TB")

_CPUS, _MEMORIES = 2, 4
"""Where those of a server end."""
_MEMORY = 31371.0
"""MB of each server."""


@dataclass(frozen=True, slots=True, eq=False)
class Printed:
    """What is printed: the number, NaN where that is null, and which of UNITS stands behind it; both [n, of, metrics]."""

    number: Floats
    unit: NDArray[np.int64]

    @property
    def value(self) -> Floats:
        """What that says, in bytes where it has a unit."""
        return np.asarray(self.number * (1 << 10 * self.unit))


class Gpfs:
    """The buckets of a site's GPFS, by server (OF_SERVER) and by disk (OF_DISK)."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.origin = -(-site.epoch // BUCKET) * BUCKET
        self._block = lru_cache(maxsize=32)(lambda block: (self._servers(block), self._disks(block)))

    def servers(self, first: int, last: int) -> Printed:
        """Return the buckets [first, last), 0 <= first <= last, of all servers."""
        return self._cut(0, first, last)

    def disks(self, first: int, last: int) -> Printed:
        """Return the same of all disks."""
        return self._cut(1, first, last)

    def _cut(self, part: int, first: int, last: int) -> Printed:
        start = first // BLOCK
        blocks = [self._block(block)[part] for block in range(start, max(-(-last // BLOCK), start + 1))]
        cut = slice(first - start * BLOCK, last - start * BLOCK)
        return Printed(np.concatenate([one.number for one in blocks])[cut], np.concatenate([one.unit for one in blocks])[cut])

    def _servers(self, block: int) -> Printed:
        site = self.site
        load, absent = draw(site, "gpfs server", block, 2, BLOCK, site.nsd_servers, len(OF_SERVER))
        number, unit = np.empty_like(load), np.zeros(load.shape, np.int64)
        number[..., :_CPUS] = np.round(50 * power(load[..., :_CPUS], 4), 2)
        number[..., _CPUS] = _MEMORY
        number[..., _CPUS + 1] = np.round(_MEMORY * (0.2 + 0.6 * load[..., _CPUS + 1]), 1)
        unit[..., _CPUS:_MEMORIES] = 2
        traffic = power(2, 35 * load[..., _MEMORIES:])
        unit[..., _MEMORIES:] = 1 + (traffic >= 2**20) + (traffic >= 2**30)
        number[..., _MEMORIES:] = np.round(traffic / (1 << 10 * unit[..., _MEMORIES:]), 1)
        number[absent < site.trouble / 250] = np.nan
        return Printed(number, unit)

    def _disks(self, block: int) -> Printed:
        site = self.site
        load, absent = draw(site, "gpfs disk", block, 2, BLOCK, site.nsds, len(OF_DISK))
        number = np.floor(np.array([2**40, 2**40, 2**20, 2**20]) * power(np.maximum(load - 0.3, 0), 5))
        number[absent < site.trouble / 250] = np.nan
        return Printed(number, np.zeros(number.shape, np.int64))


NAMED = {"usage": tuple(metric.rpartition("|")[2] for metric in OF_SERVER[:6])}
"""The metrics of mmperfmon's own queries."""

_FORM = "%Y-%m-%d-%H:%M:%S"
_STATES = ("error", "hang", "cut")


class Mmperfmon:
    """Answers command lines `mmperfmon query METRICS START END -b 60`, times in UTC, at a time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._load = Gpfs(site)

    def __call__(self, argv: list[str], now: float) -> Reply:
        """Return what a command prints, as it prints it."""
        match argv:
            case ["mmperfmon", "query", metrics, start, end, "-b", bucket] if int(bucket) == BUCKET:
                state = failing(self._site, "mmperfmon", now, _STATES)
                if state == "error":
                    return Reply(1, stderr="mmperfmon: the performance monitoring collector did not answer")
                if state == "hang":
                    return Reply(hangs=True)
                text = self._text(NAMED.get(metrics, tuple(metrics.split(","))), (_epoch(start), _epoch(end)), now)
                # In the middle of a line: in between two lines, nothing tells that there was more.
                return Reply(stdout=text[: text.rindex("\n", 0, 2 * len(text) // 3) - 7] if state == "cut" else text)
            case _:
                return Reply(2, stderr=f"the simulator's mmperfmon does not know {' '.join(argv)}")

    def _text(self, metrics: tuple[str, ...], times: tuple[int, int], now: float) -> str:
        # Of a bucket, the time stamp tells the end.
        first = max(0, -(-(times[0] - self._load.origin) // BUCKET) - 1)
        last = max(first, (min(times[1], int(now)) - self._load.origin) // BUCKET)
        columns = [*self._servers(metrics, first, last), *self._disks(metrics, first, last)]
        stamps = [_stamp(self._load.origin + (bucket + 1) * BUCKET) for bucket in range(first, last)]
        width, repeated, which = draw(self._site, "mmperfmon form", int(now) // BUCKET, 3).tolist()
        if stamps and repeated < self._site.trouble / 4:
            # The collector repeats itself at times.
            at = int(which * len(stamps))
            stamps.insert(at, stamps[at])
            for _, texts in columns:
                texts.insert(at, texts[at])
        return "".join(_output(columns, stamps, 60 + int(200 * width)))

    def _servers(self, metrics: tuple[str, ...], first: int, last: int) -> Iterator[Column]:
        printed = self._load.servers(first, last)
        for server, host in enumerate(self._site.nsd_server_names):
            for number, metric in enumerate(OF_SERVER):
                if metric.rpartition("|")[2] in metrics:
                    yield f"{host}|{metric}", _texts(printed, server, number)

    def _disks(self, metrics: tuple[str, ...], first: int, last: int) -> Iterator[Column]:
        printed, hosts = self._load.disks(first, last), self._site.nsd_server_names
        for number, metric in enumerate(OF_DISK):
            for disk, name in enumerate(self._site.nsd_names):
                if metric in metrics:
                    yield f"{hosts[disk % len(hosts)]}|GPFSNSDDisk|{name}|{metric}", _texts(printed, disk, number)


def _texts(printed: Printed, of: int, metric: int) -> list[str]:
    """Return a column's cells."""
    numbers, units = printed.number[:, of, metric].tolist(), printed.unit[:, of, metric].tolist()
    return [
        "null" if math.isnan(number) else f"{number:.1f} {UNITS[unit]}" if unit else f"{number:.2f}".rstrip("0").rstrip(".")
        for number, unit in zip(numbers, units, strict=True)
    ]


def _output(columns: list[Column], stamps: list[str], width: int) -> Iterator[str]:
    yield "\nLegend:\n"
    for number, (key, _) in enumerate(columns):
        yield f"{number + 1:2}:\t{key}\n"
    yield " \n"
    for table in _tables(columns, width - len("Row           Timestamp ")):
        widths = [_width(column) for column in table]
        names = [key.rpartition("|")[2].rjust(space) for (key, _), space in zip(table, widths, strict=True)]
        yield f"Row           Timestamp {' '.join(names)} \n"
        for row, stamp in enumerate(stamps):
            cells = [texts[row].rjust(space) for (_, texts), space in zip(table, widths, strict=True)]
            yield f"{row + 1:3} {stamp} {' '.join(cells)} \n"
        yield "\n"


def _tables(columns: list[Column], width: int) -> Iterator[list[Column]]:
    """Return as many columns at a time as the width has room for, one at least."""
    table: list[Column] = []
    for column in columns:
        if table and sum(_width(one) + 1 for one in (*table, column)) > width:
            yield table
            table = []
        table.append(column)
    if table:
        yield table


def _width(column: Column) -> int:
    key, texts = column
    return max(len(key.rpartition("|")[2]), *map(len, texts), 4)


def _epoch(text: str) -> int:
    return int(dt.datetime.strptime(text, _FORM).replace(tzinfo=dt.UTC).timestamp())


def _stamp(epoch: int) -> str:
    return dt.datetime.fromtimestamp(epoch, dt.UTC).strftime(_FORM)


_NAMES = dict(zip(("readbytes", "writebytes", "readops", "writeops"), range(len(OF_DISK)), strict=True))


class GpfsAnswers(Expected):
    """What the files of a site's GPFS hold."""

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file."""
        times, load = steps(file, BUCKET), _load(self.site)
        told = self.in_archive(times) & (times >= load.origin)
        buckets = (times[told] - load.origin) // BUCKET
        answers = {}
        for name, columns, cells in self._datasets(load, buckets):
            values = np.full((len(times), len(columns)), np.nan)
            values[told] = cells
            answers[name] = self.answer(columns, times, values)
        return answers

    def _datasets(self, load: Gpfs, buckets: NDArray[np.int64]) -> list[tuple[str, tuple[str, ...], Floats]]:
        """Return name, columns and the cells of these buckets, ascending, f8[n, columns]."""
        first, last = (int(buckets[0]), int(buckets[-1]) + 1) if len(buckets) else (0, 0)
        servers, disks = (_at(part, buckets - first) for part in (load.servers(first, last), load.disks(first, last)))
        hosts, nsds, home = self.site.nsd_server_names, self.site.nsd_names, np.arange(self.site.nsds) % self.site.nsd_servers
        found = []
        for kind, own, its in (("md", slice(0, 1), home == 0), ("data", slice(1, None), home != 0)):
            found += [(f"{kind}servers/{name}", hosts[own], values[:, own]) for name, values in _of_servers(servers).items()]
            columns = tuple(f"{hosts[home[j]]}:{nsds[j]}" for j in its.nonzero()[0].tolist())
            found += [(f"{kind}targets/{name}", columns, disks[:, its, metric]) for name, metric in _NAMES.items()]
        return found


def _at(printed: Printed, rows: NDArray[np.int64]) -> Floats:
    return np.asarray(printed.value[rows])


def _of_servers(values: Floats) -> dict[str, Floats]:
    """Return f8[n, servers] by name. Traffic is that of all networks but the one that leaves no server, or nothing where one is null."""
    user, system, total, free = (values[..., metric] for metric in range(4))
    received, sent = (sum(values[..., OF_SERVER.index(f"Network|{name}|net_{way}")] for name in ("eth0", "ib0")) for way in "rs")
    return {
        "cpuuser": user, "cpusys": system, "cpuload": user + system, "memtotal": total, "memfree": free,
        "netinbytes": np.asarray(received), "netoutbytes": np.asarray(sent),
    }  # fmt: skip


_load = lru_cache(maxsize=2)(Gpfs)
