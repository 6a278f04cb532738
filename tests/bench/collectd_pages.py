"""Saved pages of a simulated burst buffer: as many documents as are wanted, in a second each million."""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START = 1_513_152_000
"""2017-12-13T08:00:00Z, a whole hour."""

STEP, HOSTS, DEVICES, CORES = 10, 288, 4, 16
PAGE = 10_000
MEMORY = "cached", "buffered", "free", "used", "slab_recl", "slab_unrecl"
ROW = HOSTS * (2 * DEVICES + len(MEMORY) + 3 * CORES)
"""Documents of a step: 2,304 of disks, 1,728 of memory, 13,824 of cores."""

VARIANTS = 8
_TIME = "DD-HH-MM-S"
_GZIP_LEVEL = 1


# Every host says its own once in the ten seconds of a step, and from step to step only times and numbers change: a few texts of a step
# are made, and the time is put into them.
def pages(steps: int, hosts: int = HOSTS) -> Iterator[bytes]:
    """Yield the JSON of each page; of all documents of some steps, in order of time."""
    waiting: list[bytes] = []
    for step in range(steps):
        waiting += _step(step, hosts)
        while len(waiting) >= PAGE:
            yield b"[" + b",".join(waiting[:PAGE]) + b"]"
            del waiting[:PAGE]
    if waiting:
        yield b"[" + b",".join(waiting) + b"]"


def pages_of(step: int, hosts: int) -> Iterator[bytes]:
    """Yield the JSON of each page of one step's documents."""
    hits = _step(step, hosts)
    for first in range(0, len(hits), PAGE):
        yield b"[" + b",".join(hits[first : first + PAGE]) + b"]"


def _step(step: int, hosts: int) -> list[bytes]:
    """Return the documents of a step."""
    seconds = START + step * STEP
    day, hour, minute = 13 + (seconds - START + 8 * 3600) // 86400, seconds // 3600 % 24, seconds // 60 % 60
    stamp = f"{day:02}T{hour:02}:{minute:02}:{seconds // 10 % 6}".encode()
    return [hit.replace(_TIME.encode(), stamp) for hit in _row(step % VARIANTS, hosts)]


def write(path: Path, steps: int, hosts: int = HOSTS) -> list[tuple[int, int]]:
    """Write a file as pytokio's --output does, packed if it is called .gz; returns where each page begins and ends in what it holds."""
    spans, place = [], 1
    with gzip.open(path, "wb", _GZIP_LEVEL) if path.suffix == ".gz" else path.open("wb") as file:
        file.write(b"[")
        for number, page in enumerate(pages(steps, hosts)):
            file.write(b"," * bool(number) + page)
            place += bool(number)
            spans.append((place, place + len(page)))
            place += len(page)
        file.write(b"]")
    return spans


@cache
def _row(seed: int, number: int) -> list[bytes]:
    chance = random.Random(seed)
    hosts = [(f"bb{n}", f"{n % 10}.{n * 37 % 1000:03}Z") for n in range(1, number + 1)]
    found = [_hit(chance, host, f"2017-12-{_TIME}{phase}", *kind) for host, phase in hosts for kind in _KINDS]
    chance.shuffle(found)
    return found


_KINDS = [
    *(("disk", kind, None, f"nvme{n}n1") for kind in ("disk_octets", "disk_ops") for n in range(DEVICES)),
    *(("memory", "memory", kind, None) for kind in MEMORY),
    *(("cpu", "percent", kind, str(n)) for kind in ("idle", "user", "system") for n in range(CORES)),
]


def _hit(chance: random.Random, host: str, stamp: str, plugin: str, kind: str, instance: str | None, part: str | None) -> bytes:
    numbers = ("read", "write") if plugin == "disk" else ("value",)
    source = {"plugin": plugin, "@timestamp": stamp, "hostname": host, "collectd_type": kind}
    source |= {name: text for name, text in (("type_instance", instance), ("plugin_instance", part)) if text is not None}
    values = {name: chance.random() * (1e6 if plugin == "disk" else 100) for name in numbers}
    hit = {"_score": 1.0, "_type": "doc", "_id": f"AWBO_-3H2X0enMg{chance.randrange(10**5):05}", "_index": "cori-collectd-2017.12.13"}
    return json.dumps(hit | {"_source": source | values}, separators=(",", ":")).encode()
