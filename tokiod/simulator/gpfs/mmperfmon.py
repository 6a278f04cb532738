"""`mmperfmon query` over a site's GPFS: legend and tables as they are printed, wrapped where a terminal would end."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING

from tokiod.simulator.drawn import draw
from tokiod.simulator.fake_commands import Reply, failing
from tokiod.simulator.gpfs.sensors import BUCKET, OF_DISK, OF_SERVER, UNITS, Gpfs, Printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.simulator.site import Site

    Column = tuple[str, list[str]]

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
