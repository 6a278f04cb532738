"""What a server may answer: no redirect is followed, and no answer is larger than the configuration allows."""

import asyncio
import gzip

import pytest
from aiohttp import web

from collectors.collectd_es.client import Access, Server
from tokiod.errors import Fatal

LARGE = b"[" + b" " * (3 << 20) + b"]"


def requested(target, max_answer=1 << 20):
    """Request a target of a server; return what it was asked for."""
    asked = []

    async def handle(request):
        asked.append(request.path)
        match request.path:
            case "/redirect":
                return web.Response(status=307, headers={"Location": f"http://{request.host}/other?secret=1"})
            case "/large":
                return web.Response(body=LARGE)
            case "/packed":
                return web.Response(body=gzip.compress(LARGE), headers={"Content-Encoding": "gzip"})
            case "/refused":
                return web.Response(status=500, body=LARGE)
            case _:
                return web.Response(body=b"[1]", content_type="application/json")

    async def scenario():
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        access = Access(f"http://127.0.0.1:{port}", "", 10.0, max_answer, compress=True, authorization=str, tls=lambda: None)
        server = Server(access, "index")
        try:
            return await server.request("GET", target)
        finally:
            await server.close()
            await runner.cleanup()

    application = web.Application()
    application.router.add_route("*", "/{name}", handle)
    try:
        return asyncio.run(scenario()), asked
    except Fatal as error:
        return str(error), asked


def test_a_small_answer_is_read():
    assert requested("/small") == (b"[1]", ["/small"])


def test_a_redirect_is_not_followed():
    sentence, asked = requested("/redirect")
    assert asked == ["/redirect"]
    assert "redirects to 'http://127.0.0.1:" in sentence
    assert "/other': redirects are not followed; set url to that address if it is the right one" in sentence


@pytest.mark.parametrize("target", ["/large", "/packed", "/refused"])
def test_a_large_answer_is_refused_before_it_is_read(target):
    sentence, _ = requested(target)
    assert sentence.endswith("the answer is larger than max_answer, 1 MiB: reduce page, or increase max_answer")
    assert requested("/large", 4 << 20)[0] == LARGE
