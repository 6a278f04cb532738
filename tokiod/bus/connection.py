"""A connection to the writer, which is never mended: a socket, what tells of its end, and the parts that end with it."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from tokiod.bus.curve import ClientKeys

HIGH_WATER = 16
"""Messages that wait in the socket: few, because only what is acknowledged has arrived."""
REFUSED = "the writer does not let us in: it has other keys, or wants none; bus.refused in its log says which"

_REFUSALS = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH


class Lost(Exception):  # noqa: N818 - an event, not an error
    """The connection is of no use any more; the text says why."""


@contextmanager
def dealer(context: zmq.asyncio.Context, endpoint: str, keys: ClientKeys | None) -> Iterator[tuple[zmq.asyncio.Socket, zmq.asyncio.Socket]]:
    """Connect, and yield the socket and the one that tells of its end; both are closed behind it."""
    socket = context.socket(zmq.DEALER)
    monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | _REFUSALS)
    try:
        socket.linger = 0
        socket.immediate = True
        socket.sndhwm = HIGH_WATER
        socket.ipv6 = "[" in endpoint
        if keys is not None:
            keys.secure(socket)
        socket.connect(endpoint)
        yield socket, monitor
    finally:
        socket.disable_monitor()
        monitor.close(0)
        socket.close(0)


async def watch(monitor: zmq.asyncio.Socket) -> None:
    """Wait for the end of the connection. Raises Lost then."""
    event = parse_monitor_message(await monitor.recv_multipart())["event"]
    raise Lost("disconnected" if event == zmq.EVENT_DISCONNECTED else REFUSED)


async def first_failure(*parts: Coroutine[None, None, None]) -> None:
    """Run endless coroutines side by side until one fails, end the others, and raise what it raised.

    Not a TaskGroup: before Python 3.13 that forgets a cancellation which comes together with the failure.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
