"""The relay: the process that the other hosts reach. It knows their keys, and passes messages on to the collectors' process and back.

    hosts ──TCP, keys──► ROUTER, this process, DEALER ──Unix socket of the daemon's user──► collectors (tokiod.polling.hosts.links)

It decodes nothing. Clients of its port can cost this process memory and time, and the pollers, the writer and the archive nothing. Its
messages on the Unix socket:

    to the collectors    route, name of the host, its address, frames of its message
                         route                a connection that has ended; no route: all have
                         no route, trouble,   every second: a sentence on why its port can't be opened, or nothing; and the run of the
                         epoch                collectors for which it is open
    from the collectors  route, message
                         no route, epoch      the answer to each of the former: this run of the collectors

At another epoch all hosts connect again, because new collectors know none of their connections and ignore what came before.
Without collectors the port is closed. A route begins with what is different each time that the port is opened: libzmq gives the first
connections of each process the same ones.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
import zmq

from tokiod.archive.lock import RELAY, RELEASE_SECONDS, ProcessLock
from tokiod.archive.rights import check_private
from tokiod.bus.curve import host_key_files, hosts_server_keys
from tokiod.bus.server_socket import ServerSocket
from tokiod.config.hosts import other_hosts, writers_host
from tokiod.errors import ConfigError, TokiodError
from tokiod.metrics import catalogue
from tokiod.polling.hosts.host_protocol import MAX_FRAME_BYTES
from tokiod.runtime.process_setup import free_unused_memory, limited, spare_descriptors
from tokiod.runtime.resident_memory import ResidentMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokiod.config.schema import Config
    from tokiod.runtime.service import Service

log = structlog.get_logger()

NO_ROUTE = b""
"""In place of a connection's route: a message between the two processes."""
MAX_WAITING_MESSAGES = 64
"""Of one host, in either direction; and on the Unix socket."""
MAX_FRAMES, MAX_MESSAGE_BYTES = 32, 2 * MAX_FRAME_BYTES
"""Of a message of a host: a part of a window, and what is stated of it, are less. Of more, none is passed on."""
MAX_DESCRIPTORS = 8192
"""For connections; each client that has not identified itself has one for up to five seconds."""
MAX_RESIDENT_BYTES = 512 << 20
"""Of this process, at which all connections end."""
MAX_DATA_BYTES = 1 << 30
MAX_TURN_SECONDS = 0.1
STATE_SECONDS = 1.0
SILENCE_SECONDS = 20.0
"""Without a word of the collectors, after which the port is closed."""
RETRY_SECONDS = 5.0
"""Between two attempts to open the port, as before the machine has the address."""
TURN_MS = 200
NO_HOSTS = "host: there is no [[host]] but the writer's, so none can connect"


class Relay:
    """Both sockets. Raises ConfigError without other hosts, or where a key can't be read."""

    def __init__(self, service: Service[Config], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._service, self._notifier, self._monotonic = service, service.notifier, monotonic
        config = service.load()
        check_private(config.run)
        keys = hosts_server_keys(config.host, config.secrets)
        if keys is None:
            raise ConfigError([NO_HOSTS])
        self._keys, self._endpoint = keys, _endpoint(config)
        self._memory = ResidentMemory()
        catalogue.start_counting(config.counters, "relay", config.source)
        self._context = zmq.Context()
        # Connected, not bound: libzmq ends a process that has no descriptor left for a client of its Unix socket.
        self._inner = self._context.socket(zmq.DEALER)
        self._inner.linger, self._inner.immediate = 0, True
        self._inner.sndhwm = self._inner.rcvhwm = MAX_WAITING_MESSAGES
        self._inner.connect(config.relay_inner)
        self._is_full = False
        self._trouble, self._epoch, self._opened = "", b"", os.urandom(4)
        self._heard = self._stated = self._tried = float("-inf")
        self.hosts: ServerSocket | None = None
        log.info("relay.ready", endpoint=self._endpoint)
        self._notifier.ready()

    def serve(self) -> None:
        """Serve until the service must stop."""
        while not self._service.must_stop(self.reload):
            self.turn(TURN_MS)
        self._notifier.stopping()

    def turn(self, timeout_ms: int) -> None:
        """Pass on the messages that have come, after waiting at most so long."""
        waited_for: list[tuple[zmq.SyncSocket | int, int]] = [(self._service.wakeup, zmq.POLLIN)]
        waited_for.append((self._inner, zmq.POLLIN | (zmq.POLLOUT if self._is_full else 0)))
        if self.hosts is not None and not self._is_full:
            waited_for.append((self.hosts.socket, zmq.POLLIN))
        zmq.zmq_poll(waited_for, timeout_ms)
        self._receive_answers()
        self._receive_messages()
        now = self._monotonic()
        if now - self._heard > SILENCE_SECONDS:
            self._epoch = b""
            self._close()
        elif self.hosts is not None:
            self._memory.limit(MAX_RESIDENT_BYTES, self.hosts.end_unread, self._end_connections, "relay")
        elif now - self._tried >= RETRY_SECONDS:
            self._open()
        if now - self._stated >= STATE_SECONDS:
            self._state()

    def reload(self) -> None:
        """Read the configuration again: which hosts and keys are allowed, and where they connect."""
        with self._service.reloading(), spare_descriptors():
            config = self._service.load()
            if not other_hosts(config.host):
                raise ConfigError([NO_HOSTS])
            self._keys.files = host_key_files(config.host, config.secrets)
            if self._keys.reload() or _endpoint(config) != self._endpoint:
                self._endpoint = _endpoint(config)
                self._close()
                self._tried = float("-inf")
            catalogue.start_counting(config.counters, "relay", config.source)

    def close(self) -> None:
        """Close the sockets."""
        self._close()
        self._inner.close(0)
        self._context.term()
        self._memory.close()

    def _receive_answers(self) -> None:
        with suppress(zmq.Again):
            while True:
                route, message = self._inner.recv_multipart(zmq.NOBLOCK, copy=False)
                if len(route) == 0:
                    self._note_epoch(message.bytes)
                elif not self._send(route.bytes, message):
                    self._tell([route])

    def _note_epoch(self, epoch: bytes) -> None:
        self._heard = self._monotonic()
        if epoch == self._epoch:
            return
        self._epoch = epoch
        self._close()
        self._open()

    def _send(self, route: bytes, message: zmq.Frame) -> bool:
        """Send to a host; return False where its connection has ended, or it does not read."""
        if self.hosts is None or not route.startswith(self._opened):
            return False
        try:
            self.hosts.socket.send_multipart([route.removeprefix(self._opened), message], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError:
            return False
        return True

    def _receive_messages(self) -> None:
        self._is_full = False
        if self.hosts is None:
            return
        end = self._monotonic() + MAX_TURN_SECONDS
        with suppress(zmq.Again):
            while self._monotonic() < end:
                if not int(self._inner.getsockopt(zmq.EVENTS)) & zmq.POLLOUT:
                    self._is_full = True
                    return
                self._pass_on(self.hosts.receive())

    def _pass_on(self, frames: Sequence[zmq.Frame]) -> None:
        route, *message = frames
        # ZAP gives the key and the address of the connection, whatever the message claims.
        last = frames[-1]
        if (name := self._keys.hosts.get(str(last.get("User-Id")).encode())) is None:
            return  # a key that was just removed
        if len(message) > MAX_FRAMES or sum(map(len, message)) > MAX_MESSAGE_BYTES:
            message = []
        self._tell([self._opened + route.bytes, name.encode(), str(last.get("Peer-Address")).encode(), *message])

    def _tell(self, frames: Sequence[zmq.Frame | bytes]) -> None:
        """Send to the collectors. Where they take nothing, they have gone, or find by its silence that a connection has ended."""
        with suppress(zmq.Again):
            self._inner.send_multipart(frames, zmq.NOBLOCK, copy=False)

    def _state(self) -> None:
        self._stated = self._monotonic()
        self._tell([NO_ROUTE, self._trouble.encode(), self._epoch])
        self._notifier.alive(
            self._trouble or ("waiting for the collectors" if self.hosts is None else f"hosts connect to {self._endpoint}")
        )

    def _open(self) -> None:
        """Open the port. Where it can't be opened, the sources of this host do not need it."""
        self._tried = self._monotonic()
        options: dict[int, int] = {
            zmq.ROUTER_MANDATORY: 1, zmq.MAXMSGSIZE: MAX_FRAME_BYTES, zmq.SNDHWM: MAX_WAITING_MESSAGES, zmq.RCVHWM: MAX_WAITING_MESSAGES,
        }  # fmt: skip
        try:
            self.hosts = ServerSocket("hosts", zmq.ROUTER, self._endpoint, self._keys, options)
            trouble = ""
        except TokiodError as error:
            trouble = str(error)
            if trouble != self._trouble:
                log.error("hosts.failed", error=trouble)  # noqa: TRY400 - no fault of tokiod
        self._trouble = trouble
        self._state()

    def _close(self) -> None:
        if self.hosts is not None:
            self.hosts.close()
            self.hosts = None
            self._note_end()

    def _note_end(self) -> None:
        """Note that all connections have ended, and tell the collectors."""
        self._opened = os.urandom(4)
        self._tell([NO_ROUTE])

    def _end_connections(self, reason: str) -> None:
        log.error("hosts.overloaded", reason=reason, action="all hosts were disconnected; they connect again by themselves")
        catalogue.RELAY_OVERLOADS.inc()
        self._close()
        free_unused_memory()
        self._open()


def _endpoint(config: Config) -> str:
    writer = writers_host(config.host)
    return str(writer.endpoint if writer else "")


def run(service: Service[Config]) -> None:
    """Pass on messages until the service must stop. Raises ConfigError, AlreadyRunning where there is another relay."""
    limits = {"descriptors": MAX_DESCRIPTORS, "data_bytes": MAX_DATA_BYTES}
    with ProcessLock(service.load().relay_lock, RELEASE_SECONDS, locked=RELAY), limited(lambda: Relay(service), **limits) as relay:
        relay.serve()
    log.info("relay.stopped")
