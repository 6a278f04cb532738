"""Requests to the hub, over a Unix socket of the daemon's user."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zmq
import zmq.asyncio

from tokiod.crossing import dialogue
from tokiod.crossing.asking import Asking, Unasked
from tokiod.errors import Malformed, Transient

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.window_data import WindowData

CLOSED = "the connection to the hub was closed"


class HubClient:
    """A connection to the hub, made at the first request."""

    name = "the hub"

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._asking = Asking(self.name, self._send)
        self._context: zmq.asyncio.Context | None = None
        self._socket: zmq.asyncio.Socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self._decode = msgspec.json.Decoder(dialogue.Answer).decode

    async def ask(self, make: Callable[[int], dialogue.Collect | dialogue.Count]) -> WindowData | int | None:
        """Ask, and return the answer; see Asking.ask(). Raises Transient while no hub is there, NotYet while it waits for its agents."""
        if not self._is_there():
            raise Transient(f"no hub at {self._endpoint}: does the daemon run with the table [hub]?")
        self._connect()
        return await self._asking.ask(make)

    def tell(self, message: dialogue.Stored | dialogue.Close) -> None:
        """Send nothing: the hub has no lanes."""

    def close(self) -> None:
        """End the connection. What waits for an answer fails."""
        self._asking.fail_all(CLOSED)
        if self._reading is not None:
            self._reading.cancel()
        if self._context is not None:
            self._context.destroy(linger=0)
        self._context = self._socket = self._reading = None

    def _is_there(self) -> bool:
        return Path(self._endpoint.removeprefix("ipc://")).exists()

    def _connect(self) -> None:
        if self._socket is None:
            self._context = zmq.asyncio.Context()
            self._socket = self._context.socket(zmq.DEALER)
            self._socket.connect(self._endpoint)
            self._reading = asyncio.create_task(self._read(self._socket))

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart(copy=False)
            try:
                answer = self._decode(frames[0].buffer)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self._asking.fail_all(f"the hub's answer is of another version than this process: {error}")
                continue
            with suppress(Unasked, Malformed):  # of an earlier connection; or its request has failed
                self._asking.answered(answer, [frame.buffer for frame in frames[1:]])

    def _send(self, message: dialogue.Asked) -> None:
        if self._socket is None:
            raise Transient(CLOSED)
        try:
            zmq.Socket.send(self._socket, dialogue.encode(message), zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise Transient(f"the hub takes no request: {error}") from None
