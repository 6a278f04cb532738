"""sinks/elasticsearch against real servers: the contract, a changed mapping, a server that is busy, and one that is gone."""

import asyncio
import uuid

import pytest
from search_documents import documents, metrics

from sinks import elasticsearch
from tokiod.change_sink import SinkSite
from tokiod.simulator.sources import free_port
from tokiod.testing.sink_contract import START, SYSTEM, SinkContract, held_of, missing_of, span_of
from tokiod.window import Window

pytestmark = pytest.mark.system

BOTH = pytest.mark.parametrize("search_server", ["elasticsearch", "opensearch"], indirect=True)


def made(url, prefix, state):
    config = elasticsearch.Config(name="s", kind="elasticsearch", url=url, prefix=prefix)
    assert config.faults() == []
    return elasticsearch.sink(config, SinkSite(str, state))


@pytest.fixture
def prefix(search_server):
    name = f"t{uuid.uuid4().hex[:10]}"
    yield name
    search_server.ask("DELETE", f"/{name}*")


def cells(server, prefix):
    """What the server holds, as Held."""
    held = {}
    for one in documents(server, f"{prefix}-{SYSTEM}-*"):
        for dataset, value in metrics(one).items():
            held.setdefault((dataset, one["@timestamp"]), {})[one["component"]] = value
    return held


@BOTH
class TestElasticsearch(SinkContract):
    @pytest.fixture
    def sink(self, search_server, prefix, tmp_path):
        return lambda: made(search_server.url, prefix, tmp_path)

    @pytest.fixture
    def held(self, search_server, prefix):
        return lambda: cells(search_server, prefix)

    @pytest.fixture
    def unreachable(self, search_server, tmp_path):  # noqa: ARG002 - the parameter of the class
        return lambda: made(f"http://127.0.0.1:{free_port()}", "tokiod", tmp_path)


def run(sink, *spans):
    async def sent():
        try:
            await sink.open()
            return [await sink.send(blocks) for blocks in spans]
        finally:
            await sink.close()

    return asyncio.run(sent())


@BOTH
def test_documents_that_a_changed_mapping_rejects_are_counted_and_stored_with_their_reason(search_server, prefix, tmp_path):
    index = f"{prefix}-{SYSTEM}-2026.01"
    run(made(search_server.url, prefix, tmp_path))
    search_server.ask("PUT", f"/{index}", {"mappings": {"properties": {"writebytes": {"type": "byte"}}}})
    blocks = span_of(Window(START, START + 60), 10)
    (done,) = run(made(search_server.url, prefix, tmp_path), blocks)
    assert sum(done.rejected.values()) > 0
    assert done.records > 0
    search_server.ask("POST", f"/{prefix}.rejected/_refresh")
    hits = search_server.ask("POST", f"/{prefix}.rejected/_search", {"size": 1000})["hits"]["hits"]
    assert len(hits) == sum(done.rejected.values())
    assert {one["_source"]["index"] for one in hits} == {index}
    assert all("writebytes" in one["_source"]["document"] and one["_source"]["reason"] for one in hits)


@BOTH
def test_a_deleted_index_that_is_sent_again_is_equal(search_server, prefix, tmp_path):
    blocks = span_of(Window(START, START + 120), 10)
    run(made(search_server.url, prefix, tmp_path), blocks)
    search_server.ask("DELETE", f"/{prefix}-*")
    run(made(search_server.url, prefix, tmp_path), blocks)
    assert cells(search_server, prefix) == held_of(blocks)
    run(made(search_server.url, prefix, tmp_path), missing_of(blocks, 11))
    assert list(documents(search_server, f"{prefix}-{SYSTEM}-*")) == []
