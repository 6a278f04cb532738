"""Elasticsearch's protocol over a site's documents, as far as a reader of windows speaks it.

Scroll, point in time with search_after, slices, counts, mappings; pages, ids, totals and errors as Elasticsearch 8 gives them. It keeps
contexts and no documents: pages are made from the load when they are asked for.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from tokiod.clock import SystemClock
from tokiod.simulator.elastic.documents import Documents, Search
from tokiod.simulator.elastic.query import DAY, SHARDS, Refused, Request, Selection, field_mappings, read, resolve, select

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tokiod.clock import Clock
    from tokiod.simulator.site import Site


MOST = 500
"""Contexts that are open at a time: the default of search.max_open_scroll_context."""

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(slots=True)
class Context:
    """What was searched in the indices of which UTC days, how far a reader is, and until when (monotonic seconds) it is kept.

    total: the documents found, counted up to one more than `tracked`. A scroll's place moves with each request.
    """

    days: range
    search: Search
    size: int
    total: int
    tracked: int | None
    ordered: bool
    place: int = -1
    expires: float = 0.0


class Contexts:
    """The open contexts by id. Time is the machine's, as a client counts it, however fast the simulation's goes."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._open: dict[str, Context] = {}
        self._opened = 0

    def __len__(self) -> int:
        self._expire()
        return len(self._open)

    def open(self, context: Context, keep_alive: str) -> str:
        """Keep a context and return its id; raises Refused where there are too many."""
        if len(self) >= MOST:
            reason = f"Trying to create too many scroll contexts. Must be less than or equal to: [{MOST}]."
            raise Refused(429, "rejected_execution_exception", reason)
        self._opened += 1
        name = f"context-{self._opened}"
        context.expires = self._monotonic() + _seconds(keep_alive)
        self._open[name] = context
        return name

    def get(self, name: str, keep_alive: str) -> Context:
        """Return a context and keep it for longer; raises Refused for one that was closed or has expired."""
        self._expire()
        context = self._open.get(_key(name))
        if context is None:
            raise Refused(404, "search_context_missing_exception", f"No search context found for id [{name}]")
        context.expires = max(context.expires, self._monotonic() + _seconds(keep_alive))
        return context

    def close(self, names: list[str]) -> list[Context]:
        """Forget contexts and return those that there were."""
        self._expire()
        found = [self._open.pop(_key(name), None) for name in names]
        return [context for context in found if context is not None]

    def _expire(self) -> None:
        now = self._monotonic()
        for name in [name for name, context in self._open.items() if context.expires <= now]:
            del self._open[name]


def _key(name: str) -> str:
    """Return what stays of an id that is another one in every answer, as a point in time's may be."""
    return name.partition(".")[0]


def _seconds(keep_alive: str) -> float:
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", keep_alive)
    if match is None:
        raise Refused(400, "illegal_argument_exception", f"failed to parse setting [keep_alive] with value [{keep_alive}]")
    return int(match[1]) * _UNITS[match[2]]


VERSION = {
    "name": "simulator",
    "cluster_name": "simulator",
    "version": {"number": "8.19.4", "build_flavor": "default", "lucene_version": "9.12.2", "minimum_wire_compatibility_version": "7.17.0"},
    "tagline": "You Know, for Search",
}


class Elasticsearch:
    """A search server that holds what a site's collectd has told by the clock's time."""

    def __init__(self, site: Site, clock: Clock) -> None:
        self.contexts = Contexts(SystemClock().monotonic)
        self._documents = Documents(site)
        self._clock = clock
        self._answers = 0

    def application(self) -> web.Application:
        """Return the server as an aiohttp application."""
        application = web.Application(middlewares=[_with_errors])
        for method, path, handler in (
            ("GET", "/", self._info),
            ("GET", "/_cluster/health", self._health),
            ("*", "/_search/scroll", self._scroll),
            ("DELETE", "/_pit", self._close_pit),
            ("*", "/_search", self._search),
            ("*", "/{index}/_search", self._search),
            ("POST", "/{index}/_pit", self._open_pit),
            ("*", "/{index}/_count", self._count),
            ("GET", "/{index}/_mapping/field/{fields}", self._mapping),
        ):
            application.router.add_route(method, path, handler)
        return application

    async def _info(self, request: web.Request) -> web.Response:
        return _json(request, VERSION)

    async def _health(self, request: web.Request) -> web.Response:
        return _json(request, {"cluster_name": "simulator", "status": "green", "timed_out": False, "number_of_nodes": 1})

    async def _mapping(self, request: web.Request) -> web.Response:
        days = self._days(request)
        return _json(request, field_mappings(request.match_info["fields"], days), status=200 if days else 404)

    async def _count(self, request: web.Request) -> web.Response:
        days = self._days(request)
        search = self._looked_for((await _body(request)).get("query"), days)
        return _json(request, {"count": self._documents.count(search), "_shards": _shards(days)})

    async def _search(self, request: web.Request) -> web.Response:
        wanted = read(await _body(request), scroll="scroll" in request.query)
        if wanted.pit is not None:
            return self._page_of_pit(request, wanted, wanted.pit)
        days = self._days(request)
        search = replace(self._looked_for(wanted.query, days), slice=wanted.slice)
        context = Context(days, search, wanted.size, self._documents.count(search, wanted.tracked), wanted.tracked, wanted.ordered)
        if "scroll" not in request.query:
            return self._page(request, context, {})
        name = self.contexts.open(context, request.query["scroll"])
        return self._page(request, context, {"_scroll_id": name})

    async def _scroll(self, request: web.Request) -> web.Response:
        body = await _body(request)
        if request.method == "DELETE":
            return self._closed(request, body["scroll_id"])
        name = body["scroll_id"]
        return self._page(request, self.contexts.get(name, body.get("scroll", "1m")), {"_scroll_id": name})

    async def _open_pit(self, request: web.Request) -> web.Response:
        days = self._days(request)
        context = Context(days, self._looked_for(None, days), 0, 0, None, ordered=True)
        return _json(request, {"id": self._new_name(self.contexts.open(context, request.query["keep_alive"])), "_shards": _shards(days)})

    async def _close_pit(self, request: web.Request) -> web.Response:
        return self._closed(request, (await _body(request))["id"])

    def _page_of_pit(self, request: web.Request, wanted: Request, pit: dict[str, str]) -> web.Response:
        kept = self.contexts.get(pit["id"], pit.get("keep_alive", "1m"))
        selection = select(self._documents.names, wanted.query) & kept.search.selection
        search = Search(selection, kept.search.seen, wanted.slice)
        total = self._documents.count(search, wanted.tracked)
        # A point in time is always in its own order, and its sort values are there for the next search_after.
        context = Context(kept.days, search, wanted.size, total, wanted.tracked, ordered=True, place=wanted.after)
        return self._page(request, context, {"pit_id": self._new_name(pit["id"])})

    def _page(self, request: web.Request, context: Context, names: dict[str, str]) -> web.Response:
        """Return the next page of a context and move on: who asks again for a scroll's page, gets the one behind it."""
        search = context.search
        positions = self._documents.positions(search, context.place, context.size)
        if len(positions):
            context.place = int(positions[-1])
        hits = {**_total(context), "max_score": None, "hits": []}
        head = msgspec.json.encode({**names, "took": 1, "timed_out": False, "_shards": _shards(context.days, search), "hits": hits})
        return _json(request, head.removesuffix(b"]}}") + self._documents.text(positions, ordered=context.ordered) + b"]}}")

    def _closed(self, request: web.Request, names: str | list[str]) -> web.Response:
        closed = self.contexts.close([names] if isinstance(names, str) else names)
        # Each shard has its own part of a context, and they are counted.
        freed = sum(max(1, SHARDS * len(context.days)) for context in closed)
        return _json(request, {"succeeded": bool(closed), "num_freed": freed}, status=200 if closed else 404)

    def _new_name(self, name: str) -> str:
        """Return a point in time's id for the next request: another one in every answer, as the protocol allows."""
        self._answers += 1
        return f"{name.partition('.')[0]}.{self._answers}"

    def _days(self, request: web.Request) -> range:
        known = self._documents.index_days(self._now())
        given = request.match_info.get("index", "_all")
        return resolve(given, known, ignore_unavailable=request.query.get("ignore_unavailable") == "true")

    def _looked_for(self, query: dict[str, Any] | None, days: range) -> Search:
        names = self._documents.names
        return Search(select(names, query) & Selection(names.all, days.start * DAY, days.stop * DAY), self._now())

    def _now(self) -> int:
        return int(self._clock.time() * 1000)


async def serve(site: Site, clock: Clock, host: str, port: int) -> None:
    """Serve on an address forever. Raises OSError if the address is not available."""
    runner = web.AppRunner(Elasticsearch(site, clock).application(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


@web.middleware
async def _with_errors(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as error:
        return _refusal(request, error)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.DecodeError) as error:
        return _refusal(request, Refused(400, "parsing_exception", f"malformed request: {error!r}"))


def _refusal(request: web.Request, error: Refused) -> web.Response:
    cause = {"type": error.kind, "reason": str(error)}
    whole = (
        {"type": "search_phase_execution_exception", "reason": "all shards failed"} if error.kind.startswith("search_context") else cause
    )
    return _json(request, {"error": {"root_cause": [cause], **whole}, "status": error.status}, status=error.status)


async def _body(request: web.Request) -> dict[str, Any]:
    body = await request.read()
    return msgspec.json.decode(body, type=dict[str, Any]) if body else {}


def _json(request: web.Request, content: bytes | dict[str, Any], status: int = 200) -> web.Response:
    vendor = "application/vnd.elasticsearch+json"
    kind = f"{vendor};compatible-with=8" if vendor in request.headers.get("Accept", "") else "application/json"
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return web.Response(body=body, status=status, headers={"X-Elastic-Product": "Elasticsearch", "Content-Type": kind})


def _shards(days: range, search: Search | None = None) -> dict[str, int]:
    """Say that every shard has answered; those that could tell at once that they hold nothing of the span were skipped, and count too."""
    total, idle = SHARDS * len(days), 0
    if search is not None:
        idle = sum((day + 1) * DAY <= search.selection.start or day * DAY >= search.selection.end for day in days)
    return {"total": total, "successful": total, "skipped": max(0, min(SHARDS * idle, total - 1)), "failed": 0}


def _total(context: Context) -> dict[str, Any]:
    if context.tracked is None:
        return {}
    exact = context.total <= context.tracked
    return {"total": {"value": min(context.total, context.tracked), "relation": "eq" if exact else "gte"}}
