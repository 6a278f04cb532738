"""Clients with unknown keys, clients that send malformed messages, and many subscribers, in a process of its own. Only on loopback.

external_clients.py connect ENDPOINT KEYS COUNT             unauthenticated connections of all kinds, each of which counts once
external_clients.py malformed feed|bus ENDPOINT KEYS COUNT  malformed messages of a client that may connect; it stays until stdin ends
external_clients.py subscribe ENDPOINT COUNT UNREAD         subscribers, UNREAD of which never read, until stdin ends; prints what they got
"""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import sys
import time
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zmq

from tokiod.bus import curve

if TYPE_CHECKING:
    from collections.abc import Iterator

GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\0"
FIRST_BYTES = (
    b"",
    b"\xff",
    b"GET / HTTP/1.0\r\n\r\n" * 5,
    GREETING + b"NULL" + b"\0" * 48,
    GREETING + b"CURVE" + b"\0" * 47,
    b"\xff" * 500,
)
AT_ONCE = 50


class Head(msgspec.Struct):
    """The part of a message's header that is read here."""

    stored: dict[str, object]


def connect(endpoint: str, keys: Path, count: int) -> None:
    """Make connections; every tenth of them is valid ZeroMQ but for its key."""
    _sockets(endpoint, keys, count // 10)
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    first_bytes, left = cycle(FIRST_BYTES), count - count // 10
    while left:
        some = [socket.create_connection((host, int(port)), 60) for _ in range(min(AT_ONCE, left))]
        left -= len(some)
        for client, data in zip(some, first_bytes, strict=False):
            client.sendall(data)
        for client in some:
            client.close()


def _sockets(endpoint: str, keys: Path, count: int) -> None:
    server = curve.public_key(keys / "server.key")
    with zmq.Context() as context:
        kinds = cycle([server, zmq.curve_keypair()[0], None])
        while count > 0:
            some = [_client(context, endpoint, kind) for kind in islice(kinds, min(AT_ONCE, count))]
            count -= len(some)
            time.sleep(0.3)
            for one in some:
                one.close(0)


def _client(context: zmq.Context, endpoint: str, server: bytes | None) -> zmq.Socket:
    one = context.socket(zmq.SUB)
    one.reconnect_ivl = -1
    if server is not None:
        curve.ClientKeys(server, curve.KeyPair(*zmq.curve_keypair())).secure(one)
    one.connect(endpoint)
    return one


def malformed(what: str, endpoint: str, keys: Path, count: int) -> None:
    """Send malformed messages, as fast as the daemon reads them."""
    rng = random.Random(7)
    with zmq.Context() as context, context.socket(zmq.XSUB if what == "feed" else zmq.DEALER) as client:
        if what == "feed":
            curve.ClientKeys.read(keys / "server.key", keys / "friend.key_secret").secure(client)
        # Without a limit: a subscriber drops what is not read at once.
        client.linger, client.sndhwm = -1, 0
        client.connect(endpoint)
        if what == "bus":
            client.send(b'{"type":"hello","sender":"malformed","connection":1}')
        for _ in range(count):
            junk = bytes([rng.randrange(2, 256)]) + rng.randbytes(rng.randrange(100))
            client.send_multipart([junk] * (1 if what == "feed" else rng.randrange(1, 7)))
        # libzmq drops what a connection had sent when it ends.
        sys.stdin.read()


def waiting(one: zmq.Socket) -> Iterator[list[bytes]]:
    """Yield the messages that have come."""
    with suppress(zmq.Again):
        while True:
            yield one.recv_multipart(zmq.NOBLOCK)


def subscribe(endpoint: str, count: int, unread: int) -> None:
    """Print, as JSON, how long the connections took, and what the live subscribers received until a line of input.

    It ends when each of them has received, of each topic, the last message that one of them had at that line.
    """
    # Real subscribers have processors of their own: here they are one process that uses what the daemon leaves. With less than this,
    # it got so little beside two busy processes that it had not read everything after ten minutes.
    os.nice(10)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    context = zmq.Context()
    context.max_sockets = 2 * count + 10
    sockets, begun = [], time.monotonic()
    for _ in range(count):
        one = context.socket(zmq.SUB)
        one.subscribe("")
        one.linger = 0
        # Those that read are one process here, and many elsewhere: messages must not be missed because it is late.
        one.rcvhwm = 1000 if len(sockets) < unread else 0
        one.connect(endpoint)
        sockets.append(one)
    poller = zmq.Poller()
    last: dict[zmq.Socket, dict[bytes, int]] = {one: {} for one in sockets[unread:]}
    for one in last:
        poller.register(one, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    decode, holes, messages = msgspec.json.Decoder(Head).decode, 0, 0
    until: dict[bytes, int] | None = None
    print(json.dumps({"connected": time.monotonic() - begun}), flush=True)
    while until is None or any(known.get(topic, 0) < number for known in last.values() for topic, number in until.items()):
        for one, _ in poller.poll():
            if not isinstance(one, zmq.Socket):
                until = {topic: max(known.get(topic, 0) for known in last.values()) for topic in set().union(*last.values())}
                poller.unregister(one)
                continue
            known = last[one]
            for topic, header, *cells in waiting(one):
                sequence = int(decode(header).stored["sequence"])  # type: ignore[call-overload] # a number
                # A subscriber that connects in between begins with the number that it receives first.
                missed = sequence - known.get(topic, sequence - bool(cells)) - bool(cells)
                holes += max(0, missed)
                messages += bool(cells)
                known[topic] = max(sequence, known.get(topic, 0))
    print(json.dumps({"live": len(last), "holes": holes, "messages": messages, "cpu": time.process_time()}), flush=True)
    context.destroy(0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["connect", endpoint, keys, count]:
            connect(endpoint, Path(keys), int(count))
        case ["malformed", what, endpoint, keys, count]:
            malformed(what, endpoint, Path(keys), int(count))
        case ["subscribe", endpoint, count, unread]:
            subscribe(endpoint, int(count), int(unread))
