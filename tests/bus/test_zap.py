"""Each refused connection is counted once, whatever the client does and however slow the authentication is."""

import socket
import struct
import time
from collections import Counter
from contextlib import closing, suppress
from multiprocessing import connection

import pytest
import structlog
import zmq
from hypothesis import given
from hypothesis import strategies as st
from keyed import wait

from tokiod.bus import zap
from tokiod.bus.feed import Feed
from tokiod.bus.zap import CROWDED, DECIDED_SECONDS, JUNK, NO_KEY, UNFINISHED, UNKNOWN, WRONG_SERVER, Authenticator, ConnectionAudit

GREETING, WELCOME = 64, 170
"""Bytes that a server sends first."""
UNKNOWN_COMMAND = b"\x04\x05\x04RUDE"

BEGUN, ACCEPTED, ENDED = (zmq.EVENT_ACCEPTED, None), (zmq.EVENT_HANDSHAKE_SUCCEEDED, 0), (zmq.EVENT_DISCONNECTED, None)
UNKNOWN_KEY, GAVE_UP = (zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400), (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, 32)
MISMATCH, UNREADABLE, UNSPECIFIED = (
    (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, code)
    for code in (
        zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH,
        zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC,
        zmq.PROTOCOL_ERROR_ZMTP_UNSPECIFIED,
    )
)
OUTCOMES = (
    (None, [BEGUN], [ACCEPTED]),
    (None, [BEGUN], [ACCEPTED], [ENDED]),
    (NO_KEY, [BEGUN], [MISMATCH, ENDED]),
    (WRONG_SERVER, [BEGUN], [UNREADABLE, ENDED]),
    (UNFINISHED, [BEGUN], [GAVE_UP, ENDED]),
    (UNKNOWN, [BEGUN], [UNKNOWN_KEY], [ENDED]),
    (UNKNOWN, [BEGUN], [UNKNOWN_KEY], [UNSPECIFIED, ENDED]),
    (JUNK, [BEGUN], [UNSPECIFIED, ENDED]),
    (JUNK, [BEGUN], [ENDED]),
)
"""What a connection is counted as, and the events that libzmq reports of it; in brackets those that it reports together."""


@pytest.fixture
def feed(tcp, keyring):
    keyring.allowed("friend")
    with Feed(tcp, "this-run", keys=keyring.server_keys()) as feed:
        yield feed


def connected(tcp):
    host, port = tcp.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), 5)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.0\r\n\r\n" * 10, JUNK),
        (b"\xff" + b"\0" * 8 + b"\x7f\x03\0" + b"NULL" + b"\0" * 48, NO_KEY),
        (b"", UNFINISHED),
        (b"\xff", UNFINISHED),
    ],
    ids=["another protocol", "a greeting without keys", "nothing", "the beginning of a greeting"],
)
def test_a_client_that_does_not_speak_zeromq_is_counted(feed, tcp, sent, reason):
    for _ in range(20):
        with connected(tcp) as client:
            client.sendall(sent)
    wait(lambda: feed.poll() == 0 and sum(feed.refused.values()) == 20)
    assert set(feed.refused) <= {reason, UNFINISHED}
    if reason != UNFINISHED:
        assert feed.refused[reason] > 0
    assert feed.subscriptions == set()


def test_clients_that_disconnect_while_their_key_is_looked_up_are_counted_once(feed, keyring, subscriber, monkeypatch):
    answer, asked = Authenticator.callback, []

    def slowly(self, domain, key):
        time.sleep(0.1)
        asked.append(key)
        return answer(self, domain, key)

    monkeypatch.setattr(Authenticator, "callback", slowly)
    clients = [subscriber(keyring.unknown(), reconnect_ivl=-1) for _ in range(10)]
    wait(lambda: len(asked) == 3)
    for client in clients:
        client.close(0)
    wait(lambda: len(asked) == 10)
    wait(lambda: sum(feed.refused.values()) >= 10)
    time.sleep(0.1)
    assert sum(feed.refused.values()) == 10
    assert set(feed.refused) == {UNKNOWN, UNFINISHED}


class Clock:
    """A clock that only the test advances."""

    now = 100.0

    def monotonic(self):
        return self.now


class Crowd:
    """Of the next connection: whether it is one too many, and ended as soon as it begins."""

    is_full = False

    def begin(self, descriptor):
        return (descriptor, "127.0.0.1") if self.is_full else None

    def end(self, descriptor):
        pass


@given(drawn=st.lists(st.tuples(st.sampled_from(OUTCOMES), st.booleans()), max_size=30), order=st.randoms(use_true_random=True))
def test_each_connection_is_counted_once_in_any_order_of_events(drawn, order):
    # One that is ended may have been refused, or have identified itself, just before.
    outcomes = [(CROWDED if is_crowded and reason == UNFINISHED else reason, *events) for (reason, *events), is_crowded in drawn]
    refused, clock, begun, crowd = Counter(), Clock(), Counter(), Crowd()
    left, open_ = {number: list(events) for number, (_, *events) in enumerate(outcomes)}, {}
    with (
        zmq.Context() as context,
        closing(ConnectionAudit("feed", context, None, crowd, refused)) as audit,
        structlog.testing.capture_logs(),
    ):
        audit._clock = clock
        while left:
            one = order.choice(list(left))
            crowd.is_full = drawn[one][1]
            if one not in open_:
                open_[one] = min(set(range(40)) - set(open_.values()))
                begun[outcomes[one][0]] += 1
            for kind, value in left[one].pop(0):
                audit._handle([struct.pack("=Hi", kind, open_[one] if value is None else value), b"tcp://127.0.0.1:1"])
                audit._count_unreported()
            if (kind, value) == ENDED:
                del open_[one]
            if not left[one]:
                del left[one]
            assert refused <= begun
            clock.now += 0.1
        clock.now += DECIDED_SECONDS
        audit._count_unreported()
    assert refused == Counter(reason for reason, *_ in outcomes if reason)


def relay(client, server, delay):
    """Carry bytes both ways until the server has answered the client's key, send it an unknown command then, and wait until all are silent.

    libzmq disconnects at once a client that it has not accepted; of an accepted one it only stops reading.
    """
    received, is_sent = 0, False
    with suppress(OSError):
        while (ready := connection.wait([client, server], 1)) and (some := ready[0].recv(1 << 16)):
            (client if ready[0] is server else server).sendall(some)
            received += len(some) * (ready[0] is server)
            if received > GREETING + WELCOME and not is_sent:
                time.sleep(delay)
                server.sendall(UNKNOWN_COMMAND)
                is_sent = True
    return is_sent


@pytest.mark.parametrize(("is_allowed", "counted"), [(False, {UNKNOWN: 1}), (True, {})], ids=["refused", "accepted"])
def test_a_client_that_breaks_the_protocol_after_the_answer_is_not_counted_again(
    tcp, keyring, subscriber, monkeypatch, is_allowed, counted
):
    monkeypatch.setattr(zap, "DECIDED_SECONDS", 0.3)
    keys = keyring.allowed("other") if is_allowed else keyring.unknown()
    with (
        Feed(tcp, "this-run", keys=keyring.server_keys()) as feed,
        socket.create_server(("127.0.0.1", 0)) as between,
        connected(tcp) as server,
    ):
        subscriber(keys, f"tcp://127.0.0.1:{between.getsockname()[1]}", reconnect_ivl=-1)
        with between.accept()[0] as client:
            assert relay(client, server, 0.4 * is_allowed)
        # One more, which is certainly counted after all others.
        with connected(tcp) as client:
            client.sendall(b"GET / HTTP/1.0")
        wait(lambda: feed.refused[JUNK] > 0)
        time.sleep(0.5)
        assert feed.refused == counted | {JUNK: 1}


def test_connections_that_end_without_a_report_are_counted_next_to_newly_accepted_ones(feed, tcp, keyring, subscriber, monkeypatch):
    monkeypatch.setattr(zap, "DECIDED_SECONDS", 2.0)
    friend = keyring.allowed("other")
    feed.reload_allowed_keys()
    for _ in range(3):
        subscriber(friend)
        with connected(tcp) as client:
            client.sendall(b"GET / HTTP/1.0")
    subscriptions = []
    wait(lambda: subscriptions.append(feed.poll()) or sum(subscriptions) == 3)
    wait(lambda: feed.refused[JUNK] == 3)
    time.sleep(1.0)
    assert feed.refused == {JUNK: 3}
