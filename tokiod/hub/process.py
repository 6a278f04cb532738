"""The hub's process: the socket of the agents, the Unix socket of the daemon, and the limits on what agents can cost."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import structlog
import zmq

from collectors.nodes.hub_protocol import Answer, Request
from tokiod.agent.wire import MAX_FRAME_BYTES
from tokiod.archive.rights import check_private
from tokiod.bus.server_socket import ServerSocket
from tokiod.hub.classes import hub_keys
from tokiod.hub.hub import Hub
from tokiod.hub.messages import UNDECODABLE
from tokiod.metrics import catalogue
from tokiod.runtime.process_setup import limited, spare_descriptors
from tokiod.runtime.resident_memory import ResidentMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.crossing.codec import Frame
    from tokiod.runtime.service import Service

log = structlog.get_logger()

MAX_DESCRIPTORS = 32_768
"""One for each agent, and for each client that has not identified itself, for up to five seconds."""
MAX_NEW_CONNECTIONS = 4096
"""Agents that may dial within a moment, after a start of the hub; the kernel's net.core.somaxconn is a limit, too."""
MAX_RESIDENT_BYTES = 1 << 30
"""Of this process, at which all connections end. 10,000 agents take some 300 MB."""
MAX_DATA_BYTES = 2 << 30
MAX_WAITING_ASKS, MAX_WAITING_ROWS = 256, 32
"""Of one agent: a row of a node with many jobs has some 20 parts."""
MAX_TURN_SECONDS = 0.1
"""For the messages of agents; between two turns, requests are taken and the process shows that it lives. ZeroMQ takes turns by agents."""
NOTIFY_SECONDS = 1.0
MEMORY_CHECK_SECONDS = 0.2
TURN_MS = 200


class HubProcess:
    """The sockets, and the hub. Raises ConfigError, TokiodError for a socket that can't be opened."""

    def __init__(self, service: Service[Config], clock: Clock) -> None:
        self._service, self._notifier = service, service.notifier
        config = service.load()
        check_private(config.run)
        keys, classes = hub_keys(config.hub, config.secrets)
        self._memory = ResidentMemory()
        catalogue.start_counting(config.counters, "hub", config.source)
        options: dict[int, int] = {
            zmq.BACKLOG: MAX_NEW_CONNECTIONS,
            zmq.ROUTER_MANDATORY: 1, zmq.MAXMSGSIZE: MAX_FRAME_BYTES, zmq.SNDHWM: MAX_WAITING_ASKS, zmq.RCVHWM: MAX_WAITING_ROWS,
        }  # fmt: skip
        self._agents = ServerSocket("hub", zmq.ROUTER, str(config.hub.endpoint), keys, options)
        self._inner = ServerSocket("hub", zmq.ROUTER, config.hub_inner, None, {zmq.ROUTER_MANDATORY: 1})
        self._decoder, self._encoder = msgspec.json.Decoder(Request), msgspec.json.Encoder()
        self.hub = Hub(config.hub, classes, clock, self._send, self._reply)
        self._notified_at = self._checked_at = 0.0
        log.info("hub.ready", endpoint=config.hub.endpoint, classes=", ".join(config.hub.classes))
        self._notifier.ready()

    def serve(self) -> None:
        """Serve until the service must stop."""
        while not self._service.must_stop(self.reload):
            self.turn(TURN_MS)
        self._notifier.stopping()

    def turn(self, timeout_ms: int) -> None:
        """Handle the messages that have come, after waiting at most so long."""
        poller = zmq.Poller()
        for socket in (self._agents.socket, self._inner.socket):
            poller.register(socket, zmq.POLLIN)
        poller.poll(max(0, min(timeout_ms, int(1000 * self.hub.turn()))))
        self._receive_requests()
        self._receive_messages()
        self.hub.turn()
        now = time.monotonic()
        if now - self._checked_at >= MEMORY_CHECK_SECONDS:
            self._checked_at = now
            self._memory.limit(MAX_RESIDENT_BYTES, self._agents.end_unread, self._end_connections, "hub")
        if now - self._notified_at >= NOTIFY_SECONDS:
            self._notified_at = now
            self._notifier.alive(f"{len(self.hub.nodes.by_name)} nodes known")

    def reload(self) -> None:
        """Read the configuration again: which keys, classes and names are allowed, and the rates. Other changes need another process."""
        with self._service.reloading(), spare_descriptors():
            config = self._service.load()
            _, classes = hub_keys(config.hub, config.secrets)
            self.hub.reload(config.hub, classes)
            if self._agents.reload_allowed_keys():
                self.hub.disconnected()
            catalogue.start_counting(config.counters, "hub", config.source)

    def close(self) -> None:
        """Close the sockets."""
        self._inner.close()
        self._agents.close()
        self._memory.close()

    def _receive_messages(self) -> None:
        end = time.monotonic() + MAX_TURN_SECONDS
        with suppress(zmq.Again):
            while time.monotonic() < end:
                frames = self._agents.receive()
                if len(frames) == 2:  # noqa: PLR2004 - route and message
                    route, message = frames
                    # ZAP gives the key and the address of the connection, whatever the message claims.
                    key, address = str(message.get("User-Id")).encode(), str(message.get("Peer-Address"))
                    self.hub.receive(route.bytes, key, address, message.bytes)

    def _receive_requests(self) -> None:
        with suppress(zmq.Again):
            while True:
                client, *frames = self._inner.socket.recv_multipart(zmq.NOBLOCK)
                try:
                    self.hub.request(client, self._decoder.decode(b"".join(frames)))
                except UNDECODABLE as error:
                    log.warning("hub.request_malformed", error=str(error))

    def _send(self, route: bytes, message: bytes) -> bool:
        """Send to an agent; return False where its connection has ended, or it does not read."""
        try:
            self._agents.socket.send_multipart([route, message], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def _reply(self, client: bytes, answer: Answer, frames: Sequence[Frame]) -> bool:
        """Send to a client; return False where it has gone, or does not read: it asks again."""
        try:
            self._inner.socket.send_multipart([client, self._encoder.encode(answer), *frames], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError:
            return False
        return True

    def _end_connections(self, reason: str) -> None:
        log.error("hub.overloaded", reason=reason, action="all agents were disconnected; they connect again by themselves")
        catalogue.HUB_OVERLOADS.inc()
        self._agents.reopen()
        self.hub.disconnected()


def run(service: Service[Config], clock: Clock) -> None:
    """Serve agents until the service must stop. Raises ConfigError, TokiodError for a socket that can't be opened."""
    with limited(lambda: HubProcess(service, clock), descriptors=MAX_DESCRIPTORS, data_bytes=MAX_DATA_BYTES) as process:
        process.serve()
    log.info("hub.stopped")
