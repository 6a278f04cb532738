"""A point in time: the indices as they are now, read in a fixed order from any document on, so that a page may be asked for again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from collectors.collectd_es.answers import ContextGone, NoIndex
from collectors.collectd_es.documents import last_sort
from collectors.collectd_es.search import Search, named, read
from tokiod.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from collectors.collectd_es.documents import Answer, Samples
    from collectors.collectd_es.server import Server

Product = Literal["elasticsearch", "opensearch"]

_ID = re.compile(rb'"pit_id"\s*:\s*"([^"]+)"')


def opened(server: Server, search: Search, product: Product) -> AbstractAsyncContextManager[str]:
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


def order(product: Product, time: str, names: Sequence[str]) -> list[Any]:
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
class Slice:
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
        self.pit = named(_ID, body) or self.pit
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
