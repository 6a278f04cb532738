import asyncio
import functools
import inspect
import json

import pytest
from aiohttp.test_utils import TestClient, TestServer
from elasticsearch import AsyncElasticsearch, NotFoundError

from tokiod.clock import SimulatedClock
from tokiod.simulator.elastic.server import MOST, Elasticsearch
from tokiod.simulator.site import Site

EPOCH = 1_513_208_400
SITE = Site(EPOCH, hosts=4, devices=2, cores=2)
NOW = EPOCH + 2400
RANGE = {"range": {"@timestamp": {"gte": EPOCH * 1000, "lt": (EPOCH + 1800) * 1000, "format": "epoch_millis"}}}
DISK = {"constant_score": {"filter": {"bool": {"must": [RANGE, {"term": {"plugin": "disk"}}, {"prefix": {"plugin_instance": "nvme"}}]}}}}
INDEX = "cori-collectd-*"


class Monotonic:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def serving(test):
    """Run a test against a server whose simulated time stands still, through a client of it."""

    @functools.wraps(test)
    def run():
        async def serve():
            server = Elasticsearch(SITE, SimulatedClock(float(NOW), 0.0, 0.0))
            server.contexts._monotonic = Monotonic()
            async with TestClient(TestServer(server.application())) as client:
                await test(**{name: {"server": server, "client": client}[name] for name in inspect.signature(test).parameters})

        asyncio.run(serve())

    del run.__wrapped__  # pytest would ask for its arguments as fixtures
    return run


async def ask(client, method, path, body=None, *, status=200):
    async with client.request(method, path, json=body) as response:
        answer = json.loads(await response.read())
        assert response.status == status, answer
        assert response.headers["X-Elastic-Product"] == "Elasticsearch"
        return answer


async def scrolled(client, body, keep="1m"):
    answer = await ask(client, "POST", f"/{INDEX}/_search?scroll={keep}", body)
    first, found = answer, []
    while answer["hits"]["hits"]:
        assert len(answer["hits"]["hits"]) <= body["size"]
        found += answer["hits"]["hits"]
        answer = await ask(client, "POST", "/_search/scroll", {"scroll": keep, "scroll_id": answer["_scroll_id"]})
    return first, found


async def paged(client, body):
    pit, after, found = (await ask(client, "POST", f"/{INDEX}/_pit?keep_alive=1m"))["id"], {}, []
    while True:
        body = {**body, "pit": {"id": pit, "keep_alive": "1m"}, "sort": [{"_shard_doc": "asc"}], "track_total_hits": False, **after}
        answer = await ask(client, "POST", "/_search?allow_partial_search_results=false", body)
        if not answer["hits"]["hits"]:
            return pit, answer["pit_id"], found
        found += answer["hits"]["hits"]
        pit, after = answer["pit_id"], {"search_after": answer["hits"]["hits"][-1]["sort"]}


@serving
async def test_scroll_tells_every_document_once_and_how_many_there_are(client):
    first, found = await scrolled(client, {"size": 1000, "query": DISK, "sort": ["_doc"]})
    assert first["hits"]["total"] == {"value": len(found), "relation": "eq"}
    assert (first["timed_out"], first["_shards"]) == (False, {"total": 4, "successful": 4, "skipped": 0, "failed": 0})
    assert {hit["_source"]["plugin_instance"] for hit in found} == {"nvme0n1", "nvme1n1"}
    assert len({hit["_id"] for hit in found}) == len(found) > 2000
    assert await ask(client, "POST", f"/{INDEX}/_count", {"query": DISK}) == {"count": len(found), "_shards": first["_shards"]}


@serving
async def test_point_in_time_and_scroll_whole_and_in_slices_tell_the_same(client):
    everything = {"size": 700, "query": RANGE}
    _, expected = await scrolled(client, {**everything, "sort": "_doc"})
    names, newest, found = await paged(client, everything)
    assert found == expected
    assert names != newest
    for read in (scrolled, paged):
        parts = [(await read(client, {**everything, "slice": {"id": i, "max": 3}}))[-1] for i in range(3)]
        assert sorted(hit["_id"] for part in parts for hit in part) == sorted(hit["_id"] for hit in expected)


@serving
async def test_a_scrolls_page_that_is_asked_for_again_is_lost_and_a_point_in_times_is_not(client):
    body = {"size": 10, "query": RANGE}
    first = await ask(client, "POST", f"/{INDEX}/_search?scroll=1m", body)
    again = [await ask(client, "POST", "/_search/scroll", {"scroll_id": first["_scroll_id"]}) for _ in range(2)]
    assert again[0]["hits"]["hits"] != again[1]["hits"]["hits"]
    pit = (await ask(client, "POST", f"/{INDEX}/_pit?keep_alive=1m"))["id"]
    again = [await ask(client, "POST", "/_search", {**body, "pit": {"id": pit}}) for _ in range(2)]
    assert again[0]["hits"] == again[1]["hits"]
    assert again[0]["hits"]["hits"] == [{**hit, "sort": again[0]["hits"]["hits"][i]["sort"]} for i, hit in enumerate(first["hits"]["hits"])]


@serving
async def test_a_context_sees_what_there_was_when_it_was_opened(server, client):
    newest = {"range": {"@timestamp": {"gte": EPOCH * 1000}}}
    body, pit = {"size": 0, "query": newest, "track_total_hits": True}, (await ask(client, "POST", f"/{INDEX}/_pit?keep_alive=1m"))["id"]
    before = (await ask(client, "POST", "/_search", {**body, "pit": {"id": pit}}))["hits"]["total"]
    server._clock = SimulatedClock(float(NOW + 60), 0.0, 0.0)
    assert (await ask(client, "POST", "/_search", {**body, "pit": {"id": pit}}))["hits"]["total"] == before
    assert (await ask(client, "POST", f"/{INDEX}/_search", body))["hits"]["total"]["value"] > before["value"]


@serving
async def test_contexts_end_when_closed_when_expired_and_are_limited(server, client):
    scroll = (await ask(client, "POST", f"/{INDEX}/_search?scroll=1m", {"query": RANGE}))["_scroll_id"]
    pit = (await ask(client, "POST", f"/{INDEX}/_pit?keep_alive=30s"))["id"]
    assert len(server.contexts) == 2
    server.contexts._monotonic.now = 31.0
    missing = await ask(client, "POST", "/_search", {"query": RANGE, "pit": {"id": pit}}, status=404)
    assert missing["error"]["type"] == "search_phase_execution_exception"
    assert missing["error"]["root_cause"][0]["type"] == "search_context_missing_exception"
    assert await ask(client, "DELETE", "/_pit", {"id": pit}, status=404) == {"succeeded": False, "num_freed": 0}
    assert await ask(client, "DELETE", "/_search/scroll", {"scroll_id": [scroll]}) == {"succeeded": True, "num_freed": 4}
    await ask(client, "POST", "/_search/scroll", {"scroll_id": scroll}, status=404)
    for _ in range(MOST):
        await ask(client, "POST", f"/{INDEX}/_pit?keep_alive=1m")
    assert (await ask(client, "POST", f"/{INDEX}/_pit?keep_alive=1m", status=429))["status"] == 429
    server.contexts._monotonic.now = 100.0
    assert len(server.contexts) == 0


@serving
async def test_a_request_keeps_a_context_alive(server, client):
    pit = (await ask(client, "POST", f"/{INDEX}/_pit?keep_alive=30s"))["id"]
    for now in (20.0, 40.0, 60.0):
        server.contexts._monotonic.now = now
        await ask(client, "POST", "/_search", {"query": RANGE, "pit": {"id": pit, "keep_alive": "30s"}})


@serving
async def test_totals_are_counted_as_far_as_asked(client):
    counts = {}
    for tracked in (True, 100, False, 10**6):
        answer = await ask(client, "POST", f"/{INDEX}/_search", {"size": 0, "query": RANGE, "track_total_hits": tracked})
        counts[tracked] = answer["hits"].get("total")
    assert counts[True]["relation"] == "eq"
    assert counts[10**6] == counts[True]
    assert counts[100] == {"value": 100, "relation": "gte"}
    assert counts[False] is None


@serving
async def test_no_index_is_an_error_and_no_match_is_no_data(client):
    body = {"query": RANGE}
    gone = await ask(client, "POST", "/cori-collectd-2016.01.01/_search", body, status=404)
    assert gone["error"]["type"] == "index_not_found_exception"
    for path in ("/cori-collectd-2016.*/_search", "/cori-collectd-2016.01.01/_search?ignore_unavailable=true"):
        answer = await ask(client, "POST", path, body)
        assert (answer["hits"]["hits"], answer["_shards"]["total"]) == ([], 0)
    whole = await ask(client, "POST", f"/{INDEX}/_count", body)
    assert await ask(client, "POST", "/cori-collectd-2017.12.13,cori-collectd-2017.12.14/_count?ignore_unavailable=true", body) == whole


@serving
async def test_shards_of_other_days_are_skipped_and_succeed(client):
    evening = {"range": {"@timestamp": {"gte": EPOCH * 1000, "lt": (EPOCH + 60) * 1000}}}
    answer = await ask(client, "POST", f"/{INDEX}/_search", {"query": evening})
    assert answer["_shards"] == {"total": 4, "successful": 4, "skipped": 2, "failed": 0}
    never = {"range": {"@timestamp": {"lt": 1000}}}
    answer = await ask(client, "POST", f"/{INDEX}/_search", {"query": never})
    assert answer["_shards"] == {"total": 4, "successful": 4, "skipped": 3, "failed": 0}


@serving
async def test_days_that_do_not_follow_each_other_are_refused_and_not_taken_for_a_span(server, client):
    server._clock = SimulatedClock(float(NOW + 2 * 86400), 0.0, 0.0)
    assert (await ask(client, "GET", "/_cluster/health"))["status"] == "green"
    await ask(client, "POST", "/cori-collectd-2017.12.13,cori-collectd-2017.12.14/_count", {"query": RANGE})
    answer = await ask(client, "POST", "/cori-collectd-2017.12.13,cori-collectd-2017.12.15/_count", {"query": RANGE}, status=400)
    assert "consecutive days" in answer["error"]["reason"]


@serving
async def test_the_mapping_says_text_with_a_keyword(client):
    answer = await ask(client, "GET", f"/{INDEX}/_mapping/field/hostname,@timestamp,nothing")
    fields = answer["cori-collectd-2017.12.13"]["mappings"]
    assert fields.keys() == {"hostname", "@timestamp"}
    assert fields["hostname"]["mapping"]["hostname"]["fields"]["keyword"]["type"] == "keyword"
    assert fields["@timestamp"]["mapping"] == {"@timestamp": {"type": "date"}}
    assert await ask(client, "GET", "/nothing-*/_mapping/field/hostname", status=404) == {}


@pytest.mark.parametrize(
    "body",
    [
        {"size": 10_001},
        {"sort": [{"@timestamp": "asc"}]},
        {"sort": [{"_doc": "desc"}]},
        {"slice": {"id": 2, "max": 2}},
        {"_source": ["read", "write"]},
        {"_source": False},
        {"aggs": {}},
        {"query": {"no": {}}},
        {"query": {"bool": []}},
        {"size": "many"},
    ],
)
def test_what_a_search_cannot_do_is_400_with_a_reason(body):
    @serving
    async def test(client):
        answer = await ask(client, "POST", f"/{INDEX}/_search", body, status=400)
        assert answer["status"] == 400
        assert answer["error"]["reason"]

    test()


@serving
async def test_a_scroll_counts_always_and_needs_a_span_to_live(client):
    await ask(client, "POST", f"/{INDEX}/_search?scroll=1m", {"track_total_hits": False}, status=400)
    await ask(client, "POST", f"/{INDEX}/_search?scroll=long", {}, status=400)
    await ask(client, "POST", "/_search/scroll", {}, status=400)


@serving
async def test_the_official_client_takes_it_for_elasticsearch(client):
    async with AsyncElasticsearch(str(client.make_url("/"))) as official:
        assert (await official.info())["version"]["number"].startswith("8.")
        found = await official.search(index=INDEX, query=DISK, size=3, source=["*"])
        assert len(found["hits"]["hits"]) == 3
        with pytest.raises(NotFoundError):
            await official.scroll(scroll_id="gone")
