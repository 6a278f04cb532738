"""The loop over pages, with a server that a test scripts: what a real one makes of it is in tests/system."""

import asyncio
import json

import pytest

from collectors.collectd_es import search
from collectors.collectd_es.complete import Incomplete
from collectors.collectd_es.parse import Decoder
from collectors.collectd_es.series import Series
from tokiod.errors import Transient
from tokiod.toolkit.search_server import ContextGone

SIZE = 3


def page(hits, total=None, **more):
    source = {"@timestamp": "2017-12-13T08:00:00Z", "plugin": "memory", "collectd_type": "memory", "type_instance": "free", "value": 1}
    found = {"hits": [{"_source": source | {"hostname": f"bb{hit}"}, "sort": [hit]} for hit in hits]}
    head = {"total": {"value": total, "relation": "eq"}} if total is not None else {}
    shards = {"total": 1, "successful": 1, "failed": 0}
    return json.dumps({"timed_out": False, "_shards": shards} | more | {"hits": head | found}).encode()


class Server:
    """Answers by pages(place, attempt at it); a scroll's place moves on with every question."""

    def __init__(self, pages, retries=0):
        self.pages, self.retries = pages, retries
        self.requested, self.cancelled = [], 0

    def first(self):
        return self._answer(0)

    async def after(self, body):
        try:
            last = json.loads(body)["hits"]["hits"][-1]["sort"][0]
        except ValueError:
            raise Transient("an answer without sort values") from None
        return await self._answer(last + 1)

    async def _answer(self, place):
        self.requested.append(place)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        answer = self.pages(place, self.requested.count(place))
        if isinstance(answer, Exception):
            raise answer
        return answer


def whole(total, *, count=True):
    """The pages of `total` documents."""
    return lambda place, _: page(range(place, min(place + SIZE, total)), total if count else None)


def read(server):
    decode = Decoder(Series()).answer
    return sum(len(samples) for samples in asyncio.run(search.read(server, decode, SIZE)))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(search, "RETRY_SECONDS", 0)


@pytest.mark.parametrize("total", [0, 1, 3, 4, 6, 7, 20])
def test_every_page_is_read_and_no_further_one_is_requested(total):
    server = Server(whole(total))
    assert read(server) == total
    assert server.requested == list(range(0, max(total, 1), SIZE))


def test_where_the_server_does_not_count_pages_are_requested_until_an_empty_one():
    server = Server(whole(7, count=False))
    assert read(server) == 7
    assert server.requested == [0, 3, 6, 7]


def test_the_next_page_is_requested_before_this_one_is_decoded():
    server = Server(whole(9))
    seen = []
    decode = Decoder(Series()).answer
    asyncio.run(search.read(server, lambda body: seen.append(len(server.requested)) or decode(body), SIZE))
    assert seen == [2, 3, 3]


DECODE_ERRORS = {
    "a refusal": Transient("busy"),
    "no JSON": b"<html>",
    "half of the JSON": page([3, 4, 5])[:-20],
    "a shard that failed": page([3, 4], _shards={"total": 2, "successful": 1, "failed": 1}),
    "no shards": page([3, 4], _shards=None),
    "a search that timed out": page([3], timed_out=True),
}


@pytest.mark.parametrize("name", DECODE_ERRORS)
def test_a_broken_page_ends_a_scroll(name):
    server = Server(lambda place, _: DECODE_ERRORS[name] if place == 3 else whole(9)(place, 1))
    with pytest.raises(Transient):
        read(server)


@pytest.mark.parametrize("name", DECODE_ERRORS)
def test_a_broken_page_is_requested_again_where_that_is_allowed(name):
    server = Server(lambda place, attempt: DECODE_ERRORS[name] if place == 3 and attempt == 1 else whole(9)(place, 1), retries=1)
    assert read(server) == 9
    assert server.requested.count(3) == 2


def test_a_first_page_that_is_broken_is_not_believed_in_its_total():
    server = Server(lambda place, attempt: page([0], 1, timed_out=True) if (place, attempt) == (0, 1) else whole(9)(place, 1), retries=1)
    assert read(server) == 9


def test_it_is_not_requested_more_often_than_allowed():
    server = Server(lambda place, _: Transient("busy") if place == 3 else whole(9)(place, 1), retries=2)
    with pytest.raises(Transient, match="busy"):
        read(server)
    assert server.requested.count(3) == 3


def test_a_context_that_is_gone_is_not_requested_again():
    server = Server(lambda place, _: ContextGone("gone") if place == 3 else whole(9)(place, 1), retries=5)
    with pytest.raises(ContextGone):
        read(server)
    assert server.requested == [0, 3]


def test_a_short_page_in_the_middle_is_no_end():
    short = {0: [0, 1, 2], 3: [3], 4: [4, 5, 6], 7: [7, 8]}
    assert read(Server(lambda place, _: page(short[place], 9))) == 9


def test_documents_that_never_come_are_missed():
    with pytest.raises(Incomplete, match="read 7 documents of 9"):
        read(Server(lambda place, _: page(range(place, min(place + SIZE, 7)), 9)))


def test_cancelled_it_leaves_no_request_running():
    async def cancelled():
        stuck = asyncio.Event()

        class Stuck(Server):
            async def _answer(self, place):
                if place:
                    try:
                        await stuck.wait()
                    finally:
                        self.cancelled += 1
                return whole(9)(place, 1)

        server = Stuck(None)
        task = asyncio.ensure_future(search.read(server, Decoder(Series()).answer, SIZE))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})
        assert server.cancelled == 1
        return len(asyncio.all_tasks())

    assert asyncio.run(cancelled()) == 1
