"""Which connections a server socket accepts, by their keys (ZAP, RFC 27), and how many it refuses, by reason."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog
import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

from tokiod.bus.curve import DOMAIN
from tokiod.clock import SystemClock
from tokiod.metrics import catalogue
from tokiod.runtime.log import Repeats

if TYPE_CHECKING:
    from collections import Counter

    from tokiod.bus.connections import Connections
    from tokiod.bus.curve import ServerKeys

log = structlog.get_logger()

UNKNOWN, NO_KEY, WRONG_SERVER, JUNK, UNFINISHED, CROWDED, UNREAD = catalogue.REFUSALS
"""Why connections are refused: their key is unknown; they do not encrypt; they encrypt for another server; they do not speak ZeroMQ, or
not as it allows; they ended, or were silent, before they had identified themselves, as clients without a key do once they learn that the
server requires one; they were one too many without a known key. Or accepted, and ended
when memory was short: they had sent most of what was not read."""
DECIDED_SECONDS = 15.0
"""Age at which a connection is accepted or refused, however busy the machine is: three times the limit for a handshake."""

_EVENTS_ENDPOINT, _STOP_ENDPOINT = "inproc://audit.events", "inproc://audit.stop"
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | _FAILED
_PROTOCOL_REASONS: dict[int, str] = {
    zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: NO_KEY,
    zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC: WRONG_SERVER,
    # From a client that goes on sending while its key is looked up, or after it was refused and counted.
    zmq.PROTOCOL_ERROR_ZMTP_UNSPECIFIED: "",
}


class Authenticator(ThreadAuthenticator):
    """Accept the clients whose keys are allowed, in a thread of its own; the server sockets of its context ask it.

    Each accepted key and address is logged, repeated ones once in five minutes.
    refused: address and key of the last client that was not accepted.
    """

    def __init__(self, name: str, context: zmq.SyncContext, keys: ServerKeys) -> None:
        super().__init__(context)
        self.refused: dict[str, str] = {}
        self._log_event = f"{name}.accepted"
        self._repeats = Repeats(SystemClock())
        self._keys = keys
        self._address = ""
        self.configure_curve_callback(DOMAIN, self)

    def callback(self, _domain: str, key: bytes) -> bool:
        """Return whether a key is allowed; pyzmq asks."""
        is_allowed = key in self._keys.allowed
        client = {"address": self._address, "key": key.decode()}
        if not is_allowed:
            self.refused = client
        elif times := self._repeats((self._address, key)):
            log.info(self._log_event, **client, times=times)
        return is_allowed

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """Answer a request: version, request, domain, address, ... Keep the address, which pyzmq does not pass on to callback()."""
        self._address = msg[3].decode()
        await super().handle_zap_message(msg)


class ConnectionAudit:
    """Authenticate the connections of one server socket and count those that it refuses, from before it is bound until it is closed.

    A thread of its own: connections that come while the loop of the process is busy must neither wait nor be missed. libzmq blocks all
    connections of a socket while the reader of its events is slow, so the queue of events has no limit here.
    connections: those of a socket on TCP, with their limits. refused: counted by reason (catalogue.REFUSALS); the log has a line per
    reason and interval.

    Each connection is counted once. libzmq reports, in order and by descriptor, when a connection begins and ends, and for most of those
    that it ends itself, why, just before the end. It does not report all, nor which connection it accepted or which has an unknown key.
    The number that ended without a report is therefore what is left of all connections without those reported and those still undecided.
    """

    def __init__(
        self, name: str, context: zmq.SyncContext, keys: ServerKeys | None, connections: Connections | None, refused: Counter[str]
    ) -> None:
        self._name, self._log_event = name, f"{name}.refused"
        self._connections, self._refused = connections, refused
        self._clock = SystemClock()
        self._repeats = Repeats(self._clock)
        self._begun = self._decided = 0
        self._undecided: dict[int, float] = {}
        self._crowded: dict[int, str] = {}
        self._reported = ""
        self._authenticator = None if keys is None else Authenticator(name, context, keys)
        if self._authenticator is not None:
            self._authenticator.start()
        self._events, self._stop, self._stopping = (context.socket(zmq.PAIR) for _ in range(3))
        for socket in (self._events, self._stop, self._stopping):
            socket.linger = socket.rcvhwm = socket.sndhwm = 0
        self._stopping.bind(_STOP_ENDPOINT)
        self._stop.connect(_STOP_ENDPOINT)
        self._thread = threading.Thread(target=self._run, name=f"{name} audit", daemon=True)

    def watch(self, socket: zmq.SyncSocket) -> None:
        """Begin, with a socket that is not bound yet."""
        socket.monitor(_EVENTS_ENDPOINT, _EVENTS)
        self._events.connect(_EVENTS_ENDPOINT)
        self._thread.start()

    def close(self) -> None:
        """End the threads; the socket is closed first."""
        if self._thread.is_alive():
            self._stop.send(b"")
            self._thread.join()
        if self._authenticator is not None:
            self._authenticator.stop()
        for socket in (self._events, self._stop, self._stopping):
            socket.close(0)

    def end_unread(self, most: int) -> int:
        """End the connections that have sent more than so many bytes that were not read, in any thread; return how many."""
        ended = self._connections.end_unread(most) if self._connections is not None else []
        for address, nbytes in ended:
            self._report(UNREAD, address=address, mib=nbytes >> 20)
        return len(ended)

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in (self._events, self._stopping):
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(1000 if self._undecided else None))
            if self._stopping in ready:
                return
            if self._events in ready:
                self._handle(self._events.recv_multipart())
            self._count_unreported()

    def _handle(self, message: list[bytes]) -> None:
        event = parse_monitor_message(message)
        reported, self._reported = self._reported, ""
        match event["event"]:
            case zmq.EVENT_ACCEPTED:
                self._begun += 1
                self._undecided[event["value"]] = self._clock.monotonic()
                if self._connections is not None and (ended := self._connections.begin(event["value"])) is not None:
                    self._crowded[ended[0]] = ended[1]
            case zmq.EVENT_DISCONNECTED:
                self._end(event["value"], reported)
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._decided += 1
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._count(UNKNOWN)
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self._reported = _PROTOCOL_REASONS.get(event["value"], JUNK)
            case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._reported = UNFINISHED

    def _end(self, descriptor: int, reason: str) -> None:
        """Count a connection that ended for a reported reason, unless it is so old that it was accepted or counted before."""
        if self._connections is not None:
            self._connections.end(descriptor)
        address = self._crowded.pop(descriptor, None)
        if self._undecided.pop(descriptor, None) is None or not reason:
            return
        if address is not None and reason == UNFINISHED:
            self._count(CROWDED, address=address)
        else:
            self._count(reason)

    def _count_unreported(self) -> None:
        """Count the connections that ended without a report."""
        oldest = self._clock.monotonic() - DECIDED_SECONDS
        while self._undecided and next(iter(self._undecided.values())) < oldest:
            del self._undecided[next(iter(self._undecided))]
        if (unreported := self._begun - self._decided - len(self._undecided)) > 0:
            self._count(JUNK, unreported)

    def _count(self, reason: str, count: int = 1, **client: str) -> None:
        self._decided += count
        self._report(reason, count, **client)

    def _report(self, reason: str, count: int = 1, **client: str | int) -> None:
        self._refused[reason] += count
        catalogue.REFUSED_CONNECTIONS.inc(self._name, reason, by=count)
        if times := self._repeats(reason):
            if self._authenticator is not None and reason == UNKNOWN:
                client = dict(self._authenticator.refused)
            log.warning(self._log_event, reason=reason, times=max(times, count), **client)
