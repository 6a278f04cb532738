"""ESnet's SNMP service over a site's interfaces: its URLs, its answers, and at times what a proxy or a broken line makes of them."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from aiohttp import web

from tokiod.simulator.drawn import draw
from tokiod.simulator.esnet.rates import DIRECTIONS, INTERVAL, Esnet

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.simulator.site import Site

BASE = "/snmp/west"
DEFAULT_SPAN = 3600

Fault = Literal["refused", "broken", "reset", "cut", "login"]
FAULTS: tuple[Fault, ...] = ("refused", "broken", "reset", "cut", "login")
FAULT_SECONDS = 20
"""How long a fault lasts, from the begin of a minute on."""


def fault(site: Site, time: float) -> Fault | None:
    """Return what is wrong with every answer at a time: in one minute of ten something is, for a while."""
    minute, second = divmod(int(time), 60)
    happens, kind = draw(site, "esnet fault", minute, 2).tolist()
    if second >= FAULT_SECONDS or happens >= site.trouble / 10 or not site.failing:
        return None
    return FAULTS[int(kind * len(FAULTS))]


class Service:
    """The service of one site by a clock."""

    def __init__(self, site: Site, clock: Clock) -> None:
        self._site = site
        self._clock = clock
        self._load = Esnet(site)
        # Neither a slash nor a blank can stand in a URL's part.
        self._numbers = {name.replace("/", "_").replace(" ", "_"): number for number, name in enumerate(site.interface_names)}

    def application(self) -> web.Application:
        """Return the server as an aiohttp application."""
        application = web.Application()
        application.router.add_get(BASE + "/{router}/interface/{name}/{direction}", self._rates)
        return application

    async def _rates(self, request: web.Request) -> web.StreamResponse:
        now = self._clock.time()
        match fault(self._site, now):
            case "refused":
                return web.Response(status=503, text="Service Unavailable", headers={"Retry-After": "5"})
            case "broken":
                return web.Response(status=500, text="Internal Server Error")
            case "login":
                return web.Response(text="<html><body>Please log in</body></html>", content_type="text/html")
            case "reset":
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            case "cut":
                answer = self._answer(request, now)
                return web.Response(body=answer[: len(answer) // 2], content_type="application/json")
            case None:
                return web.Response(body=self._answer(request, now), content_type="application/json")

    def _answer(self, request: web.Request, now: float) -> bytes:
        begin, end, number, direction = self._asked(request, now)
        # The first point may lie before the begin; the end is inclusive.
        first = max(0, (begin - self._load.origin) // INTERVAL)
        last = max(first, (min(end, int(now)) - self._load.origin) // INTERVAL + 1)
        rates = self._load.rates(first, last)[direction, :, number].tolist()
        told_at = self._load.told_at(first, last)[direction, :, number].tolist()
        data: list[Any] = [
            [self._load.origin + INTERVAL * (first + k), None if math.isnan(rate) or then > now else rate]
            for k, (rate, then) in enumerate(zip(rates, told_at, strict=True))
        ]
        return msgspec.json.encode({"agg": str(INTERVAL), "end_time": end, "data": data, "cf": "average", "begin_time": begin})

    def _asked(self, request: web.Request, now: float) -> tuple[int, int, int, int]:
        """Return begin, end, and the numbers of interface and direction. Raises what aiohttp answers with 400 and 404."""
        place, query = request.match_info, request.query
        number = self._numbers.get(f"{place['router']}:{place['name']}")
        if number is None or place["direction"] not in DIRECTIONS:
            raise web.HTTPNotFound(text="no such interface")
        if query.get("agg", str(INTERVAL)) != str(INTERVAL) or query.get("cf", "average") != "average" or "calc" in query:
            raise web.HTTPBadRequest(text="the simulator knows averages of 30 s only")
        try:
            begin, end = int(query.get("begin", now - DEFAULT_SPAN)), int(query.get("end", now))
        except ValueError:
            raise web.HTTPBadRequest(text="begin and end are epoch seconds") from None
        return begin, end, number, DIRECTIONS.index(place["direction"])


async def serve(site: Site, clock: Clock, host: str, port: int) -> None:
    """Serve on an address forever. Raises OSError if the address is not available."""
    runner = web.AppRunner(Service(site, clock).application(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
