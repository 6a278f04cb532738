"""What can go wrong between a client and Elasticsearch: faults for the proxy in fault_proxy.py, each an async function of an Exchange.

Whatever a fault does to the answer, the request has reached the server unless its docstring states otherwise: that is what makes the
lost page of a scroll a lost page.
"""

import asyncio
import json

from fault_proxy import respond

PAGES = "POST .*_search(/scroll)?([?]|$)"
"""What asks for a page, by scroll or point in time. OpenSearch opens its points in time below /_search too: that is no page."""

JSON, HTML = {"Content-Type": "application/json"}, {"Content-Type": "text/html"}


def _refusal(status, name, reason):
    error = {"type": name, "reason": reason}
    return respond(status, json.dumps({"error": error | {"root_cause": [error]}, "status": status}).encode(), JSON)


async def rejected(_):
    return _refusal(429, "es_rejected_execution_exception", "rejected execution of search on QueueResizingEsThreadPoolExecutor")


async def circuit_breaker(_):
    return _refusal(429, "circuit_breaking_exception", "[parent] Data too large, data for [<http_request>] would be [510mb]")


async def unavailable(_):
    return _refusal(503, "cluster_block_exception", "blocked by: [SERVICE_UNAVAILABLE/1/state not recovered / initialized]")


async def all_shards_failed(_):
    return _refusal(503, "search_phase_execution_exception", "all shards failed")


async def context_missing(_):
    """The scroll or point in time is gone; nothing reaches the server."""
    return _refusal(404, "search_context_missing_exception", "No search context found for id [17]")


async def gateway_html(_):
    return respond(502, b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>", HTML)


async def html(_):
    """A login page: 200, and no JSON."""
    return respond(200, b"<!DOCTYPE html><html><body>Please log in.</body></html>", HTML)


async def half_shards(exchange):
    """Some shards failed: half of the hits are not there, and the total knows of no others."""

    def change(answer):
        shards = answer["_shards"]
        gone = max(1, shards["total"] // 2)
        shards.update(successful=shards["total"] - gone, failed=gone, failures=[{"shard": 0, "reason": {"type": "node_disconnected"}}])
        _halve(answer)

    return await exchange.rewritten(change)


async def missing_shards(exchange):
    """The same, and the server does not count them as failed: successful and skipped are fewer than all."""

    def change(answer):
        answer["_shards"]["successful"] -= 1
        _halve(answer)

    return await exchange.rewritten(change)


async def timed_out(exchange):
    return await exchange.rewritten(lambda answer: (answer.update(timed_out=True), _halve(answer)))


async def terminated_early(exchange):
    return await exchange.rewritten(lambda answer: (answer.update(terminated_early=True), _halve(answer)))


async def fewer_hits(exchange):
    """Without any sign in the answer, the last tenth of its hits is missing; the total still counts them."""

    def change(answer):
        hits = answer["hits"]["hits"]
        del hits[len(hits) - (len(hits) + 9) // 10 :]

    return await exchange.rewritten(change)


def _halve(answer):
    found = answer.get("hits", {"hits": []})
    found["hits"] = found["hits"][::2]
    if isinstance(total := found.get("total"), dict):
        total["value"] = (total["value"] + 1) // 2


async def reset(exchange):
    """The connection breaks before the request has reached the server."""
    return exchange.hang_up()


async def lost_answer(exchange):
    """The server has answered, the connection breaks before a byte of that arrives."""
    await exchange.answer()
    return exchange.hang_up()


async def reset_in_body(exchange):
    await exchange.begun(0.5)
    await asyncio.sleep(0.05)
    return exchange.hang_up()


async def truncated(exchange):
    """Half of the body as if it were all, as a proxy with a full disk sends it."""
    status, body, headers = await exchange.answer()
    return respond(status, body[: len(body) // 2], headers)


async def empty(exchange):
    status, _, headers = await exchange.answer()
    return respond(status, b"", headers)


async def hang(exchange):
    """The server has answered; the answer never arrives."""
    await exchange.answer()
    await asyncio.Event().wait()


async def hang_in_body(exchange):
    await exchange.begun(0.5)
    await asyncio.Event().wait()


async def drip(exchange):
    """One byte per second: a limit on silence between bytes would wait for weeks."""
    response, rest = await exchange.begun(0.1)
    for place in range(len(rest)):
        await asyncio.sleep(1)
        await response.write(rest[place : place + 1])
    return response


async def slow(exchange):
    """Late by two seconds, and whole."""
    await asyncio.sleep(2)
    return await exchange.forward()
