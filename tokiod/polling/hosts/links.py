"""The connections of the other hosts, on the writer's host.

They come by the relay (tokiod.polling.hosts.relay), which hosts reach, and which knows from its key of which host each message is.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog
import zmq

from tokiod.bus.curve import host_key_files, is_there
from tokiod.bus.server_socket import ServerSocket
from tokiod.config.hosts import other_hosts
from tokiod.crossing.parts import MAX_INCOMPLETE_BYTES
from tokiod.errors import Malformed
from tokiod.polling.hosts import host_protocol as protocol
from tokiod.polling.hosts.relay import MAX_WAITING_MESSAGES, NO_ROUTE
from tokiod.polling.hosts.relay import SILENCE_SECONDS as RELAY_SILENCE_SECONDS
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
MAX_WAITING_REQUESTS = 8192
"""For all hosts together: those of all sources are sent at the same moment, and a host to which one can't be sent counts as lost."""
NO_RELAY = "`tokiod relay` on the writer's host, to which hosts connect, does not run"


class HostLinks:
    """All other hosts of a configuration. monotonic: the machine's, for signs of life."""

    def __init__(self, config: Config, clock: Clock, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._repeats, self._epoch = Repeats(clock), uuid4().hex
        self._path, self._endpoint = config.hosts_state, config.relay_inner
        self._relay: ServerSocket | None = None
        self._relay_heard, self._relay_epoch, self._trouble = monotonic(), "", ""
        self.hosts: dict[str, RemoteHost] = {}
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Use the hosts and sources of another configuration. Raises ConfigError."""
        wanted = {host.name: host for host in other_hosts(config.host)}
        for name, host in list(self.hosts.items()):
            if name not in wanted:
                host.lose("it is no longer configured")
                del self.hosts[name]
        for name, section in wanted.items():
            self.hosts.setdefault(name, RemoteHost(section, self._clock, self._send)).config = section
        self._note_missing_keys(config)

    async def run(self) -> None:
        """Serve the hosts until cancelled. Raises TokiodError where the socket of the relay can't be opened."""
        try:
            self._listen()
            while True:
                late = self._monotonic() + 2 * BEAT_SECONDS
                await asyncio.sleep(BEAT_SECONDS)
                for host in self.hosts.values():
                    # After a pause of this process itself, what hosts sent meanwhile is read first.
                    if self._monotonic() < late:
                        host.check_silence(self._monotonic())
                    host.beat()
                if self._monotonic() - self._relay_heard > RELAY_SILENCE_SECONDS:
                    self._note_trouble(NO_RELAY)
                self.write_states()
        finally:
            self.close()

    def close(self) -> None:
        """End all connections. The hosts connect to the next daemon by themselves."""
        if self._relay is not None:
            asyncio.get_running_loop().remove_reader(self._relay.socket.fileno())
            self._relay.close()
            self._relay = None
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def states(self) -> list[HostState]:
        """Return the state of each host."""
        return [host.state() for host in self.hosts.values()]

    def write_states(self) -> None:
        """Write the states for the commands that show them."""
        publish(self._path, self.states())

    # The file descriptor of a ZeroMQ socket becomes readable once for any number of messages, and sending may consume that.
    def _listen(self) -> None:
        options: dict[int, int] = {zmq.SNDHWM: MAX_WAITING_REQUESTS, zmq.RCVHWM: MAX_WAITING_MESSAGES}
        self._relay = ServerSocket("relay", zmq.DEALER, self._endpoint, None, options)
        asyncio.get_running_loop().add_reader(self._relay.socket.fileno(), self._receive)
        self._receive()

    def _receive(self) -> None:
        if self._relay is None:
            return
        with suppress(zmq.Again):
            for _ in range(MAX_MESSAGES_PER_TURN):
                route, *frames = self._relay.socket.recv_multipart(zmq.NOBLOCK, copy=False)
                self._read(route.bytes, frames)
            asyncio.get_running_loop().call_soon(self._receive)

    def _read(self, route: bytes, frames: Sequence[zmq.Frame]) -> None:
        if not frames:
            for one in self.hosts.values():
                if route in {NO_ROUTE, one.route}:
                    one.lose("its connection has ended")
        elif route == NO_ROUTE:
            self._relay_heard, self._relay_epoch = self._monotonic(), frames[1].bytes.decode()
            self._note_trouble(frames[0].bytes.decode())
            self._pass(NO_ROUTE, self._epoch.encode())
        elif self._relay_epoch == self._epoch and (host := self.hosts.get(frames[0].bytes.decode())):
            self._take(host, route, frames[1].bytes.decode(), [frame.buffer for frame in frames[2:]])

    def _take(self, host: RemoteHost, route: bytes, address: str, message: list[memoryview]) -> None:
        try:
            self._handle(host, route, address, message)
        except HostRefused as error:
            self._refuse(host, error.reason, str(error), address)
            if len(message) == 1 and host.route != route:  # a Hello
                self._send(route, protocol.Refused(str(error)))
        except Malformed as error:
            self._refuse(host, MALFORMED, str(error), address)

    def _note_trouble(self, trouble: str) -> None:
        """Note why no host can connect; empty if hosts can."""
        if trouble == self._trouble:
            return
        before, self._trouble = self._trouble, trouble
        for host in self.hosts.values():
            if not trouble:
                if host.state().reason.startswith(before):
                    host.expect()
            elif host.route is not None:
                host.lose(trouble)
            elif host.state().trouble in {"new", "unreachable"}:
                host.refuse("unreachable", trouble)
        self.write_states()

    def _handle(self, host: RemoteHost, route: bytes, address: str, message: list[memoryview]) -> None:
        now = self._monotonic()
        if not message:
            raise Malformed("control", "a message without a frame, or one that is too large")
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
                self._limit_parts()

    def _limit_parts(self) -> None:
        """Limit what has come of incomplete windows of all hosts together: the one with most gives up its oldest."""
        while sum(host.asking.nbytes for host in self.hosts.values()) > MAX_INCOMPLETE_BYTES:
            most = max((host.asking for host in self.hosts.values()), key=lambda asking: asking.nbytes)
            most.limit(most.nbytes - 1)

    def _refuse(self, host: RemoteHost, reason: str, detail: str, address: str) -> None:
        host.refused[reason] += 1
        if times := self._repeats((host.config.name, reason)):
            log.warning("host.refused", host=host.config.name, address=address, reason=reason, detail=detail, times=times)

    def _note_missing_keys(self, config: Config) -> None:
        for name, path in host_key_files(config.host, config.secrets).items():
            host = self.hosts[name]
            if not is_there(path):
                host.lose("its key was removed")
                host.refuse("refused", f"its key {path} is missing here")
            elif host.state().trouble == "refused":
                host.expect()

    def _send(self, route: bytes, message: protocol.ToHost) -> bool:
        return self._pass(route, protocol.encode(message))

    def _pass(self, route: bytes, message: bytes) -> bool:
        if self._relay is None:
            return False
        try:
            self._relay.socket.send_multipart([route, message], zmq.NOBLOCK)
        except zmq.Again:
            return False
        finally:
            asyncio.get_running_loop().call_soon(self._receive)
        return True
