"""Read all pages of a search, by a scroll or a point in time. The next page is requested before this one is decoded.

scroll          every server has it; it only moves forward, so a lost page loses the whole attempt
point in time   the indices as they are now, in a fixed order, so that a page can be requested again
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol
from urllib.parse import quote

from collectors.collectd_es.client import ContextGone, NoIndex, check_all_read, check_whole
from collectors.collectd_es.parse import last_sort
from tokiod.errors import Malformed, Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from collectors.collectd_es.client import Server
    from collectors.collectd_es.parse import Answer, Samples
    from collectors.collectd_es.query import Query

RETRY_SECONDS = 0.2
TURNS_TO_SEND = 6
"""Turns of the event loop after which a request is on its way: decoding stops the loop, and the server should work meanwhile."""

TOTAL = 200
"""Bytes behind the name "hits" in which the total stands."""
_TOTAL = re.compile(rb'"total"\s*:\s*(?:\{\s*"value"\s*:\s*(\d+)\s*,\s*"relation"\s*:\s*"eq"|(\d+)\s*,\s*"(?:max_score|hits)")')


@dataclass(frozen=True, slots=True)
class Search:
    """One search, in whatever way it is read.

    index: names and wildcards joined by commas; lenient: indices that are not there are no error; keys: the fields, besides the time,
    that tell documents apart, as sorts call them; size: documents of a page;
    keep_alive: seconds between two pages after which the server may forget us; source: the only fields wanted, () for all.
    """

    index: str
    lenient: bool
    query: Query
    keys: tuple[str, ...]
    size: int
    keep_alive: int
    source: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The index in a URL."""
        return quoted(self.index)

    @property
    def leniency(self) -> str:
        """Parameters about indices that are not there."""
        return "&ignore_unavailable=true&allow_no_indices=true" if self.lenient else ""

    @property
    def filter(self) -> str:
        """The parameter that has the server send only what is read, for links that are slower than the server."""
        said = "_scroll_id,pit_id,timed_out,terminated_early,_shards,hits.total,hits.hits._source,hits.hits.sort"
        return f"&filter_path={said}" if self.source else ""

    def body(self, number: int, slices: int) -> dict[str, Any]:
        """Return the body of a slice's first request, without its sort."""
        body: dict[str, Any] = {"size": self.size, "query": self.query, "track_total_hits": True}
        if slices > 1:
            body["slice"] = {"id": number, "max": slices}
        if self.source:
            body["_source"] = list(self.source)
        return body


def quoted(index: str) -> str:
    """Return names and wildcards as they stand in a URL."""
    return quote(index, safe="*,")


class Pages(Protocol):
    """How the pages of a slice are asked for. retries: how many requests may be repeated; of a scroll, none: the server moves on."""

    retries: ClassVar[int]

    def first(self) -> Coroutine[Any, Any, bytes]:
        """Ask for the first page."""
        ...

    def after(self, body: bytes) -> Coroutine[Any, Any, bytes]:
        """Ask for the page after one with documents."""
        ...


async def read(pages: Pages, decode: Callable[[bytes], Answer], size: int) -> list[Samples]:
    """Return all of a slice's samples. Raises Incomplete unless every page was whole and all that the server had found has come."""
    make, ahead, total, asked, retries = pages.first, None, None, 0, pages.retries
    found: list[Samples] = []
    documents = 0
    try:
        while True:
            try:
                body = await (ahead or make())
                ahead = None
                total = total_found(body) if not found else total
                if total is not None and (asked + 1) * size < total:
                    ahead = await _sent(pages.after(body))
                answer = _whole(decode, body)
            except ContextGone:
                raise
            except Transient:
                await _given_up(ahead)
                ahead = None
                if not retries:
                    raise
                retries -= 1
                await asyncio.sleep(RETRY_SECONDS)
                continue
            found.append(answer.samples)
            asked, documents = asked + 1, documents + answer.hits
            if not answer.hits or (total is not None and documents >= total):
                break
            make = partial(pages.after, body)
    finally:
        await _given_up(ahead)
    check_all_read(documents, total)
    return found


def total_found(body: bytes) -> int | None:
    """Return how many documents a search found, from the head of its answer; None where the server did not count them to the end."""
    begin = max(0, body.find(b'"hits"'))
    found = _TOTAL.search(body, begin, begin + TOTAL)
    return int(found[1] or found[2]) if found else None


def named(name: re.Pattern[bytes], body: bytes) -> str | None:
    """Return what a pattern finds in front of an answer's hits: ids are as long as there are shards."""
    end = body.find(b'"hits"')
    found = name.search(body, 0, end if end >= 0 else len(body))
    return found[1].decode() if found else None


def _whole(decode: Callable[[bytes], Answer], body: bytes) -> Answer:
    try:
        answer = decode(body)
    except Malformed as error:
        raise Transient(f"an answer that is no answer to a search: {error}") from None
    check_whole(answer)
    return answer


async def _sent(request: Coroutine[Any, Any, bytes]) -> asyncio.Future[bytes]:
    task = asyncio.ensure_future(request)
    for _ in range(TURNS_TO_SEND):
        await asyncio.sleep(0)
    return task


async def _given_up(task: asyncio.Future[bytes] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


_SCROLL_ID = re.compile(rb'"_scroll_id"\s*:\s*"([^"]+)"')


async def read_scroll_slice(server: Server, search: Search, number: int, slices: int, decode: Callable[[bytes], Answer]) -> list[Samples]:
    """Return the samples of one of a search's slices. Raises Transient or Fatal; then all slices must be asked again."""
    parameters = f"?scroll={search.keep_alive}s&allow_partial_search_results=false{search.leniency}{search.filter}"
    target, body = f"/{search.path}/_search{parameters}", search.body(number, slices) | {"sort": ["_doc"]}
    scrolls = _Scrolls(server)
    async with server.lent(server.ask("POST", target, body), scrolls.give_back) as first:
        return await read(_ScrollPages(server, search, first), decode, search.size)


@dataclass(frozen=True, slots=True)
class _Scrolls:
    server: Server

    async def give_back(self, first: bytes) -> None:
        await self.server.ask("DELETE", "/_search/scroll", {"scroll_id": [_id(first)]})


@dataclass(frozen=True, slots=True)
class _ScrollPages:
    server: Server
    search: Search
    opened: bytes
    retries: ClassVar[int] = 0

    async def first(self) -> bytes:
        return self.opened

    async def after(self, body: bytes) -> bytes:
        following = {"scroll": f"{self.search.keep_alive}s", "scroll_id": _id(body)}
        return await self.server.ask("POST", f"/_search/scroll?{self.search.filter[1:]}", following)


def _id(body: bytes) -> str:
    """Find the scroll's name at the head of an answer, before the rest of it is decoded."""
    if (found := named(_SCROLL_ID, body)) is None:
        raise Transient("an answer without a scroll id")
    return found


Product = Literal["elasticsearch", "opensearch"]

_PIT_ID = re.compile(rb'"pit_id"\s*:\s*"([^"]+)"')


def open_point_in_time(server: Server, search: Search, product: Product) -> AbstractAsyncContextManager[str]:
    """Open a point in time, and close it in the end; all slices read from the same. Raises Transient or Fatal."""
    if product == "opensearch":
        # Where a shard is gone it would open one without that shard, and never say so again.
        target = f"/{search.path}/_search/point_in_time?keep_alive={search.keep_alive}s&allow_partial_pit_creation=false"
        name, closing = "pit_id", lambda pit: server.ask("DELETE", "/_search/point_in_time", {"pit_id": [pit]})
    else:
        target = f"/{search.path}/_pit?keep_alive={search.keep_alive}s"
        name, closing = "id", lambda pit: server.ask("DELETE", "/_pit", {"id": pit})

    async def opening() -> str:
        answer = await server.json("POST", target + search.leniency, dict[str, Any])
        if not isinstance(pit := answer.get(name), str):
            raise Transient(f"{server} opened a point in time and did not name it")
        return pit

    return server.lent(opening(), closing)


def sort_order(product: Product, time: str, names: Sequence[str]) -> list[Any]:
    """Return what to sort by, so that no two documents are equal: search_after would skip the second one.

    Elasticsearch has an order of its own that costs nothing. OpenSearch before 3.3 has none: the fields that tell documents apart,
    and for those that stand twice their number in the shard.
    """
    if product == "elasticsearch":
        return ["_shard_doc"]
    # An index without a document has no mapping, not even of _seq_no, and without unmapped_type that is an error.
    types = [(time, "date"), *((name, "keyword") for name in names), ("_seq_no", "long")]
    return [{name: {"order": "asc", "unmapped_type": type_}} for name, type_ in types]


@dataclass(slots=True)
class PointInTimeSlice:
    """One slice of a search in a point in time, whose name may change from page to page: the latest is right."""

    server: Server
    search: Search
    pit: str
    sort: list[Any]
    number: int
    slices: int
    retries: ClassVar[int] = 2

    async def read(self, decode: Callable[[bytes], Answer]) -> list[Samples]:
        """Return its samples. Raises Transient or Fatal."""
        return await read(self, decode, self.search.size)

    async def first(self) -> bytes:
        """Ask for the first page."""
        return await self._ask({})

    async def after(self, body: bytes) -> bytes:
        """Ask for the documents behind the last one of a page."""
        if (last := last_sort(body)) is None:
            raise Transient("an answer without sort values")
        self.pit = named(_PIT_ID, body) or self.pit
        return await self._ask({"search_after": last, "track_total_hits": False})

    async def _ask(self, more: dict[str, Any]) -> bytes:
        body = self.search.body(self.number, self.slices) | {"pit": self._pit(), "sort": self.sort} | more
        try:
            return await self.server.ask("POST", f"/_search?allow_partial_search_results=false{self.search.filter}", body)
        except NoIndex as error:
            # One of those that it was opened over has been deleted since.
            raise ContextGone(str(error)) from None

    def _pit(self) -> dict[str, str]:
        return {"id": self.pit, "keep_alive": f"{self.search.keep_alive}s"}
