"""Query an index of collectd's documents window by window."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from collectors.collectd_es.complete import Incomplete, check_shards
from collectors.collectd_es.datasets import NAMES
from collectors.collectd_es.documents import wanted_fields
from collectors.collectd_es.parse import Decoder
from collectors.collectd_es.parse_hits import Shards, raw_hits
from collectors.collectd_es.plausible import Rules
from collectors.collectd_es.query import Mapping, Wanted, mapped_fields, query, unmapped, usable_names
from collectors.collectd_es.search import PointInTimeSlice, Search, open_point_in_time, quoted, read_scroll_slice, sort_order
from collectors.collectd_es.series import Series
from collectors.collectd_es.to_batches import batches
from tokiod.dropped import Dropped
from tokiod.errors import Transient
from tokiod.toolkit.search_server import Access, ContextGone, NoIndex, Server, authorization
from tokiod.toolkit.tasks import started
from tokiod.toolkit.tls import client_context
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from collectors.collectd_es import Config
    from collectors.collectd_es.datasets import Fields
    from collectors.collectd_es.parse import Answer
    from collectors.collectd_es.query import Read
    from collectors.collectd_es.search import Product
    from tokiod.collector import Site
    from tokiod.window import Window

S = TypeVar("S")

DAY = 86400
ATTEMPTS = 3
"""Attempts at a window whose scroll or point in time the server has closed."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to read. index: a name, an alias, a wildcard or a template of a UTC day; the rest as in Config."""

    index: str
    step: int
    fields: Fields
    wanted: Wanted
    read: Read
    slices: int
    page: int
    keep_alive: int
    source_filter: bool
    datasets: frozenset[str]
    rules: Rules


class Count(msgspec.Struct, frozen=True):
    """The answer to _count."""

    count: int
    shards: Shards = msgspec.field(name="_shards")


class Root(msgspec.Struct, frozen=True):
    """The answer to GET /."""

    version: dict[str, Any]


# A window is the result of one search, read completely by one scroll or point in time; after a failure nothing of it counts.
class CollectdEs:
    """The collector of an Elasticsearch or OpenSearch that holds collectd's documents."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, server: Server, series: Series, options: Options) -> None:
        self.step = options.step
        self._server = server
        self._series = series
        self._options = options
        self._decode = Decoder(series, options.fields).answer
        self._product: Product | None = None
        self._trouble = ""

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset, whose columns are all names ever seen. Raises Transient or Fatal."""
        samples = await self._read(window, self._decode)
        cells = batches(samples, window, self.step, self._series, self._options.rules)
        found = [batch for batch in cells.batches if batch.dataset in self._options.datasets]
        dropped = Dropped()
        for one in (*(some.dropped for some in samples), cells.dropped):
            dropped.take(one)
        documents = sum(some.documents for some in samples)
        return WindowData(found, documents, dropped.counts, trouble="" if documents else self._trouble, why=dropped.why)

    async def pages(self, window: Window) -> list[bytes]:
        """Return the hits of each page of a window's search, as JSON lists. Raises Transient or Fatal."""
        return await self._read(window, self._decode_hits)

    async def count(self, window: Window) -> int | None:
        """Return how many documents the window's query finds."""
        search = await self._search(window)
        if search is None:
            return 0
        answer = await self._server.json("POST", f"/{search.path}/_count?{search.allow_missing[1:]}", Count, {"query": search.query})
        check_shards(answer.shards)
        return answer.count

    async def close(self) -> None:
        """Release what the server holds open, and close the connections."""
        await self._server.close()

    def _decode_hits(self, body: bytes) -> Answer[bytes]:
        answer: Any = self._decode(body)
        return replace(answer, samples=raw_hits(body))

    async def _read(self, window: Window, decode: Callable[[bytes], Answer[S]]) -> list[S]:
        """Read the pages of a window, again from the beginning if the server closed the scroll or point in time before the end."""
        search = await self._search(window)
        if search is None:
            return []
        # Only an Elasticsearch that names itself is recent enough for a point in time with its own order.
        by_scroll = self._options.read == "scroll" or (self._options.read == "auto" and not self._server.product)
        for _ in range(ATTEMPTS):
            try:
                return await (self._by_scroll(search, decode) if by_scroll else self._by_point_in_time(search, decode))
            except ContextGone as gone:
                reason = str(gone)
            except Incomplete:
                # Documents that no order distinguishes may be skipped between two pages of a point in time, but never of a scroll.
                if by_scroll:
                    raise
                return await self._by_scroll(search, decode)
        raise Transient(f"{reason}; this was attempt {ATTEMPTS}: is keep_alive too short?")

    async def _by_scroll(self, search: Search, decode: Callable[[bytes], Answer[S]]) -> list[S]:
        slices = self._options.slices
        return await _gather(read_scroll_slice(self._server, search, number, slices, decode) for number in range(slices))

    async def _by_point_in_time(self, search: Search, decode: Callable[[bytes], Answer[S]]) -> list[S]:
        options, product = self._options, self._product or "elasticsearch"
        sort = sort_order(product, options.fields.time, search.keys)
        async with open_point_in_time(self._server, search, product) as pit:
            slices = [PointInTimeSlice(self._server, search, pit, sort, n, options.slices) for n in range(options.slices)]
            return await _gather(one.read(decode) for one in slices)

    async def _search(self, window: Window) -> Search | None:
        """Return the search for a window, None if the indices of its days are missing: no data."""
        options = self._options
        index, may_be_missing = indices(options.index, window)
        names = await self._names_in(index, may_be_missing=may_be_missing)
        if names is None:
            return None
        source = wanted_fields(options.fields) if options.source_filter else ()
        keys = tuple(names[role] for role in NAMES if role in names)
        return Search(
            index, may_be_missing, query(window, options.wanted, options.fields, names), keys, options.page, options.keep_alive, source
        )

    async def _names_in(self, index: str, *, may_be_missing: bool) -> dict[str, str] | None:
        """Return the names of filtered and sorted fields in an index; learn the server's product too.

        They are queried again for each window, which takes a few milliseconds: a new index may have another mapping.
        """
        fields = self._options.fields
        parameters = "?ignore_unavailable=true&allow_no_indices=true" if may_be_missing else ""
        try:
            mapping = await self._server.json("GET", f"/{quoted(index)}/_mapping/field/{mapped_fields(fields, NAMES)}{parameters}", Mapping)
        except NoIndex:
            if not may_be_missing:
                raise
            mapping = {}
        if not mapping and "%" not in self._options.index:
            # Not Fatal, which would wait for ten minutes: the first document may create the index at any moment.
            raise Transient(f"no index matches {index} on the server: check index")
        if not mapping:
            return None
        self._product = self._product or await self._query_product()
        self._trouble = unmapped(mapping, fields, self._options.wanted.filtered)
        is_sorted = (self._options.read, self._product) == ("pit", "opensearch")
        return usable_names(mapping, fields, NAMES if is_sorted else self._options.wanted.filtered, index)

    async def _query_product(self) -> Product:
        """Return the server's product: Elasticsearch reports it with every answer."""
        if self._server.product:
            return "elasticsearch"
        answer = await self._server.json("GET", "/", Root)
        return "opensearch" if answer.version.get("distribution") == "opensearch" else "elasticsearch"


class CollectdCounters(CollectdEs):
    """The collector of an index whose documents have counters of disks."""

    needs_sample_at_end: ClassVar[bool] = True


def indices(pattern: str, window: Window) -> tuple[str, bool]:
    """Return the names of a window's indices, and whether some may be missing.

    A template (%Y.%m.%d) names UTC days. The day in an index's name is roughly that of arrival, so the days before and after count too.
    """
    if "%" not in pattern:
        return pattern, "*" in pattern
    first, last = window.start // DAY - 1, (window.end - 1) // DAY + 1
    days = (dt.datetime.fromtimestamp(day * DAY, dt.UTC) for day in range(first, last + 1))
    return ",".join(dict.fromkeys(day.strftime(pattern) for day in days)), True


async def _gather(slices: Iterable[Coroutine[Any, Any, list[S]]]) -> list[S]:
    """Read all slices at once; the first failure cancels the others."""
    async with started(slices) as tasks:
        return [page for found in await asyncio.gather(*tasks) for page in found]


def connected(config: Config, site: Site) -> CollectdEs:
    """Return the collector of an index that collectd's documents go into."""
    wanted = Wanted(frozenset(config.collected()), config.host_prefix, config.device_prefix)
    options = Options(
        index=config.index, step=config.step, fields=config.fields, wanted=wanted, read=config.read, slices=config.slices,
        page=config.page, keep_alive=int(config.keep_alive), source_filter=config.source_filter, datasets=config.datasets(),
        rules=Rules(config.values == "counters", config.max_rate.bytes, config.max_rate.operations),
    )  # fmt: skip
    access = Access(
        url=config.url.rstrip("/"),
        user=config.user or "",
        timeout=float(config.request_timeout),
        max_answer=int(config.max_answer),
        compress=config.compress,
        indices=config.index,
        right="read",
        authorization=lambda: authorization(config, site.secret),
        tls=lambda: client_context(config.tls_ca, config.tls_cert, config.tls_key) if config.url.startswith("https:") else None,
    )
    hosts, devices = (None if pattern is None else re.compile(pattern) for pattern in (config.hosts, config.devices))
    series = Series(hosts, devices, counters=options.rules.counters)
    return (CollectdCounters if options.rules.counters else CollectdEs)(Server(access), series, options)
