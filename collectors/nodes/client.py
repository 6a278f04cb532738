"""Requests to the hub, over a Unix socket of the daemon's user."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zmq
import zmq.asyncio

from collectors.nodes.hub_protocol import Answer, Cancel, Refused, Request
from tokiod.errors import NotYet, Transient

if TYPE_CHECKING:
    from collections.abc import Callable


class HubClient:
    """A connection to the hub, made at the first request. One request at a time."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._ids = itertools.count(1)
        self._context: zmq.asyncio.Context | None = None
        self._socket: zmq.asyncio.Socket | None = None
        self._encoder, self._decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Answer)

    async def ask(self, request: Callable[[int], Request]) -> tuple[Answer, list[bytes]]:
        """Send what `request` makes of a new number; return the answer and its arrays. Where this is cancelled, so is the request.

        Raises Transient while no hub is there, and NotYet while it waits for its agents.
        """
        if not self._is_there():
            raise Transient(f"no hub at {self._endpoint}: does the daemon run with the table [hub]?")
        number, socket = next(self._ids), self._connected()
        try:
            await socket.send(self._encoder.encode(request(number)))
            answer, arrays = await self._answer(socket, number)
        except asyncio.CancelledError:
            # A hub that takes nothing now, or a connection that is closed: the request ends at its time limit.
            with suppress(zmq.ZMQError):
                zmq.Socket.send(socket, self._encoder.encode(Cancel(number)), zmq.NOBLOCK)
            raise
        if isinstance(answer, Refused):
            raise NotYet(answer.reason) if answer.not_yet else Transient(answer.reason)
        return answer, arrays

    async def _answer(self, socket: zmq.asyncio.Socket, number: int) -> tuple[Answer, list[bytes]]:
        """Return the answer to a request. One to a request that was cancelled may come before it."""
        while True:
            frames = await socket.recv_multipart()
            answer = self._decoder.decode(frames[0])
            if answer.id == number:
                return answer, frames[1:]

    def close(self) -> None:
        """End the connection."""
        if self._context is not None:
            self._context.destroy(linger=0)
        self._context = self._socket = None

    def _is_there(self) -> bool:
        return Path(self._endpoint.removeprefix("ipc://")).exists()

    def _connected(self) -> zmq.asyncio.Socket:
        if self._socket is None:
            self._context = zmq.asyncio.Context()
            self._socket = self._context.socket(zmq.DEALER)
            self._socket.connect(self._endpoint)
        return self._socket
