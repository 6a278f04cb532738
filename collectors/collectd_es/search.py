"""What both ways of reading ask, and the loop that both are: page after page, the next one asked for before this one is decoded."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from urllib.parse import quote

from collectors.collectd_es.answers import ContextGone, check_all_read, check_whole
from tokiod.errors import Malformed, Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from collectors.collectd_es.documents import Answer, Samples
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
