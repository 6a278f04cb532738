"""Random outputs of lfs df and lctl dl -t, what pytokio reads from them, and what tokiod's rule makes of them.

pytokio has no program that archives them, so the rows of a file are compared with the objects that its connectors return.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import lmt_database as lmt

from tests.fidelity.cells import Cells, SpanCase, archived, compared, span_options

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.fidelity.cells import Column

KIND = "lustre"
HEADER = "UUID                   1K-blocks        Used   Available Use% Mounted on"
UUID = "8dbdc7f6-8f86-86ea-052f-357e2db2a7d9"
SERVERS, TARGETS = 3, 6
FULLNESS = ("fullness/bytes", "fullness/bytestotal")
FAILOVER, SERVED = "failover/datatargets", "failover/dataservers"


@dataclass(frozen=True)
class Row:
    """A row of lfs df. name: of the target; flags: after its mount point; is_repeated: the same target was listed before."""

    name: str
    total: int
    used: int
    flags: str = ""
    is_repeated: bool = False

    def text(self) -> str:
        share = f"{self.name}_UUID {self.total} {self.used} {self.total - self.used} {100 * self.used // self.total:3}%"
        return f"{share} /scratch[OST:{int(self.name[-4:], 16)}]{self.flags}"


@dataclass(frozen=True)
class Listing:
    """An output of lfs df and one of lctl dl -t. served: the server of each target by name; has_header: of lfs df."""

    time: int
    rows: tuple[Row, ...]
    served: dict[str, int]
    has_header: bool = True
    down: frozenset[str] = frozenset()

    def df(self) -> str:
        lines = ["", HEADER] if self.has_header else []
        return (
            "\n".join([f"BEGIN {self.time}", *lines, *(row.text() for row in self.rows), "", "filesystem_summary: 1 1 1 1% /scratch"])
            + "\n"
        )

    def dl(self) -> str:
        lines = [
            f"{place:3} {'IN' if name in self.down else 'UP'} osc {name}-osc-ffff885f81a64000 {UUID} 5 10.1.1.{server}@o2ib"
            for place, (name, server) in enumerate(self.served.items(), 1)
        ]
        return "\n".join([f"BEGIN {self.time}", *lines]) + "\n"


@dataclass
class Case(SpanCase):
    """Listings of a file system, and the span [start, end) of a file of them. step: of the file's rows."""

    listings: list[Listing] = field(repr=False)

    @classmethod
    def made(cls, rng: random.Random, number: int) -> Case:
        """Make a case: a file system with a name that pytokio knows or another, some rows odd, some targets away from home."""
        step, start = rng.choice((60, 300, 900, 8)), lmt.START + 60 * rng.randrange(1000) + rng.choice((0, 0, 30))
        name, count = rng.choice(("snx11025", "snx11025", "scratch")), rng.choice((10, 20))
        times = [start + rng.choice((0, 5)) + 60 * place for place in range(count)]
        listings = [_listing(rng, name, time, is_first=not place) for place, time in enumerate(times)]
        return cls(number, start, start + step * -(-60 * count // step), step, listings)

    def write(self, directory: Path) -> None:
        """Write both files, as a timer collects them."""
        (directory / f"{self.number}.df").write_text("".join(one.df() for one in self.listings))
        (directory / f"{self.number}.dl").write_text("".join(one.dl() for one in self.listings))

    def theirs(self, directory: Path) -> list[tuple[str, list[str]]]:
        """Return the commands of pytokio."""
        return [(KIND, [str(directory / f"{self.number}.{name}") for name in ("df", "dl", "theirs")])]

    def compare(self, directory: Path) -> tuple[Counter[str], list[str]]:
        """Compare every cell with the last listing of its row that pytokio reads."""
        inputs = [directory / f"{self.number}.{name}" for name in ("df", "dl")]
        homes = [part for name, server in _homes(self.listings[0]).items() for part in ("--home", f"{name}=10.1.1.{server}@o2ib")]
        given = ["--step", str(self.step), *homes, *span_options(self.start, self.end)]
        ours = archived(KIND, inputs, directory / f"{self.number}.ours", *given)
        theirs = json.loads((directory / f"{self.number}.theirs").read_text())
        found, rule = self._rows(theirs), self._rows(self._pytokio())
        return compared(ours, found, (self._right(), rule), self._reason)

    def _row(self, time: int) -> int:
        return self.start + (time - self.start) // self.step * self.step

    def _right(self) -> Cells:
        """Return tokiod's cells: of rows with a header, the first of each target; 1 for each target away from home; OSTs of each server."""
        cells: Cells = defaultdict(dict)
        for listing in self.listings:
            row = self._row(listing.time)
            for one in listing.rows:
                if listing.has_header and not one.is_repeated:
                    for dataset, value in zip(FULLNESS, (one.used, one.total), strict=True):
                        cells[dataset, one.name][row] = float(value)
            homes = _homes(listing)
            for name, server in listing.served.items():
                if name not in listing.down:
                    cells[FAILOVER, name][row] = float(server != homes[name])
            counts = Counter(server for name, server in listing.served.items() if name not in listing.down)
            for server, count in counts.items():
                cells[SERVED, f"10.1.1.{server}@o2ib"][row] = float(count)
        return cells

    def _pytokio(self) -> dict[str, dict[str, dict[str, list[float]]]]:
        """Return what pytokio reads: rows that end with the mount point of file systems called snx..., the last of each target."""
        full, served = {}, {}
        for listing in self.listings:
            rows = [one for one in listing.rows if one.name.startswith("snx") and not one.flags]
            full[str(listing.time)] = {one.name: [float(one.used), float(one.total)] for one in rows}
        for listing in self.listings[:-1]:
            known = {name: server for name, server in listing.served.items() if name.startswith("snx")}
            counts = Counter(known.values())
            sizes = Counter(counts.values())
            usual = next((size for size in dict.fromkeys(counts.values()) if sizes[size] == max(sizes.values())), 0)
            served[str(listing.time)] = {name: [float(counts[server] != usual)] for name, server in known.items()}
        return {"fullness": full, "failover": served}

    def _rows(self, read: dict[str, dict[str, dict[str, list[float]]]]) -> Cells:
        """Put what pytokio reads into the rows of a file; the later listing counts."""
        cells: Cells = defaultdict(dict)
        for what, datasets in (("fullness", FULLNESS), ("failover", (FAILOVER,))):
            for time, targets in sorted(read[what].items(), key=lambda one: int(one[0])):
                for name, values in targets.items():
                    for dataset, value in zip(datasets, values, strict=True):
                        cells[dataset, name][self._row(int(time))] = value
        return cells

    def _reason(self, column: Column, row: int) -> str | None:
        """Return the row of docs/fidelity.md that explains a different cell, by the listings of its row."""
        dataset, name = column
        listings = [one for one in self.listings if self._row(one.time) == row]
        rows = [one for listing in listings for one in listing.rows if one.name == name]
        if dataset == SERVED:
            return "OSTs of each server"
        if not name.startswith("snx"):
            return "a file system not called snx..."
        if dataset in FULLNESS:
            odd = {
                "targets with flags": any(one.flags for one in rows),
                "lfs df without its header": not all(one.has_header for one in listings),
            }
            odd["a target that is listed twice"] = any(one.is_repeated for one in rows)
            return next((reason for reason, applies in odd.items() if applies), None)
        if any(name in one.down for one in listings):
            return "devices that are not UP"
        return "the last BEGIN block" if listings[-1] is self.listings[-1] else "failover"


def _homes(listing: Listing) -> dict[str, int]:
    return {name: 1 + int(name[-4:], 16) // (TARGETS // SERVERS) for name in listing.served}


def _listing(rng: random.Random, file_system: str, time: int, *, is_first: bool) -> Listing:
    names = [f"{file_system}-OST{index:04x}" for index in range(TARGETS)]
    rows = []
    for name in names:
        total = 10**9 + rng.randrange(10**9)
        row = Row(name, total, rng.randrange(total), rng.choice(("", "", "", "", " D", " R")) if rng.random() < 0.2 else "")
        if rng.random() > 0.05 or is_first:
            rows += [row, replace(row, is_repeated=True)] if rng.random() < 0.05 else [row]
    served = {name: 1 + index // (TARGETS // SERVERS) for index, name in enumerate(names)}
    if rng.random() < 0.3 and not is_first:
        guests, host = rng.randrange(1, SERVERS + 1), rng.randrange(1, SERVERS + 1)
        served = {name: host if server == guests else server for name, server in served.items()}
    down = frozenset(name for name in names if rng.random() < 0.03)
    return Listing(time, tuple(rows), served, is_first or rng.random() > 0.05, down)
