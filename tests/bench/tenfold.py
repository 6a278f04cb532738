"""Ten times Cori, live: does one daemon follow it, how late, and with how much memory; and what would reach its limit first.

Sources of 2,480 OSTs and OSSs with 50 MDTs at 5 s and of 3,000 hosts with 64 cores at 10 s are simulated in real time, windows are of 60 s.
The lag of a window is counted from its end to the moment at which the ledger calls it stored, so the time that a source needs to settle is
in it. Then the same collector over a real Elasticsearch that is filled with the documents of as many hosts as the machine can index at the
same time.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import aiohttp

from tests.bench import collectd_pages
from tests.bench.day import NAMES, WINDOW, Usage
from tests.bench.measure import Row, skipped
from tests.bench.memory import anonymous
from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene, wait_for
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, LMT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.simulator.sources import Source

OSTS, MDTS, HOSTS, CORES = 2480, 50, 3000, 64
PAST, RETENTION = 300, 240
"""Seconds of data before the beginning, and how far polling goes back."""
INDEX = "cori-collectd-2017.12.13"
PER_HOST = collectd_pages.ROW // collectd_pages.HOSTS
"""Documents of a host in a step of collectd."""
LOAD = 0.6
"""Of what the machine can index alone, so that it can also be searched."""
INDEXED_SECONDS = 15
LAG = f"under two windows ({2 * WINDOW} s)"
MEMORY = "at most 1.1 times"


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    osts, mdts, hosts = (OSTS // 10, MDTS // 10, HOSTS // 10) if quick else (OSTS, MDTS, HOSTS)
    now = time.time()
    epoch = int(now) // 60 * 60 - PAST
    site = Site(epoch=epoch, timezone="UTC", trouble=False, osts=osts, osss=osts, mdts=mdts, hosts=hosts, cores=CORES)
    clock = SimulatedClock(float(epoch + PAST), now, 1)
    scene = Scene(directory / "tenfold", site, clock, WINDOW, retention=RETENTION, sources=(LMT, COLLECTD))
    scene.prepare()
    try:
        scene.start_simulator()
        scene.start_daemon()
        yield from _followed(scene, clock, 120 if quick else 300, f"{osts} OSTs, {mdts} MDTs, {hosts} hosts x {CORES} cores")
    finally:
        scene.close()
    yield from _elastic(directory / "elastic", 120 if quick else 300)


def _elastic(directory: Path, seconds: float) -> Iterator[Row]:
    """Let a real Elasticsearch get the documents of as many hosts as it can index on this machine, and follow it."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from elasticsearch_server import SearchServer, missing  # noqa: PLC0415 - the tests' modules find each other by that path

    if why := missing("elasticsearch"):
        yield skipped("as many hosts as a real Elasticsearch can index", LAG, why)
        return
    with SearchServer("elasticsearch", starts_fast=False) as server:
        rate = asyncio.run(_limit(server.url))
        hosts = int(LOAD * rate * collectd_pages.STEP / PER_HOST)
        clock = SimulatedClock(float(collectd_pages.START), time.time(), 1)
        scene = Scene(directory, Site(epoch=collectd_pages.START - 3600, timezone="UTC"), clock, WINDOW, RETENTION, sources=(COLLECTD,))
        scene.ports[COLLECTD.name] = int(server.url.rpartition(":")[2])
        scene.prepare()
        with Indexer(server.url, hosts, clock) as indexer:
            try:
                scene.start_daemon()
                what = f"{hosts} hosts in a real Elasticsearch, {LOAD:.0%} of the {rate:,.0f} documents/s that it indexes alone"
                yield from _followed(scene, clock, seconds, what)
            finally:
                scene.close()
        yield Row(
            f"{what}: the longest that a step of {hosts * PER_HOST:,} documents took to be indexed", "s", None, indexer.slowest, None, ""
        )


async def _limit(url: str) -> float:
    """Return how many documents a second the server indexes when nothing else is done. They go to an index of their own."""
    async with aiohttp.ClientSession(url) as session:
        await _create(session, "alone")
        documents, begun = _Documents(collectd_pages.HOSTS), time.monotonic()
        step = 0
        while time.monotonic() - begun < INDEXED_SECONDS:
            await documents.index(session, "alone", step)
            step += 1
        rate = step * collectd_pages.ROW / (time.monotonic() - begun)
        async with session.delete("/alone"):
            return rate


async def _create(session: aiohttp.ClientSession, index: str) -> None:
    keywords = {name: {"type": "keyword"} for name in ("hostname", "plugin", "collectd_type", "type_instance", "plugin_instance")}
    mappings = {"properties": {"@timestamp": {"type": "date"}, **keywords}}
    async with session.put(f"/{index}", json={"settings": {"number_of_replicas": 0}, "mappings": mappings}) as answer:
        assert answer.status == 200, await answer.text()


class _Documents:
    """What collectd sends of some hosts in each of its steps."""

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts

    async def index(self, session: aiohttp.ClientSession, index: str, step: int) -> None:
        """Index the documents of a step, counted from the beginning of collectd_pages."""
        for page in collectd_pages.pages_of(step, self._hosts):
            sources = re.findall(rb'"_source":\s*(\{[^}]*\})', page)
            body = b"".join(b'{"index":{}}\n' + source + b"\n" for source in sources)
            async with session.post(f"/{index}/_bulk", data=body, headers={"Content-Type": "application/x-ndjson"}) as answer:
                assert not (await answer.json())["errors"]


class Indexer:
    """Indexes the documents of each step when it is over, in a thread. slowest: the seconds that a step took, at most."""

    def __init__(self, url: str, hosts: int, clock: SimulatedClock) -> None:
        self.slowest = 0.0
        self._url, self._documents, self._clock = url, _Documents(hosts), clock
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        self._thread.join()

    async def _run(self) -> None:
        async with aiohttp.ClientSession(self._url) as session:
            await _create(session, INDEX)
            step = 0
            while not self._is_over.is_set():
                if self._clock.time() < collectd_pages.START + (step + 1) * collectd_pages.STEP:
                    await asyncio.sleep(0.1)
                    continue
                begun = time.monotonic()
                await self._documents.index(session, INDEX, step)
                self.slowest = max(self.slowest, time.monotonic() - begun)
                step += 1


def _followed(scene: Scene, clock: SimulatedClock, seconds: float, what: str) -> Iterator[Row]:
    for source in scene.sources:
        wait_for(lambda: _end(scene, source) >= clock.time() - 2 * WINDOW, 600, f"never caught up; see {scene.log}")  # noqa: B023 - used at once
    pids = {name: pid for name in NAMES if (pid := scene.pid(name)) is not None}
    lags: dict[str, list[float]] = {source.name: [] for source in scene.sources}
    ends = {source.name: _end(scene, source) for source in scene.sources}
    until, begun = time.monotonic() + seconds, time.monotonic()
    before, memory = {name: Usage.of(pid) for name, pid in pids.items()}, []
    while time.monotonic() < until:
        time.sleep(0.5)
        memory.append({name: anonymous([pid]) for name, pid in pids.items()})
        for source in scene.sources:
            if (end := _end(scene, source)) > ends[source.name]:
                lags[source.name] += [clock.time() - one for one in range(ends[source.name] + WINDOW, end + 1, WINDOW)]
                ends[source.name] = end
    passed = time.monotonic() - begun
    used = {name: Usage.of(pid).since(before[name], 1 / passed) for name, pid in pids.items()}
    half = len(memory) // 2
    for source in scene.sources:
        found = lags[source.name]
        yield Row(f"{what}: longest lag of {source.system}", "s", min(found), max(found), None, LAG, f"{len(found)} windows")
    for name, one in used.items():
        early, late = (max(moment[name] for moment in part) for part in (memory[:half], memory[half:]))
        yield Row(f"{what}: most memory of {name}, in the first half and in the second", "MB", early, late, late / early, MEMORY)
        yield Row(f"{what}: {name}", "% of a core", None, 100 * one.cpu, None, "", f"written {one.written / 1e6:.2f} MB/s")


def _end(scene: Scene, source: Source) -> int:
    """Return the end of what is stored without a gap up to the newest window, 0 if there is nothing."""
    stored = scene.stored(source)
    return stored[-1].end if stored else 0
