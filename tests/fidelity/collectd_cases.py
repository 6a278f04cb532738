"""Random pages of collectd's documents, and what pytokio's rule and tokiod's make of them."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import lmt_database as lmt

from tests.fidelity.cells import Cells, SpanCase, archived, compared, local_span, read, span_options

if TYPE_CHECKING:
    import random
    from collections import Counter
    from pathlib import Path

    from tests.fidelity.cells import Column

KIND = "collectd_es"
MIDNIGHT = 1_517_212_800
"""2018-01-29T00:00:00 in Los Angeles."""
EVERY = 10
"""Seconds between two documents of a series."""
HOSTS, DEVICES, CORES = ("bb01", "bb02"), ("nvme0n1", "nvme1n1"), ("0", "1", "2")
DISK = {"disk_octets": ("readrates", "writerates"), "disk_ops": ("readoprates", "writeoprates")}
MEMORY = {"cached": "memcached", "free": "memfree", "used": "memused", "slab_recl": "memslab"}
CPU = {"idle": "cpuload", "user": "cpuuser", "system": "cpusys"}


class Document(NamedTuple):
    """A document. oddity: the row of docs/fidelity.md that it is for, or empty."""

    time: int
    host: str
    plugin: str
    type: str
    part: str
    instance: str
    values: dict[str, Any]
    oddity: str = ""
    has_zone: bool = True

    def hit(self, number: int) -> dict[str, Any]:
        """Return the document as Elasticsearch does; time: UTC epoch milliseconds."""
        stamp = dt.datetime.fromtimestamp(self.time / 1000, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "")
        source = {"@timestamp": stamp + ("Z" if self.has_zone else ""), "hostname": self.host, "plugin": self.plugin}
        source |= {"collectd_type": self.type, "type_instance": self.instance, "plugin_instance": self.part, **self.values}
        return {"_index": "i", "_id": str(number), "_source": {name: value for name, value in source.items() if value != ""}}

    def local_time(self) -> int:
        """Return the epoch second at which pytokio puts it: a stamp without a zone is taken for one of this machine's zone."""
        return self.time // 1000 if self.has_zone else lmt.instant(_text(self.time // 1000), lmt.ZONE)


class Sample(NamedTuple):
    """A value that one of the programs stores. at: epoch milliseconds; page: of its document."""

    at: int
    core: str
    value: float
    page: int
    document: Document


@dataclass
class Case(SpanCase):
    """Pages of documents, and the span [start, end) of a file of them. step: of the file's rows."""

    pages: list[list[Document]] = field(repr=False)

    @classmethod
    def made(cls, rng: random.Random, number: int) -> Case:
        """Make a case: on the grid or off it, with collectd's step or another one, within a day or over a midnight."""
        step, off = rng.choice((10, 10, 10, 8, 30, 60, 1)), rng.choice((0, 0, 1, 3, 7))
        begin = MIDNIGHT - 10 * rng.randrange(5, 30) if rng.random() < 1 / 3 else lmt.START + 10 * rng.randrange(1000)
        start, length = begin + off, 10 * rng.choice((12, 30, 60))
        end = start + step * max(1, length // step) + rng.choice((0, 0, 0, step // 2))
        documents = _documents(rng, begin - 20, begin + length + 60)
        if rng.random() < 1 / 2:
            rng.shuffle(documents)
        size = rng.choice((len(documents), len(documents), 200, 37))
        return cls(number, start, end, step, [documents[at : at + size] for at in range(0, len(documents), size)])

    def write(self, directory: Path) -> None:
        """Write the pages, as a scroll saves them."""
        pages = [[one.hit(1000 * page + place) for place, one in enumerate(some)] for page, some in enumerate(self.pages)]
        (directory / f"{self.number}.json").write_text(json.dumps(pages))

    def theirs(self, directory: Path) -> list[tuple[str, list[str]]]:
        """Return the commands of pytokio."""
        path = str(directory / f"{self.number}")
        size = ["--num-nodes", str(len(HOSTS)), "--ssds-per-node", str(len(DEVICES)), "--timestep", str(self.step)]
        return [(KIND, ["--input", f"{path}.json", "-o", f"{path}.theirs", *size, *local_span(self.start, self.end)])]

    def compare(self, directory: Path) -> tuple[Counter[str], list[str]]:
        """Compare every cell of both files."""
        given = ["--step", str(self.step), "--parse-workers", "0", *span_options(self.start, self.end)]
        ours = archived(KIND, [directory / f"{self.number}.json"], directory / f"{self.number}.ours", *given)
        mine, other = self._samples(_ours), self._samples(_theirs)
        rules = self._right(mine), _pytokio(other)
        return compared(ours, read(directory / f"{self.number}.theirs"), rules, lambda column, time: _reason(column, time, mine, other))

    def _samples(self, stored: Any) -> dict[Column, dict[int, list[Sample]]]:
        """Return the samples of each cell, in the order of the pages."""
        found: dict[Column, dict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        for number, page in enumerate(self.pages):
            for document in page:
                for column, at, core, value in stored(document):
                    row = (at // 1000 - self.start) // self.step
                    if 0 <= row < -(-(self.end - self.start) // self.step) and (stored is _theirs or at // 1000 < self.end):
                        found[column][self.start + row * self.step].append(Sample(at, core, value, number, document))
        return found

    def _right(self, samples: dict[Column, dict[int, list[Sample]]]) -> Cells:
        """Return tokiod's cells: of one series and time the largest value, then the last in time, or the mean over a host's cores."""
        cells: Cells = defaultdict(dict)
        for column, of_column in samples.items():
            for time, some in of_column.items():
                once: dict[tuple[str, int], float] = {}
                for one in some:
                    once[one.core, one.at] = max(one.value, once.get((one.core, one.at), one.value))
                if column[0].removeprefix("dataservers/") in CPU.values():
                    cells[column][time] = sum(once.values()) / len(once)
                else:
                    cells[column][time] = once[max(once, key=lambda key: key[1])]
        return cells


def _pytokio(samples: dict[Column, dict[int, list[Sample]]]) -> Cells:
    """Return pytokio's cells: the last in the order of the pages; sums of CPU figures are divided once for each page."""
    cells: Cells = defaultdict(dict)
    for column, of_column in samples.items():
        for time, some in of_column.items():
            if column[0].removeprefix("dataservers/") in CPU.values():
                cells[column][time] = sum(one.value for one in some) / len(some) ** len({one.page for one in some})
            else:
                cells[column][time] = some[-1].value
    return cells


def _theirs(document: Document) -> list[tuple[Column, int, str, float]]:
    """Return what pytokio stores of a document: column, time, core and value."""
    at, values = document.local_time() * 1000, document.values
    if document.plugin == "disk":
        name = f"{document.host}:{document.part}"
        both = ("read" in values and "write" in values) * DISK[document.type]
        return [((f"datatargets/{to}", name), at, "", float(values[way])) for to, way in zip(both, ("read", "write"), strict=False)]
    if document.plugin == "cpu":
        to, value = CPU[document.instance], float(values["value"])
        return [((f"dataservers/{to}", document.host), at, document.part, 100.0 - value if to == "cpuload" else value)]
    return [((f"dataservers/{MEMORY[document.instance]}", document.host), at, "", float(values["value"]))]


def _ours(document: Document) -> list[tuple[Column, int, str, float]]:
    """Return what tokiod stores of a document."""
    is_stored = document.oddity != ANOTHER and document.has_zone
    values = {name: value for name, value in document.values.items() if type(value) is float and value >= 0 and is_stored}
    host, at = document.host, document.time
    if document.plugin == "disk":
        ways = dict(zip(("read", "write"), DISK[document.type], strict=True))
        return [((f"datatargets/{to}", f"{host}:{document.part}"), at, "", values[way]) for way, to in ways.items() if way in values]
    if "value" not in values:
        return []
    if document.plugin == "cpu":
        to, value = CPU[document.instance], values["value"]
        return [((f"dataservers/{to}", host), at, document.part, 100.0 - value if to == "cpuload" else value)]
    return [((f"dataservers/{MEMORY[document.instance]}", host), at, "", values["value"])]


ANOTHER = "another quantity"
ODDITIES = ("one of read and write", "duplicate documents", ANOTHER, "boolean", "stamp without a zone")


def _documents(rng: random.Random, start: int, end: int) -> list[Document]:
    """Return documents every EVERY seconds of each series, at whole seconds or anywhere, some of them odd."""
    jitter, share = rng.choice((0, 0, 999, 9999)), rng.choice((0.0, 0.02, 0.1))
    found = []
    for at in range(start, end, EVERY):
        for document in _regular(rng, at * 1000 + rng.randrange(jitter + 1)):
            if rng.random() < share:
                found += _odd(rng, document)
            elif rng.random() > 0.05:
                found.append(document)
    return found


def _regular(rng: random.Random, at: int) -> list[Document]:
    def value(most: float) -> float:
        return rng.choice((0.0, -1.5, *(float(rng.randrange(int(most))) for _ in range(5)), *(rng.random() * most for _ in range(5))))

    found = []
    for host in HOSTS:
        for device in DEVICES:
            found += [Document(at, host, "disk", kind, device, "", {"read": value(9e6), "write": value(9e6)}) for kind in DISK]
        found += [Document(at, host, "memory", "memory", "", kind, {"value": value(2**36)}) for kind in MEMORY]
        found += [Document(at, host, "cpu", "percent", core, kind, {"value": value(100)}) for core in CORES for kind in CPU]
    return found


def _odd(rng: random.Random, document: Document) -> list[Document]:
    """Return a document with an oddity, with what belongs to it."""
    oddity = rng.choice(ODDITIES)
    name = next(iter(document.values))
    changed = document._replace(oddity=oddity)
    if oddity == "one of read and write":
        return [changed._replace(values={name: document.values[name]})] if document.plugin == "disk" else [document]
    if oddity == "duplicate documents":
        other = {way: value + rng.choice((0.0, 0.0, 1.0)) for way, value in document.values.items()}
        return [changed, changed._replace(values=other)]
    if oddity == ANOTHER:
        different = {"cpu": {"type": "ping"}, "memory": {"part": "node0"}, "disk": {"instance": "merged"}}[document.plugin]
        return [changed._replace(**different)]
    if oddity == "boolean":
        return [changed._replace(values={**document.values, name: True})]
    return [changed._replace(has_zone=False)]


def _reason(column: Column, time: int, *sides: dict[Column, dict[int, list[Sample]]]) -> str | None:
    """Return the row of docs/fidelity.md that explains a different cell: an odd document in it, or how several make one cell."""
    mine, other = (side[column][time] for side in sides)
    samples = [*mine, *other]
    if odd := {one.document.oddity for one in samples} - {""}:
        return next(name for name in ODDITIES if name in odd)
    if any(type(value) is float and value < 0 for one in samples for value in one.document.values.values()):
        return "negative"
    if {id(one.document) for one in mine} != {id(one.document) for one in other}:
        return "the end off the grid" if not mine or len(mine) < len(other) else None
    if column[0].removeprefix("dataservers/") in CPU.values():
        return "CPU figures of several pages" if len({one.page for one in other}) > 1 else None
    return "two samples in a cell" if len(other) > 1 else None


def _text(time: int) -> str:
    return dt.datetime.fromtimestamp(time, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
