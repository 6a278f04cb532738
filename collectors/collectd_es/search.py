"""Read all pages of a search, by a scroll or a point in time. The next page is requested before this one is decoded.

scroll          every server has it; it only moves forward, so a lost page loses the whole attempt
point in time   the indices as they are now, in a fixed order, so that a page can be requested again
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar
from urllib.parse import quote

from collectors.collectd_es.complete import check_all_read, check_whole
from collectors.collectd_es.parse_hits import last_sort
from tokiod.errors import Malformed, Transient
from tokiod.toolkit.search_server import ContextGone, NoIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from collectors.collectd_es.parse import Answer
    from collectors.collectd_es.query import Query
    from tokiod.toolkit.search_server import Server

S = TypeVar("S")

RETRY_SECONDS = 0.2
TURNS_UNTIL_SENT = 6
"""Turns of the event loop after which a request is sent: decoding blocks the loop, and the server should work meanwhile."""

TOTAL_WITHIN_BYTES = 200
"""The total is found within this distance after the name "hits"."""
_TOTAL = re.compile(rb'"total"\s*:\s*(?:\{\s*"value"\s*:\s*(\d+)\s*,\s*"relation"\s*:\s*"eq"|(\d+)\s*,\s*"(?:max_score|hits)")')


@dataclass(frozen=True, slots=True)
class Search:
    """One search, however it is read.

    index: names and wildcards joined by commas; may_be_missing: missing indices are no error; keys: the fields, besides the time,
    that distinguish documents, by their names in sorts; size: documents of a page;
    keep_alive: seconds for which the server keeps the search between two pages; source: the only fields wanted, () for all.
    """

    index: str
    may_be_missing: bool
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
    def allow_missing(self) -> str:
        """The parameters that allow missing indices."""
        return "&ignore_unavailable=true&allow_no_indices=true" if self.may_be_missing else ""

    @property
    def filter(self) -> str:
        """The parameter that limits answers to what is read, for links slower than the server."""
        fields = "_scroll_id,pit_id,timed_out,terminated_early,_shards,hits.total,hits.hits._source,hits.hits.sort"
        return f"&filter_path={fields}" if self.source else ""

    def body(self, number: int, slices: int) -> dict[str, Any]:
        """Return the body of a slice's first request, without its sort."""
        body: dict[str, Any] = {"size": self.size, "query": self.query, "track_total_hits": True}
        if slices > 1:
            body["slice"] = {"id": number, "max": slices}
        if self.source:
            body["_source"] = list(self.source)
        return body


def quoted(index: str) -> str:
    """Return names and wildcards quoted for a URL."""
    return quote(index, safe="*,")


class Pages(Protocol):
    """Requests for the pages of a slice. retries: how many may be repeated; none of a scroll, which moves forward on the server."""

    retries: ClassVar[int]

    def first(self) -> Coroutine[Any, Any, bytes]:
        """Request the first page."""
        ...

    def after(self, body: bytes) -> Coroutine[Any, Any, bytes]:
        """Request the page after one with documents."""
        ...


async def read(pages: Pages, decode: Callable[[bytes], Answer[S]], size: int) -> list[S]:
    """Return the samples of each page of a slice. Raises Incomplete unless every page was complete and all documents were read."""
    make, ahead, total, retries = pages.first, None, None, pages.retries
    found: list[S] = []
    documents = 0
    try:
        while True:
            try:
                body = await (ahead or make())
                ahead = None
                total = total_hits(body) if not found else total
                if total is not None and (len(found) + 1) * size < total:
                    ahead = await _send(pages.after(body))
                answer = _decode_whole(decode, body)
            except ContextGone:
                raise
            except Transient:
                await _cancel(ahead)
                ahead = None
                if not retries:
                    raise
                retries -= 1
                await asyncio.sleep(RETRY_SECONDS)
                continue
            found.append(answer.samples)
            documents += answer.hits
            if not answer.hits or (total is not None and documents >= total):
                break
            make = partial(pages.after, body)
    finally:
        await _cancel(ahead)
    check_all_read(documents, total)
    return found


def total_hits(body: bytes) -> int | None:
    """Return the number of documents of a search, from the head of its answer; None where the server did not count them all."""
    begin = max(0, body.find(b'"hits"'))
    found = _TOTAL.search(body, begin, begin + TOTAL_WITHIN_BYTES)
    return int(found[1] or found[2]) if found else None


def find_id(name: re.Pattern[bytes], body: bytes) -> str | None:
    """Return what a pattern finds before the hits of an answer; ids are longer the more shards there are."""
    end = body.find(b'"hits"')
    found = name.search(body, 0, end if end >= 0 else len(body))
    return found[1].decode() if found else None


def _decode_whole(decode: Callable[[bytes], Answer[S]], body: bytes) -> Answer[S]:
    try:
        answer = decode(body)
    except Malformed as error:
        raise Transient(f"malformed answer to a search: {error}") from None
    check_whole(answer)
    return answer


async def _send(request: Coroutine[Any, Any, bytes]) -> asyncio.Future[bytes]:
    task = asyncio.ensure_future(request)
    for _ in range(TURNS_UNTIL_SENT):
        await asyncio.sleep(0)
    return task


async def _cancel(task: asyncio.Future[bytes] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


_SCROLL_ID = re.compile(rb'"_scroll_id"\s*:\s*"([^"]+)"')


async def read_scroll_slice(server: Server, search: Search, number: int, slices: int, decode: Callable[[bytes], Answer[S]]) -> list[S]:
    """Return the samples of one slice of a search. Raises Transient or Fatal; then all slices must be read again."""
    parameters = f"?scroll={search.keep_alive}s&allow_partial_search_results=false{search.allow_missing}{search.filter}"
    target, body = f"/{search.path}/_search{parameters}", search.body(number, slices) | {"sort": ["_doc"]}
    scrolls = _Scrolls(server)
    async with server.held_open(server.request("POST", target, body), scrolls.release) as first:
        return await read(_ScrollPages(server, search, first), decode, search.size)


@dataclass(frozen=True, slots=True)
class _Scrolls:
    server: Server

    async def release(self, first: bytes) -> None:
        await self.server.request("DELETE", "/_search/scroll", {"scroll_id": [_id(first)]})


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
        return await self.server.request("POST", f"/_search/scroll?{self.search.filter[1:]}", following)


def _id(body: bytes) -> str:
    """Return the scroll's id from the head of an answer, before the rest is decoded."""
    if (found := find_id(_SCROLL_ID, body)) is None:
        raise Transient("an answer without a scroll id")
    return found


Product = Literal["elasticsearch", "opensearch"]

_PIT_ID = re.compile(rb'"pit_id"\s*:\s*"([^"]+)"')


def open_point_in_time(server: Server, search: Search, product: Product) -> AbstractAsyncContextManager[str]:
    """Open a point in time, and close it after the block; all slices read the same one. Raises Transient or Fatal."""
    if product == "opensearch":
        # Without the parameter a missing shard would be left out without any report.
        target = f"/{search.path}/_search/point_in_time?keep_alive={search.keep_alive}s&allow_partial_pit_creation=false"
        name, closing = "pit_id", lambda pit: server.request("DELETE", "/_search/point_in_time", {"pit_id": [pit]})
    else:
        target = f"/{search.path}/_pit?keep_alive={search.keep_alive}s"
        name, closing = "id", lambda pit: server.request("DELETE", "/_pit", {"id": pit})

    async def opening() -> str:
        answer = await server.json("POST", target + search.allow_missing, dict[str, Any])
        if not isinstance(pit := answer.get(name), str):
            raise Transient(f"{server} opened a point in time without an id")
        return pit

    return server.held_open(opening(), closing)


def sort_order(product: Product, time: str, names: Sequence[str]) -> list[Any]:
    """Return a sort order in which no two documents are equal: search_after would skip the second.

    Elasticsearch has one that costs nothing. OpenSearch before 3.3 has none: so the fields that distinguish documents are used, and for
    equal documents their number in the shard.
    """
    if product == "elasticsearch":
        return ["_shard_doc"]
    # An index without documents has no mapping, not even of _seq_no, which would be an error without unmapped_type.
    types = [(time, "date"), *((name, "keyword") for name in names), ("_seq_no", "long")]
    return [{name: {"order": "asc", "unmapped_type": type_}} for name, type_ in types]


@dataclass(slots=True)
class PointInTimeSlice:
    """One slice of a search in a point in time. Its id may change from page to page; the latest is valid."""

    server: Server
    search: Search
    pit: str
    sort: list[Any]
    number: int
    slices: int
    retries: ClassVar[int] = 2

    async def read(self, decode: Callable[[bytes], Answer[S]]) -> list[S]:
        """Return the samples. Raises Transient or Fatal."""
        return await read(self, decode, self.search.size)

    async def first(self) -> bytes:
        """Request the first page."""
        return await self._request({})

    async def after(self, body: bytes) -> bytes:
        """Request the documents after the last one of a page."""
        if (last := last_sort(body)) is None:
            raise Transient("an answer without sort values")
        self.pit = find_id(_PIT_ID, body) or self.pit
        return await self._request({"search_after": last, "track_total_hits": False})

    async def _request(self, more: dict[str, Any]) -> bytes:
        body = self.search.body(self.number, self.slices) | {"pit": self._pit(), "sort": self.sort} | more
        try:
            return await self.server.request("POST", f"/_search?allow_partial_search_results=false{self.search.filter}", body)
        except NoIndex as error:
            # An index that it was opened over has been deleted since.
            raise ContextGone(str(error)) from None

    def _pit(self) -> dict[str, str]:
        return {"id": self.pit, "keep_alive": f"{self.search.keep_alive}s"}
