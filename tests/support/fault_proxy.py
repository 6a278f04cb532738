"""A proxy in front of a real Elasticsearch that makes the faults which a real one won't make on demand.

    with FaultProxy(server.url) as proxy:
        proxy.plan(faults.half_shards, on="POST .*/_search", nth=[2, 3])      # the second and third request that match
        proxy.plan(faults.rejected, on="search", chance=0.1, seed=7)          # or one in ten, the same ones for the same seed
        ... proxy.url ...
        assert proxy.made == ["half_shards", "half_shards"]

A fault (search_faults.py has them) is an async function of an Exchange that returns what is answered.
"""

import asyncio
import itertools
import json
import random
import re
import threading
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from tokiod.runtime.http_server import stop_accepting

UNBOUNDED = 1 << 30


class FaultProxy:
    """A context manager. url: where to ask; asked: every request as "METHOD /path?query"; made: the names of faults that were made."""

    def __init__(self, server):
        self.asked, self.made = [], []
        self._server, self._plans = server, []

    def plan(self, fault, *, on="search", nth=None, chance=0.0, seed=0):
        """Make a fault of requests in which the expression `on` is found: the nth ones (counted from 1, from now), or by chance."""
        self._plans.append(_Plan(fault, re.compile(on), nth, chance, random.Random(seed)))

    def heal(self):
        """Forget all plans."""
        self._plans.clear()

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        self.url = self._wait(self._open())
        return self

    def __exit__(self, *_):
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self):
        self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout())
        application = web.Application(client_max_size=UNBOUNDED)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _close(self):
        await stop_accepting(self._site._server)
        await self._runner.cleanup()
        await self._client.close()

    async def _serve(self, request):
        line = f"{request.method} {request.raw_path}"
        self.asked.append(line)
        due = [plan.fault for plan in self._plans if plan.due(line)]
        exchange = Exchange(request, self._client, self._server)
        if not due:
            return await exchange.forward()
        self.made.append(due[0].__name__)
        return await due[0](exchange)


@dataclass
class _Plan:
    fault: object
    on: re.Pattern
    nth: object
    chance: float
    dice: random.Random
    count: itertools.count = field(default_factory=lambda: itertools.count(1))

    def due(self, line):
        if not self.on.search(line):
            return False
        number = next(self.count)
        return number in self.nth if self.nth is not None else self.dice.random() < self.chance


class Exchange:
    """One request, and the server's answer to it."""

    def __init__(self, request, client, server):
        self.request, self._client, self._server = request, client, server

    async def answer(self):
        """Ask the server; returns (status, body, headers)."""
        kept = {name: self.request.headers[name] for name in ("Content-Type", "Accept", "Authorization") if name in self.request.headers}
        sent = await self.request.read()
        url = self._server + self.request.raw_path
        async with self._client.request(self.request.method, url, data=sent, headers=kept | {"Accept-Encoding": "identity"}) as answer:
            told = {name: answer.headers[name] for name in ("Content-Type", "X-Elastic-Product") if name in answer.headers}
            return answer.status, await answer.read(), told

    async def forward(self):
        """Answer what the server says."""
        return respond(*await self.answer())

    async def rewritten(self, change):
        """Answer what the server says, changed by `change(answer)`."""
        status, body, headers = await self.answer()
        said = json.loads(body)
        change(said)
        return respond(status, json.dumps(said).encode(), headers)

    async def begun(self, part):
        """Send the head of the server's answer and a part (0 to 1) of its body; returns the response and the rest."""
        status, body, headers = await self.answer()
        response = web.StreamResponse(status=status, headers=headers | {"Content-Length": str(len(body))})
        await response.prepare(self.request)
        sent = int(len(body) * part)
        await response.write(body[:sent])
        return response, body[sent:]

    def hang_up(self):
        """Reset the connection."""
        self.request.transport.abort()
        return web.Response()


def respond(status, body, headers):
    return web.Response(status=status, body=body, headers=headers)
