"""What a server may answer: no redirect is followed, no answer is larger than the configuration allows, and what errors mean."""

import asyncio
import gzip
import json

import pytest
from aiohttp import web

from tokiod.errors import Fatal, Transient
from tokiod.toolkit.search_server import Access, Busy, ContextGone, NoIndex, Server, status_error

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
        url, options = f"http://127.0.0.1:{port}", {"compress": True, "indices": "index", "right": "read"}
        server = Server(Access(url, "", 10.0, max_answer, **options, authorization=str, tls=lambda: None))
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


def fields(kind, reason, **more):
    return json.dumps({"error": {"type": kind, "reason": reason, **more}, "status": 0}).encode()


REFUSALS = [
    (401, fields("security_exception", "missing credentials"), Fatal, "password"),
    (403, fields("security_exception", "no permissions"), Fatal, "permission to read logs"),
    (404, fields("index_not_found_exception", "no such index [logs]"), NoIndex, "no index or alias matches logs"),
    (404, fields("search_context_missing_exception", "No search context found for id [7]"), ContextGone, "No search context"),
    (
        404,
        fields("search_phase_execution_exception", "all", root_cause=[{"type": "search_context_missing_exception", "reason": "gone"}]),
        ContextGone,
        "gone",
    ),
    (429, fields("circuit_breaking_exception", "Data too large"), Busy, "Data too large"),
    (500, fields("x", "Trying to create too many scroll contexts"), Transient, "too many"),
    (400, fields("x", "Trying to create too many scroll contexts"), Transient, "too many"),
    (400, fields("illegal_argument_exception", "Result window is too large"), Fatal, "Result window is too large"),
    (502, b"<html>nginx</html>", Transient, "no JSON"),
    (503, b"", Busy, "no JSON"),
    (302, b"", Transient, "no JSON"),
    (408, fields("timeout", "too slow"), Transient, "too slow"),
    (404, b"<html>not here</html>", Transient, "no JSON"),
    (404, b"{}", NoIndex, "no index or alias matches logs"),
    (403, b"<html>go away</html>", Fatal, "password"),
    (405, b'{"error":"Incorrect HTTP method"}', Fatal, "Incorrect HTTP method"),
]


@pytest.mark.parametrize(("status", "body", "kind", "text"), REFUSALS)
def test_an_error_has_its_class_and_contains_the_servers_reason(status, body, kind, text):
    access = Access("https://es", "me", 10.0, 1 << 20, compress=True, indices="logs", right="read", authorization=str, tls=lambda: None)
    error = status_error(status, body, access)
    assert type(error) is kind
    assert text in str(error)
    assert "https://es" in str(error)
    assert "\n" not in str(error)
