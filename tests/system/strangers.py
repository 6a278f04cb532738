"""What strangers, rude clients and many subscribers do to a daemon's sockets, as a process of its own. Only ever on loopback.

strangers.py connect PORT KEYS COUNT          unauthenticated connections of all kinds, each of which counts once
strangers.py talk feed|bus PORT KEYS COUNT    malformed messages from one who has a key and stays until stdin ends
strangers.py listen ENDPOINT COUNT DEAF       subscribers, of which some never read, until stdin ends; prints what they heard
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
SAID = (b"", b"\xff", b"GET / HTTP/1.0\r\n\r\n" * 5, GREETING + b"NULL" + b"\0" * 48, GREETING + b"CURVE" + b"\0" * 47, b"\xff" * 500)
AT_ONCE = 50


class Head(msgspec.Struct):
    """What matters of a message's header."""

    stored: dict[str, object]


def connect(port: int, keys: Path, count: int) -> None:
    """Every tenth of them speaks ZeroMQ as well as anybody, but for its key."""
    _sockets(port, keys, count // 10)
    said, left = cycle(SAID), count - count // 10
    while left:
        some = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(min(AT_ONCE, left))]
        left -= len(some)
        for stranger, words in zip(some, said, strict=False):
            stranger.sendall(words)
        for stranger in some:
            stranger.close()


def _sockets(port: int, keys: Path, count: int) -> None:
    server = curve.public_key(keys / "server.key")
    with zmq.Context() as context:
        kinds = cycle([server, zmq.curve_keypair()[0], None])
        while count > 0:
            some = [_stranger(context, port, kind) for kind in islice(kinds, min(AT_ONCE, count))]
            count -= len(some)
            time.sleep(0.3)
            for one in some:
                one.close(0)


def _stranger(context: zmq.Context, port: int, server: bytes | None) -> zmq.Socket:
    one = context.socket(zmq.SUB)
    one.reconnect_ivl = -1
    if server is not None:
        curve.ClientKeys(server, curve.KeyPair(*zmq.curve_keypair())).secure(one)
    one.connect(f"tcp://127.0.0.1:{port}")
    return one


def talk(what: str, port: int, keys: Path, count: int) -> None:
    """Say what nobody understands, as fast as it is taken."""
    rng = random.Random(7)
    with zmq.Context() as context, context.socket(zmq.XSUB if what == "feed" else zmq.DEALER) as rude:
        curve.ClientKeys.read(keys / "server.key", keys / "friend.key_secret").secure(rude)
        # Without a limit: who subscribes drops what is not taken at once.
        rude.linger, rude.sndhwm = -1, 0
        rude.connect(f"tcp://127.0.0.1:{port}")
        if what == "bus":
            rude.send(b'{"type":"hello","sender":"rude","connection":1}')
        for _ in range(count):
            junk = bytes([rng.randrange(2, 256)]) + rng.randbytes(rng.randrange(100))
            rude.send_multipart([junk] * (1 if what == "feed" else rng.randrange(1, 7)))
        # What a connection had said is forgotten with it.
        sys.stdin.read()


def waiting(one: zmq.Socket) -> Iterator[list[bytes]]:
    """Yield the messages that have come."""
    with suppress(zmq.Again):
        while True:
            yield one.recv_multipart(zmq.NOBLOCK)


def listen(endpoint: str, count: int, deaf: int) -> None:
    """Print, as JSON, the last number that each live subscriber heard of each topic, the holes, and how long they took to come."""
    # They have processors of their own elsewhere: here they are one process that takes what the daemon leaves.
    os.nice(19)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    context = zmq.Context()
    context.max_sockets = 2 * count + 10
    sockets, begun = [], time.monotonic()
    for _ in range(count):
        one = context.socket(zmq.SUB)
        one.subscribe("")
        one.linger = 0
        # Those that read are one process here, and many elsewhere: what it is late with must not be missed.
        one.rcvhwm = 1000 if len(sockets) < deaf else 0
        one.connect(endpoint)
        sockets.append(one)
    poller = zmq.Poller()
    last: dict[zmq.Socket, dict[bytes, int]] = {one: {} for one in sockets[deaf:]}
    for one in last:
        poller.register(one, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    decode, holes, heard, is_over = msgspec.json.Decoder(Head).decode, 0, 0, False
    print(json.dumps({"connected": time.monotonic() - begun}), flush=True)
    while ready := poller.poll(0 if is_over else None):
        for one, _ in ready:
            if not isinstance(one, zmq.Socket):
                is_over = True
                poller.unregister(one)
                continue
            known = last[one]
            for topic, header, *cells in waiting(one):
                sequence = int(decode(header).stored["sequence"])  # type: ignore[call-overload] # a number
                # Who comes while it is said begins with the number that it hears first.
                missed = sequence - known.get(topic, sequence - bool(cells)) - bool(cells)
                holes += max(0, missed)
                heard += bool(cells)
                known[topic] = max(sequence, known.get(topic, 0))
    told = [{topic.decode(): number for topic, number in known.items()} for known in last.values()]
    same = all(one == told[0] for one in told)
    print(json.dumps({"live": len(told), "holes": holes, "messages": heard, "same": same, "cpu": time.process_time()}), flush=True)
    context.destroy(0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["connect", port, keys, count]:
            connect(int(port), Path(keys), int(count))
        case ["talk", what, port, keys, count]:
            talk(what, int(port), Path(keys), int(count))
        case ["listen", endpoint, count, deaf]:
            listen(endpoint, int(count), int(deaf))
