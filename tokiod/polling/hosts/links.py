"""The connections of the other hosts, on the writer's host.

It is in the collectors' process, which has the pollers and the network: the writer has neither, and meets no host. The key of each message
comes from ZAP, whatever the message claims, and gives the host that it is from.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog
import zmq

from tokiod.bus.curve import HostKeys, host_key_files
from tokiod.bus.server_socket import ServerSocket
from tokiod.config.hosts import other_hosts, writers_host
from tokiod.errors import ConfigError, Malformed, TokiodError
from tokiod.polling.hosts import host_protocol as protocol
from tokiod.polling.hosts.remote_host import MALFORMED, HostRefused, RemoteHost
from tokiod.published.state_file import publish
from tokiod.runtime.log import Repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.published.hosts import HostState

log = structlog.get_logger()

BEAT_SECONDS = 5.0
"""Between two heartbeats."""
MAX_MESSAGES_PER_TURN = 64
MAX_WAITING_MESSAGES = 64
"""Of one host, in either direction."""


class HostLinks:
    """All other hosts of a configuration.

    keys: those that may connect. monotonic: the machine's, for signs of life.
    A socket that can't be opened, as before the machine has the address, is tried again: the sources of this host do not need it.
    """

    def __init__(self, config: Config, clock: Clock, keys: HostKeys, monotonic: Callable[[], float] = time.monotonic) -> None:
        writer = writers_host(config)
        self._clock, self._keys, self._monotonic = clock, keys, monotonic
        self._repeats, self._epoch = Repeats(clock), uuid4().hex
        self._path = config.hosts_state
        self._server: ServerSocket | None = None
        self._endpoint = writer.endpoint if writer else None
        self._fd: int | None = None
        self.hosts: dict[str, RemoteHost] = {}
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Use the hosts and sources of another configuration."""
        wanted = {host.name: host for host in other_hosts(config)}
        for name, host in list(self.hosts.items()):
            if name not in wanted:
                host.lose("it is no longer configured")
                del self.hosts[name]
        for name, section in wanted.items():
            self.hosts.setdefault(name, RemoteHost(section, self._clock, self._send)).config = section
        self._keys.files = host_key_files(config)

    def reload(self, config: Config) -> None:
        """Use another configuration, and read the keys again: those that are gone receive nothing from now on. Raises ConfigError."""
        writer = writers_host(config)
        if writer is None or writer.endpoint != self._endpoint:
            raise ConfigError(["host: the endpoint of the writer's host has changed: restart the collectors of this host"])
        self.configure(config)
        self._stop_listening()
        if self._server is None:
            self._keys.reload()
        elif self._server.reload_allowed_keys():
            for host in self.hosts.values():
                host.lose("all hosts connect again, because a key was removed")
        self._listen()
        self._note_missing_keys()

    async def run(self) -> None:
        """Serve the hosts until cancelled."""
        self._note_missing_keys()
        try:
            await self._open()
            while True:
                late = self._monotonic() + 2 * BEAT_SECONDS
                await asyncio.sleep(BEAT_SECONDS)
                for host in self.hosts.values():
                    # After a pause of this process itself, what hosts sent meanwhile is read first.
                    if self._monotonic() < late:
                        host.check_silence(self._monotonic())
                    host.beat()
                self.write_states()
        finally:
            self.close()

    def close(self) -> None:
        """End all connections. The hosts connect to the next daemon by themselves."""
        self._stop_listening()
        if self._server is not None:
            self._server.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def states(self) -> list[HostState]:
        """Return the state of each host."""
        return [host.state() for host in self.hosts.values()]

    def write_states(self) -> None:
        """Write the states for the commands that show them."""
        publish(self._path, self.states())

    async def _open(self) -> None:
        options: dict[int, int] = {
            zmq.ROUTER_MANDATORY: 1, zmq.MAXMSGSIZE: protocol.MAX_FRAME_BYTES, zmq.SNDHWM: MAX_WAITING_MESSAGES,
            zmq.RCVHWM: MAX_WAITING_MESSAGES,
        }  # fmt: skip
        while self._server is None:
            try:
                self._server = ServerSocket("hosts", zmq.ROUTER, str(self._endpoint), self._keys, options)
            except TokiodError as error:
                for host in self.hosts.values():
                    host.refuse("unreachable", str(error))
                if times := self._repeats(str(error)):
                    log.error("hosts.failed", error=str(error), times=times)  # noqa: TRY400 - no fault of tokiod
                self.write_states()
                await asyncio.sleep(BEAT_SECONDS)
        for host in self.hosts.values():
            if host.state().trouble == "unreachable":
                host.refuse("new", "")
        self._listen()

    # The file descriptor of a ZeroMQ socket becomes readable once for any number of messages, and sending may consume that.
    def _listen(self) -> None:
        """Receive from the socket, which may be another one than before."""
        if self._server is None:
            return
        self._fd = int(self._server.socket.getsockopt(zmq.FD))
        asyncio.get_running_loop().add_reader(self._fd, self._receive)
        self._receive()

    def _stop_listening(self) -> None:
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._fd = None

    def _receive(self) -> None:
        if self._fd is None or self._server is None:
            return
        with suppress(zmq.Again):
            for _ in range(MAX_MESSAGES_PER_TURN):
                self._read(self._server.socket.recv_multipart(zmq.NOBLOCK, copy=False))
            asyncio.get_running_loop().call_soon(self._receive)

    def _read(self, frames: Sequence[zmq.Frame]) -> None:
        route, last = frames[0].bytes, frames[-1]
        key, address = str(last.get("User-Id")).encode(), str(last.get("Peer-Address"))
        host = self.hosts.get(self._keys.hosts.get(key, ""))
        if host is None:
            return  # a key that was just removed
        try:
            self._handle(host, route, address, [frame.buffer for frame in frames[1:]])
        except HostRefused as error:
            self._refuse(host, error.reason, str(error), address)
            if len(frames) == 2 and host.route != route:  # noqa: PLR2004 - a Hello
                self._send(route, protocol.Refused(str(error)))
        except Malformed as error:
            self._refuse(host, MALFORMED, str(error), address)

    def _handle(self, host: RemoteHost, route: bytes, address: str, message: list[memoryview]) -> None:
        now = self._monotonic()
        if not message:
            raise Malformed("control", "a message without a frame")
        said = protocol.decode_from_host(message[0])
        if isinstance(said, protocol.Hello):
            host.greet(said, route, address, now)
            self._send(route, protocol.Welcome(self._epoch))
            host.beat()
            self.write_states()
            return
        if not host.is_current(route):
            return
        host.note_message(now)
        match said:
            case protocol.Alive():
                host.alive(said)
            case protocol.Goodbye():
                host.lose("its process has ended", "stopped")
                self.write_states()
            case _:
                host.answered(said, message[1:])

    def _refuse(self, host: RemoteHost, reason: str, detail: str, address: str) -> None:
        host.refused[reason] += 1
        if times := self._repeats((host.config.name, reason)):
            log.warning("host.refused", host=host.config.name, address=address, reason=reason, detail=detail, times=times)

    def _note_missing_keys(self) -> None:
        allowed = set(self._keys.hosts.values())
        for name, host in self.hosts.items():
            if name not in allowed:
                host.refuse("refused", f"its key {self._keys.files[name]} is missing here")
            elif host.state().trouble == "refused":
                host.refuse("new", "")

    def _send(self, route: bytes, message: protocol.ToHost) -> bool:
        if self._server is None:
            return False
        try:
            self._server.socket.send_multipart([route, protocol.encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        finally:
            asyncio.get_running_loop().call_soon(self._receive)
        return True
