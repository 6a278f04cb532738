"""A day of ESnet's interfaces from a server on the same machine to batches, and saved in a file."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import aiohttp
from esnet_server import EsnetServer

from collectors import esnet_snmp
from tests.bench.measure import Row, timed
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

START = 1_549_843_200
DAY = Window(START, START + 86400)
NAMES = tuple(f"r{number % 4}:if{number}" for number in range(20))


def rows(_directory: Path, *, quick: bool) -> Iterator[Row]:
    interfaces: dict[str, list[str]] = {}
    for router, name in (one.split(":") for one in NAMES):
        interfaces.setdefault(router, []).append(name)
    with EsnetServer(interfaces) as server:
        answers = _remembered(server)
        pairs = [asyncio.run(_pair(server, answers)) for _ in range(2 if quick else 4)][1:]
    floor, ours = (sorted(one)[len(pairs) // 2] for one in zip(*pairs, strict=True))
    yield timed(
        "a day of 20 interfaces of ESnet to batches", "ms", 1e3, (floor, ours, ours / floor), "1 s", "floor: bare aiohttp, as many at once"
    )


def _remembered(server: EsnetServer) -> dict[str, bytes]:
    """Let the server make each answer once: it is not what is measured."""
    made, body = {}, server.body

    def once(*requests):
        key = requests[:3]
        if key not in made:
            made[key] = body(*requests)
        return made[key]

    server.body = once
    return made


async def _pair(server: EsnetServer, _answers: dict[str, bytes]) -> tuple[float, float]:
    config = esnet_snmp.Config(name="e", kind="esnet_snmp", system="s", url=server.url, interfaces=NAMES, rate=1e6, connections=2)
    collector = esnet_snmp.live(config, Site(Calendar("UTC"), SystemClock()))
    begun = time.perf_counter()
    cells = [len(batch) for batch in (await collector.collect(DAY)).batches]
    ours = time.perf_counter() - begun
    await collector.close()
    assert cells == [20 * 2880] * 2
    return await _floor(server), ours


async def _floor(server: EsnetServer) -> float:
    room = asyncio.Semaphore(2)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=2)) as session:

        async def get(url: str) -> None:
            async with room, session.get(url, params={"begin": START, "end": DAY.end - 1, "cf": "average", "agg": 30}) as answer:
                await answer.read()

        begun = time.perf_counter()
        urls = [f"{server.url}/{router}/interface/{name}/{way}" for router, name in (n.split(":") for n in NAMES) for way in ("in", "out")]
        await asyncio.gather(*map(get, urls))
        return time.perf_counter() - begun
