"""collectd's documents out of a real Elasticsearch, against a bare loop that only fetches and decodes the same pages."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from collectors import collectd_es
from tests.bench import collectd_pages
from tests.bench.collectd import Source  # noqa: TC001 - msgspec reads annotations
from tests.bench.collectd_pages import ROW, START, STEP
from tests.bench.measure import Row, paired_awaits, rated, skipped
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = "at most 1.25 (0.8 of the rate)"
INDEX = "bench"
PAGE = 10_000
BULK = 10_000
WAYS = {"scroll": ("scroll", 1), "point in time": ("pit", 1), "point in time, two slices": ("pit", 2)}


class Hit(msgspec.Struct, gc=False):
    source: Source = msgspec.field(name="_source")
    sort: list[Any] = []


class Hits(msgspec.Struct):
    hits: list[Hit]


class Answer(msgspec.Struct):
    hits: Hits
    scroll_id: str = msgspec.field(name="_scroll_id", default="")


decode = msgspec.json.Decoder(Answer).decode


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:  # noqa: ARG001 - a part's signature
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from elasticsearch_server import SearchServer, missing  # noqa: PLC0415 - the tests' modules find each other by that path

    if why := missing("elasticsearch"):
        yield skipped("collectd from a real Elasticsearch", TARGET, why)
        return
    steps = 12 if quick else 34
    with SearchServer("elasticsearch", starts_fast=False) as server:
        asyncio.run(load(server.url, steps))
        for name, (read, slices) in WAYS.items():
            pair = asyncio.run(_pair(server.url, read, slices, steps, 2 if quick else 4))
            what = f"collectd from a real Elasticsearch by {name}, {steps * ROW:,} documents"
            yield rated(what, "documents/s", steps * ROW, pair, TARGET, "floor: aiohttp, typed decode")


async def load(url: str, steps: int) -> None:
    keywords = {name: {"type": "keyword"} for name in ("hostname", "plugin", "collectd_type", "type_instance", "plugin_instance")}
    index = {
        "settings": {"number_of_shards": 2, "number_of_replicas": 0, "refresh_interval": -1},
        "mappings": {"properties": {"@timestamp": {"type": "date"}, **keywords}},
    }
    async with aiohttp.ClientSession(url) as session:
        await _json(session, "PUT", f"/{INDEX}", index)
        for page in collectd_pages.pages(steps):
            sources = re.findall(rb'"_source":\s*(\{[^}]*\})', page)
            body = b"".join(b'{"index":{}}\n' + source + b"\n" for source in sources)
            async with session.post(f"/{INDEX}/_bulk", data=body, headers={"Content-Type": "application/x-ndjson"}) as answer:
                assert not (await answer.json())["errors"]
        await _json(session, "POST", f"/{INDEX}/_refresh")


async def _pair(url: str, read: str, slices: int, steps: int, times: int) -> tuple[float, float, float]:
    window = Window(START, START + steps * STEP)
    config = collectd_es.Config(name="bench", kind="collectd_es", system="bb", url=url, index=INDEX, read=read, slices=slices)
    collector = collectd_es.live(config, Site(Calendar("UTC"), SystemClock()))

    async def ours() -> None:
        assert (await collector.collect(window)).records == steps * ROW

    async with aiohttp.ClientSession(url) as session:

        async def bare() -> None:
            found = await (_scrolled(session) if read == "scroll" else _paged(session, slices))
            assert found == steps * ROW

        pair = await paired_awaits(bare, ours, times)
    await collector.close()
    return pair


async def _scrolled(session: aiohttp.ClientSession) -> int:
    answer = decode(await _bytes(session, f"/{INDEX}/_search?scroll=1m", {"size": PAGE, "sort": ["_doc"]}))
    found = 0
    while answer.hits.hits:
        found += len(answer.hits.hits)
        answer = decode(await _bytes(session, "/_search/scroll", {"scroll": "1m", "scroll_id": answer.scroll_id}))
    await _json(session, "DELETE", "/_search/scroll", {"scroll_id": answer.scroll_id})
    return found


async def _paged(session: aiohttp.ClientSession, slices: int) -> int:
    pit = (await _json(session, "POST", f"/{INDEX}/_pit?keep_alive=1m"))["id"]
    found = sum(await asyncio.gather(*(_slice(session, pit, number, slices) for number in range(slices))))
    await _json(session, "DELETE", "/_pit", {"id": pit})
    return found


async def _slice(session: aiohttp.ClientSession, pit: str, number: int, slices: int) -> int:
    body: dict[str, Any] = {"size": PAGE, "sort": ["_shard_doc"], "pit": {"id": pit, "keep_alive": "1m"}, "track_total_hits": False}
    if slices > 1:
        body["slice"] = {"id": number, "max": slices}
    found = 0
    while hits := decode(await _bytes(session, "/_search", body)).hits.hits:
        found += len(hits)
        body["search_after"] = hits[-1].sort
    return found


async def _bytes(session: aiohttp.ClientSession, target: str, body: dict[str, Any]) -> bytes:
    async with session.post(target, json=body) as answer:
        return await answer.read()


async def _json(session: aiohttp.ClientSession, method: str, target: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    async with session.request(method, target, json=body) as answer:
        return await answer.json()
