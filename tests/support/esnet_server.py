"""ESnet's SNMP service over rates of a test's own: a real HTTP server in a thread, with every fault that a test asks for."""

from __future__ import annotations

import asyncio
import json
import threading
from urllib.parse import unquote

from aiohttp import web

from tokiod.runtime.http_server import stop_accepting

INTERVAL = 30


def rate(router, name, direction, time):
    """The value of a point, different from that of any other."""
    return round((sum(f"{router}{name}{direction}".encode()) * 7919 + time // INTERVAL * 104_729) % 1_000_003 / 7, 3)


class EsnetServer:
    """Answers as the service does: aligned down before the begin, inclusive at the end, null for what is younger than `known`.

    interfaces: {router: names}; faults: functions of a request that return a response or None, called in turn; requests: all requests.
    """

    def __init__(self, interfaces, known=2**40):
        self.interfaces, self.known, self.faults, self.requests, self.at_once, self.most = interfaces, known, [], [], 0, 0

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(50)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/snmp/west"

    def _run(self, ready):
        asyncio.set_event_loop(self._loop)

        async def start():
            app = web.Application()
            app.router.add_get("/{rest:.*}", self._answer)
            self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await self._runner.setup()
            self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
            await self._site.start()
            self.port = self._site._server.sockets[0].getsockname()[1]

        self._loop.run_until_complete(start())
        # Not before: a stop that comes earlier ends start(), not what follows.
        self._loop.call_soon(ready.set)
        self._loop.run_forever()
        self._loop.run_until_complete(stop_accepting(self._site._server))
        self._loop.run_until_complete(self._runner.cleanup())

    async def _answer(self, request):
        self.requests.append((request.path, dict(request.query)))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            for fault in self.faults:
                if (response := await fault(request)) is not None:
                    return response
            return self._rates(request)
        finally:
            self.at_once -= 1

    def _rates(self, request):
        parts = [unquote(part) for part in request.path.split("/")]
        if parts[1:3] != ["snmp", "west"] or parts[4] != "interface" or parts[5] not in self.interfaces.get(parts[3], ()):
            return web.Response(status=404, text="not found")
        return web.Response(body=self.body(parts[3], parts[5], parts[6], request.query), content_type="application/json")

    def body(self, router, name, direction, query):
        begin, end, agg = int(query["begin"]), int(query["end"]), int(query.get("agg", INTERVAL))
        times = range(begin // agg * agg, end + 1, agg)
        data = [[t, rate(router, name, direction, t) if t < self.known else None] for t in times]
        return json.dumps({"agg": str(agg), "end_time": end, "data": data, "cf": query["cf"], "begin_time": begin}).encode()
