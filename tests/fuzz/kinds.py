"""What is fuzzed: a few small files of every kind, read the way that `tokioctl archive` reads them."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import collectd_documents
import jobstats_text
import lmt_database
import lustre_site
import mmperfmon_site

from tokiod.collector import Site
from tokiod.config import plugins
from tokiod.errors import TokiodError
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterator

START = 1_517_126_400
MOST_WINDOWS = 40
"""A stray time stamp must not take longer than the rest: what lies in other windows than the first is not looked at."""

Cell = tuple[str, str, int, float]


@dataclass(frozen=True)
class Kind:
    """One kind's files. suffix: of their names; options: of its Saved.

    text: whether lossy mutations can be told by their cells: not where bytes stand for themselves, as in SQLite's pages.
    rewritten: datasets whose cells are made of several samples, so that losing one makes another value.
    """

    name: str
    suffix: str
    seeds: tuple[bytes, ...]
    timezone: str = "UTC"
    options: dict[str, Any] = field(default_factory=dict)
    text: bool = True
    rewritten: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """What came of an input: its cells, and how many samples were dropped; or the error that a person sees."""

    cells: frozenset[Cell] = frozenset()
    dropped: int = 0
    error: str = ""


def read(kind: Kind, data: bytes, place: Path) -> Outcome:
    """Read an input. Raises whatever a collector must not."""
    path = place / f"input{kind.suffix}"
    path.write_bytes(data)
    try:
        return _runner().run(_read(kind, path))
    except TokiodError as error:
        return Outcome(error=str(error))


@cache
def _runner() -> asyncio.Runner:
    """Return this process's event loop: a new one with its threads for each input would take longer than the input."""
    return asyncio.Runner()


@cache
def _plugin(name: str) -> Any:
    return plugins.load(name)


async def _read(kind: Kind, path: Path) -> Outcome:
    plugin, calendar = _plugin(kind.name), Calendar(kind.timezone)
    collector = plugin.saved([path], plugin.Saved(**kind.options), Site(calendar, FakeClock()))
    cells: set[Cell] = set()
    dropped = 0
    try:
        windows = [window for span in await collector.spans() for window in calendar.split(_aligned(calendar, span, collector.step), 900)]
        for window in windows[:MOST_WINDOWS]:
            data = await collector.collect(window)
            for batch in data.batches:
                cells |= _cells(batch, window)
            for rows in data.tables:
                cells |= _row_cells(rows, window)
            dropped += sum(data.dropped.values())
    finally:
        await collector.close()
    return Outcome(frozenset(cells), dropped)


def _aligned(calendar: Calendar, span: Window, step: int) -> Window:
    return Window(calendar.window(span.start, step).start, calendar.window(span.end - 1, step).end)


def _cells(batch: Any, window: Window) -> set[Cell]:
    """Return a batch's cells that the writer stores (it counts and drops what is no number); AssertionError for a malformed batch."""
    assert len(batch.time) == len(batch.column) == len(batch.value), "arrays of different lengths"
    assert ((batch.time >= window.start) & (batch.time < window.end)).all(), "a sample outside the window"
    assert all(name.isprintable() and name.strip() == name != "" for name in batch.columns), f"an odd name among {batch.columns}"
    assert len(set(batch.columns)) == len(batch.columns), "a column twice"
    assert not len(batch.column) or batch.column.max() < len(batch.columns), "a column without a name"
    places = [(batch.dataset, batch.columns[column], time) for column, time in zip(batch.column.tolist(), batch.time.tolist(), strict=True)]
    assert len(set(places)) == len(places), "a cell twice"
    return {(*place, value) for place, value in zip(places, batch.value.tolist(), strict=True) if math.isfinite(value)}


def _row_cells(rows: Any, window: Window) -> set[Cell]:
    """Return the numbers of a table's rows as cells; AssertionError for malformed rows."""
    values = dict(zip(rows.columns, rows.values, strict=True))
    time, target, job = (values.pop(name).tolist() for name in ("time", "target", "job"))
    assert all(one < window.end for one in time), "a row after the window"  # counts at the poll before are before it
    # The parts of a job's key are separated by a control character.
    keys = [
        f"{one.decode('ascii')} {other.replace(SEPARATOR.encode(), b' ').decode('ascii')}" for one, other in zip(target, job, strict=True)
    ]
    assert all(key.isprintable() for key in keys), f"an odd name among {keys}"
    places = list(zip(keys, time, strict=True))
    assert len(set(places)) == len(places), "a row twice"
    return {
        (f"{rows.table}/{name}", *place, value)
        for name, column in values.items()
        for place, value in zip(places, column.tolist(), strict=True)
    }


@cache
def kinds() -> tuple[Kind, ...]:
    """Return all of them."""
    return _collectd(), _lmt(), _esnet(), *_lustre(), *_lustre_jobstats(), _mmperfmon()


def _collectd() -> Kind:
    small = collectd_documents.Documents(hosts=2, devices=1, cores=2).hits(START, START + 20)
    pages = json.dumps([small[:9], small[9:]]).encode()
    response = json.dumps(
        {"_scroll_id": "x", "took": 1, "hits": {"total": {"value": len(small), "relation": "eq"}, "hits": small}}
    ).encode()
    lines = json.dumps([small[:3]], indent=1).encode()
    averages = frozenset(collectd_documents.CPU)
    return Kind("collectd_es", ".json", (pages, response, lines), options={"parse_workers": 0}, rewritten=averages)


def _lmt() -> Kind:
    with tempfile.TemporaryDirectory() as directory:
        path = lmt_database.save(Path(directory) / "copy.sqlite3", lmt_database.tables(steps=4, osts=2, osss=1, mdts=1))
        return Kind("lmt", ".sqlite3", (Path(path).read_bytes(),), timezone=lmt_database.ZONE, text=False)


def _esnet() -> Kind:
    points = {str(START + 30 * place): None if place % 7 == 3 else place * 1000.25 for place in range(20)}
    interfaces = {"to_site_v4": {"in": points, "out": points, "units": "bytes/sec"}, "xe-0_1_0": {"in": points}}
    texts = json.dumps({"cr5": interfaces}), json.dumps({"cr5": interfaces}, indent=1)
    return Kind("esnet_snmp", ".json", tuple(text.encode() for text in texts), options={"interval": 30})


def _lustre() -> Iterator[Kind]:
    targets = {f"fs-OST{index:04x}": (10_000 + index, 100 * index) for index in range(6)} | {"fs-MDT0000": (500, 7)}
    df, dl = lustre_site.df(targets), lustre_site.dl(lustre_site.servers(targets))
    later = [lustre_site.df({name: (total, used + minute) for name, (total, used) in targets.items()}) for minute in range(3)]
    blocks = "".join(f"BEGIN {START + 60 * minute}\n{df}BEGIN {START + 60 * minute + 5}\n{dl}" for minute, df in enumerate(later))
    # Who is away from home follows from all servers together.
    guessed = frozenset({"failover/datatargets", "failover/mdtargets"})
    plain = tuple(text.encode() for text in (df, dl, df + df.replace("fs-", "other-")))
    yield Kind("lustre", ".txt", plain, options={"time": START}, rewritten=guessed)
    # Of a BEGIN that is lost as a whole nothing can tell.
    yield Kind("lustre", ".blocks", (blocks.encode(),), text=False)


def _lustre_jobstats() -> Iterator[Kind]:
    # A lost line "- job_id" gives a job the counts of the next one, and no text shows it.
    billion = 10**9
    for version in ("2.5", "2.12", "2.15"):
        polls = []
        for minute in range(3):
            jobs = [(b"%d" % number, {"read_bytes": (9, 4096), "open": (minute + 1, 70)}, (START + 60 * minute) * billion, START * billion)
                for number in range(4 - minute)]  # fmt: skip
            hostile = (
                b'a"b\\c \x1b[31m\nd' if version == "2.15" else b"cp.0",
                {"write_bytes": (1, 2**63 - 1)},
                START * billion,
                START * billion,
            )
            texts = (
                jobstats_text.target([*jobs, hostile], "fs-OST0000", version=version),
                jobstats_text.target(jobs, "fs-MDT0000", version=version),
            )
            polls.append(b"BEGIN %d\n" % (START + 60 * minute) + b"".join(texts))
        yield Kind("lustre_jobstats", ".txt", (b"".join(polls), polls[0].partition(b"\n")[2]), options={"time": START}, text=False)


def _mmperfmon() -> Kind:
    texts = mmperfmon_site.texts(START, 12)
    sums = frozenset(f"dataservers/{name}" for name in ("netinbytes", "netoutbytes", "cpuload"))
    return Kind("mmperfmon", ".out", tuple(text if isinstance(text, bytes) else text.encode() for text in texts), rewritten=sums)


def zipped(kind: Kind) -> Kind:
    """Return the same files, compressed, for kinds that read such."""
    return Kind(kind.name, f"{kind.suffix}.gz", tuple(gzip.compress(seed) for seed in kind.seeds), kind.timezone, kind.options, text=False)
