"""Scroll: every server has it. It only moves forward: a page whose answer is lost is lost for ever, and with it the whole attempt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from collectors.collectd_es.search import Search, named, read
from tokiod.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Callable

    from collectors.collectd_es.documents import Answer, Samples
    from collectors.collectd_es.server import Server

_ID = re.compile(rb'"_scroll_id"\s*:\s*"([^"]+)"')


async def read_slice(server: Server, search: Search, number: int, slices: int, decode: Callable[[bytes], Answer]) -> list[Samples]:
    """Return the samples of one of a search's slices. Raises Transient or Fatal; then all slices must be asked again."""
    parameters = f"?scroll={search.keep_alive}s&allow_partial_search_results=false{search.leniency}{search.filter}"
    target, body = f"/{search.path}/_search{parameters}", search.body(number, slices) | {"sort": ["_doc"]}
    scrolls = _Scrolls(server)
    async with server.lent(server.ask("POST", target, body), scrolls.give_back) as first:
        return await read(_Pages(server, search, first), decode, search.size)


@dataclass(frozen=True, slots=True)
class _Scrolls:
    server: Server

    async def give_back(self, first: bytes) -> None:
        await self.server.ask("DELETE", "/_search/scroll", {"scroll_id": [_id(first)]})


@dataclass(frozen=True, slots=True)
class _Pages:
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
    if (found := named(_ID, body)) is None:
        raise Transient("an answer without a scroll id")
    return found
